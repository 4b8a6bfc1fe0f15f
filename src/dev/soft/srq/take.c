/* SPDX-License-Identifier: MIT */
/*
 * take.c - the poster's end of a peer's shared receive queue: it claims the
 * oldest receive, completes it, and appends its number to the order ring of the
 * QP that it is connected to.
 *
 * All within the hazard of the QP, so the peer's way to ERR or RESET waits for
 * it as for any copy. A claim outlives one execution where the request is
 * parked; the QP then has the receive for its next message, as it would have
 * the next one of a queue of its own. If the QP breaks meanwhile the receive
 * is given back unused (VOID), or its owner takes it.
 */
#include "dev/soft/qp/qp.h"
#include "dev/soft/srq/srq.h"

#include <errno.h>

#define ROUNDS (1u << 20)

struct shm_srq *soft_srq_at(char *base, uint64_t size, uint64_t off,
			    uint32_t *slots, uint32_t *stride)
{
	struct shm_srq *r;
	uint64_t n, len;

	if (off < SHM_ARENA_OFF || off > size - SHM_PAGE)
		return NULL;
	r = (struct shm_srq *)(void *)(base + off);
	n = shm_once(shm_srq_claim(r)->slots);
	len = shm_once(r->stride);
	if (n < 2 || n & (n - 1) || n > SOFT_SRQ_WR_MAX || len > SHM_SPAN ||
	    len % 8 || len < sizeof(struct shm_slot) ||
	    off + shm_srq_slots_off((uint32_t)n) + n * len > size)
		return NULL;
	*slots = (uint32_t)n;
	*stride = (uint32_t)len;
	return r;
}

bool soft_take_load(struct soft_qp *q, uint64_t srq_off, uint64_t size)
{
	uint32_t slots, stride;
	struct shm_srq *r;

	r = soft_srq_at(q->peer->base, size, srq_off, &slots, &stride);
	/* DC: without an order ring */
	if (!r ||
	    (!q->dc && (uint64_t)((const char *)q->far->slots - q->peer->base) +
				       slots * sizeof(uint32_t) >
			       size))
		return false;
	q->far_srq = r;
	q->far_rq = (char *)r + shm_srq_slots_off(slots);
	q->far_slots = 0; /* none of its own */
	q->far_mask = slots - 1;
	q->far_stride = stride;
	q->far_srq_id = shm_srq_id(
		(uint64_t)((const char *)q->far - q->peer->base), q->far_conn);
	q->far_name = q->far_srq_id;
	if (q->dc)
		q->far_srq_id = q->peer->claimant;
	return true;
}

static struct shm_slot *slot_at(struct soft_qp *q, uint32_t n)
{
	return (void *)(q->far_rq + (size_t)n * q->far_stride);
}

/* Is the receive long enough? A UC message that is too long leaves it. */
static bool fits(struct soft_qp *q, uint32_t n, size_t len)
{
	const struct shm_slot *slot = slot_at(q, n);
	uint32_t i, num = shm_once(slot->num_sge);
	size_t room = 0;

	for (i = 0; i < num && i < q->far_sges; i++)
		room += shm_once(slot->sge[i].len);
	return room >= len;
}

static void mind_limit(struct soft_qp *q, uint64_t pos)
{
	/* relaxed: after the claim, a full fence; the owner moves the limit,
	 * does a membarrier(2) and counts */
	if (pos >=
	    atomic_load_explicit(&q->far_srq->limit_at, memory_order_relaxed))
		soft_ring(q);
}

static int take_one(struct soft_qp *q, size_t len)
{
	struct shm_claim *c = shm_srq_claim(q->far_srq);
	uint32_t slots = q->far_mask + 1, n;
	unsigned round;
	uint64_t pos;
	int r;

	/* In each round another claimant succeeds. So many rounds come only if
	 * the peer writes nonsense. */
	for (round = 0; round < ROUNDS; round++) {
		pos = claim_head(c);
		r = claim_look(c, slots, pos, &n);
		if (r == -EAGAIN)
			continue;
		if (r)
			return r;
		if (q->unreliable && !fits(q, n, len))
			return -EMSGSIZE;
		if (!claim_take(c, pos, n, q->far_srq_id))
			continue;
		q->taken = true;
		q->take_slot = n;
		q->take_pos = pos;
		/* relaxed: inside the hazard, which the owner waits for; and
		 * it looks for those that claimed for a QP by this name */
		if (q->dc)
			shm_set(slot_at(q, n)->dest, q->far_name);
		mind_limit(q, pos);
		return 0;
	}
	return -ENOENT;
}

struct shm_slot *soft_take(struct soft_qp *q, size_t len)
{
	int r;

	if (q->taken)
		return slot_at(q, q->take_slot);
	r = take_one(q, len);
	/* A DC target does not know us: the timer of retries comes by. */
	if (r == -ENOENT && !q->unreliable && !q->dc &&
	    !atomic_load(&q->far_srq->waiting)) {
		/* A later post_srq_recv() sees `waiting`; one under way may
		 * have missed it. The membarrier(2) takes the place of a fence
		 * there; where it is refused: park.c. */
		atomic_store(&q->far_srq->waiting, 1);
		if (!soft_barrier_try()) {
			q->ring_lost = true;
			soft_kick(q->s);
		}
		r = take_one(q, len);
	}
	return r ? NULL : slot_at(q, q->take_slot);
}

void soft_take_done(struct soft_qp *q)
{
	_Atomic uint32_t *ring = (_Atomic uint32_t *)(void *)q->far->slots;

	claim_done(shm_srq_claim(q->far_srq), q->take_pos, q->take_slot,
		   q->far_srq_id);
	q->taken = false;
	if (q->dc) /* the owner reads the name in the receive */
		return;
	/* release: an owner that sees the entry also sees DONE */
	atomic_store_explicit(&ring[q->far_head & q->far_mask],
			      shm_srq_entry(q->far_head, q->far_mask + 1,
					    q->take_slot),
			      memory_order_release);
}

/* Gives back a receive claimed for a DC target. The claim stands in every state
 * of the target, so the gate is not looked at. */
static void dc_take_back(struct soft_qp *q)
{
	slot_at(q, q->take_slot)->flags = SHM_SLOT_VOID;
	soft_take_done(q);
	/* release: an owner that sees the flag also sees DONE */
	atomic_store_explicit(&q->far_srq->voided, 1, memory_order_release);
	soft_ring(q);
}

void soft_take_back(struct soft_qp *q)
{
	if (!q->taken)
		return;
	if (q->dc) {
		dc_take_back(q);
		return;
	}
	q->taken = false;
	/* acquire: as in soft_exec(). If the gate has changed, the peer has
	 * swept this claim, or will. */
	if ((!q->far || !q->gate_ok ||
	     atomic_load_explicit(&q->far->gate, memory_order_acquire) !=
		     q->gate_ok) &&
	    soft_gate_check(q))
		return;
	slot_at(q, q->take_slot)->flags = SHM_SLOT_VOID;
	soft_take_done(q);
	q->far_head++;
	/* release: as in finish_slot() */
	atomic_store_explicit(q->far_ready, ++q->far_ready_n,
			      memory_order_release);
	shm_cq_mark(q->far_cq, q->far_group);
	soft_ring(q);
}
