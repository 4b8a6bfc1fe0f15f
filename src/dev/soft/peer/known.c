/* SPDX-License-Identifier: MIT */
/*
 * known.c - a QP of a peer that was met before: its place is read from the
 * peer's NIC file, without a message. soft_peer_connect() does the rest: a bell
 * or a piece of the file that we do not have, and a QP that is not there.
 *
 * Answers to CONNECT teach which blocks of QPNs a peer has: it owns the socket
 * of that name. The peer itself writes the places in its blocks.
 */
#include "base/fence.h"
#include "dev/soft/dc/dc.h"
#include "dev/soft/peer/peer.h"
#include "dev/soft/srq/srq.h"

#include <stddef.h>

/* The same of what a DC target has more: its SRQ, and the senders' table. */
static bool dct_within(struct soft_peer *p, const struct shm_qp *f,
		       uint64_t size)
{
	uint64_t srq = (uint64_t)shm_once(f->srq_off) * SHM_PAGE;
	uint64_t in = (uint64_t)shm_once(f->inside_off) * SHM_PAGE;
	uint32_t slots, stride;

	return in && in + DC_INSIDE_MAX * sizeof(struct dc_inside) <= size &&
	       soft_srq_at(p->base, size, srq, &slots, &stride);
}

/* Is all of it in the part of the file that we know to be there? */
static bool within(struct soft_peer *p, const struct shm_qp *f, uint64_t off,
		   uint64_t size)
{
	uint64_t slots = shm_once(f->rq_slots);
	uint64_t stride = shm_once(f->rq_stride);
	uint64_t ready = (uint64_t)shm_once(f->ready_off) * 4;
	uint64_t cq = (uint64_t)shm_once(f->cq_off) * SHM_PAGE;

	return (!shm_once(f->srq_off) || dct_within(p, f, size)) &&
	       ready + 4 <= size && cq + SHM_PAGE <= size &&
	       off + sizeof(*f) + slots * stride <= size;
}

static bool look(struct soft_peer *p, uint32_t idx, uint32_t qpn,
		 uint64_t *area, struct soft_bell **bell)
{
	/* acquire: pairs with the release in qp_place(): the area's fields are
	 * older */
	uint32_t place =
		atomic_load_explicit(&p->nic->place[idx], memory_order_acquire);
	uint64_t off = (uint64_t)place * SHM_PAGE;
	uint64_t size = soft_peer_size(p);
	const struct shm_qp *f;
	uint32_t id;

	if (off < SHM_ARENA_OFF || size < SHM_PAGE || off > size - SHM_PAGE)
		return false;
	f = (const struct shm_qp *)(const void *)(p->base + off);
	id = shm_once(f->bell);
	if (shm_once(f->qpn) != qpn || !within(p, f, off, size))
		return false;
	/* The reads above come before this one. The owner takes the place back
	 * before the area is another QP's, with a release fence in between. */
	fence_acquire();
	if (atomic_load_explicit(&p->nic->place[idx], memory_order_relaxed) !=
	    place)
		return false;
	*bell = id ? soft_bell_find(p, id) : NULL;
	*area = off;
	return !id || *bell;
}

bool soft_peer_known(struct soft *s, uint32_t qpn, struct soft_peer **peer,
		     uint64_t *area, struct soft_bell **bell)
{
	uint32_t block = qpn / SHM_BLOCK_QPS, i;
	struct soft_peer *p;
	struct list_node *n;

	for (n = s->peers.next; n != &s->peers; n = n->next) {
		p = container_of(n, struct soft_peer, link);
		for (i = 0; i < SHM_BLOCK_MAX && p->blocks[i] != block; i++)
			;
		if (i == SHM_BLOCK_MAX || atomic_load(&p->dead) ||
		    !soft_life(p->nic))
			continue;
		if (!look(p, i * SHM_BLOCK_QPS + qpn % SHM_BLOCK_QPS, qpn, area,
			  bell))
			return false;
		p->refs++;
		soft_bell_get(*bell);
		*peer = p;
		return true;
	}
	return false;
}
