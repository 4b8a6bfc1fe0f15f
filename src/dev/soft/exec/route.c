/* SPDX-License-Identifier: MIT */
/*
 * route.c - the way to a peer: is its QP there and ours, what is behind an
 * rkey. The slow halves of exec.c; both run inside the hazard.
 */
#include "base/fence.h"
#include "dev/soft/dc/dc.h"
#include "dev/soft/mw.h"

#include <errno.h>
#include <string.h>

bool soft_area_load(struct soft_qp *q)
{
	struct shm_qp *f = q->far;
	uint64_t off = (uint64_t)((const char *)f - q->peer->base);
	uint64_t slots = shm_once(f->rq_slots);
	uint64_t stride = shm_once(f->rq_stride);
	uint64_t ready = (uint64_t)shm_once(f->ready_off) * 4;
	uint64_t cq = (uint64_t)shm_once(f->cq_off) * SHM_PAGE;
	uint32_t group = shm_once(f->rq_group);
	uint64_t srq = (uint64_t)shm_once(f->srq_off) * SHM_PAGE;
	uint64_t size = soft_peer_size(q->peer);

	q->far_srq = NULL;
	if (srq) {
		if (!soft_take_load(q, srq, size))
			return false;
		slots = 0;
		stride = q->far_stride;
	}
	if (slots & (slots - 1) || slots > SHM_SPAN || stride > SHM_SPAN ||
	    stride % 8 || stride < sizeof(struct shm_slot))
		return false;
	if (off + sizeof(*f) + slots * stride > size)
		return false;
	if (ready < SHM_ARENA_OFF || ready > size - 4 || cq < SHM_ARENA_OFF ||
	    cq > size - SHM_PAGE || group >= SHM_CQ_GROUPS)
		return false;
	q->far_slots = (uint32_t)slots;
	if (!q->far_srq) {
		q->far_rq = (char *)q->far->slots;
		q->far_mask = (uint32_t)slots - 1;
		q->far_stride = (uint32_t)stride;
	}
	q->far_sges = (uint32_t)((stride - sizeof(struct shm_slot)) /
				 sizeof(struct shm_sge));
	q->far_pd = shm_once(f->pd);
	q->far_ready = (_Atomic uint32_t *)(void *)(q->peer->base + ready);
	q->far_cq = (struct shm_cq *)(void *)(q->peer->base + cq);
	q->far_group = group;
	return true;
}

int soft_gate_check(struct soft_qp *q)
{
	const struct shm_qp *f = q->far;
	uint32_t gate;

	if (q->dc)
		return soft_dc_gate(q);
	q->gate_ok = 0;
	memset(q->xlat, 0, sizeof(q->xlat));
	atomic_store(&q->asked_for, 0);
	if (!q->peer)
		return -SOFT_PARK_ROUTE;
	if (!soft_life(q->peer->nic))
		return IBV_WC_RETRY_EXC_ERR;
	if (!f)
		return -SOFT_PARK_ROUTE;
	/* acquire: pairs with soft_qp_gate(): the fields below are older */
	gate = atomic_load_explicit(&f->gate, memory_order_acquire);
	if (gate & SHM_GATE_DEAD || shm_once(f->qpn) != q->attr.dest_qp_num ||
	    shm_once(f->conn) != q->far_conn)
		return IBV_WC_RETRY_EXC_ERR;
	if (!(gate & SHM_GATE_ACCEPT))
		return -SOFT_PARK_ROUTE;
	/* Broken by us, and its owner has not looked yet: behind a receive in
	 * error none completes with success (IBA 9.9.3). */
	if (atomic_load_explicit(&f->fault, memory_order_relaxed) !=
	    SHM_FAULT_NONE)
		return IBV_WC_RETRY_EXC_ERR;
	/* A QP that is connected to another one, or that expects another
	 * packet, drops ours: as if it were not there. */
	if (shm_once(f->type) != q->ex.qp_base.qp_type ||
	    shm_once(f->dest_qpn) != q->ex.qp_base.qp_num ||
	    shm_once(f->dest_nic) != q->s->nic->nic_id ||
	    shm_once(f->dest_conn) != q->conn)
		return -SOFT_PARK_ROUTE;
	/* UC takes the first packet of a message with any number. */
	if (shm_once(f->rq_psn) != q->attr.sq_psn && !q->unreliable)
		return -SOFT_PARK_ROUTE;
	if (!soft_area_load(q))
		return IBV_WC_RETRY_EXC_ERR;
	q->gate_ok = gate;
	return 0;
}

/* Is all of it in the part of the NIC file that we know to be there? Else that
 * file is asked for, as another is. */
static bool near_known(const struct soft_peer *p, uint64_t off, uint64_t len)
{
	uint64_t size = soft_peer_size(p);

	return off >= SHM_ARENA_OFF && off <= size && len <= size - off;
}

/* Where the memory of a region is here, if it can be mapped. */
static int region_map(struct soft_peer *p, const struct soft_entry *e,
		      uint32_t qpn, _Atomic uint32_t *asked, char **ptr)
{
	struct soft_map *map;

	*ptr = NULL;
	if (e->kind == SHM_MR_NEAR && near_known(p, e->off, e->len)) {
		*ptr = p->base + e->off;
	} else if (e->kind == SHM_MR_FILE || e->kind == SHM_MR_NEAR) {
		if (soft_peer_map(p, qpn, asked, e->key, e->life, &map))
			return -EAGAIN;
		if (!map->refused) {
			if (e->len > map->len)
				return -EACCES;
			*ptr = map->ptr;
		}
	}
	return 0;
}

static struct shm_mr *entry_of(const struct soft_peer *p, uint32_t key)
{
	uint32_t idx = key >> 16;

	if (key == 0 ||
	    idx >= atomic_load_explicit(&p->nic->mr_top, memory_order_acquire))
		return NULL;
	return (struct shm_mr *)(void *)(p->base + SHM_MR_OFF) + idx;
}

/* The same of a window: a part of its region's mapping. The region does not go
 * before the window is invalid. */
static int window_map(struct soft_peer *p, const struct soft_entry *w,
		      uint32_t qpn, _Atomic uint32_t *asked, char **ptr)
{
	const struct shm_mr *e = entry_of(p, (uint32_t)w->of);
	struct soft_entry r;
	int err;

	if (!e || !soft_entry_read(e, &r) || r.key != (uint32_t)w->of ||
	    r.life != w->of >> 32 || r.kind == SHM_MR_WINDOW || w->at < r.at ||
	    w->len > r.len || w->at - r.at > r.len - w->len)
		return -EACCES;
	err = region_map(p, &r, qpn, asked, ptr);
	if (!err && *ptr)
		*ptr += w->at - r.at;
	return err;
}

int soft_xlat_load(struct soft_peer *p, const struct soft_dest *to,
		   struct soft_xlat *x, uint32_t key, uint32_t qpn,
		   _Atomic uint32_t *asked)
{
	struct shm_mr *e = entry_of(p, key);
	struct soft_entry n;
	int err;

	x->live = NULL;
	if (!e || !soft_entry_read(e, &n) || n.key != key || n.pd != to->pd ||
	    (n.qpn && n.qpn != to->qpn))
		return -EACCES;
	err = n.kind == SHM_MR_WINDOW ? window_map(p, &n, qpn, asked, &x->ptr)
				      : region_map(p, &n, qpn, asked, &x->ptr);
	if (err)
		return err;
	x->access = n.access;
	x->start = n.start;
	x->at = n.at;
	x->len = n.len;
	x->life = n.life;
	x->key = key;
	x->live = &e->life;
	return 0;
}

bool soft_far_shut(struct soft_qp *q, uint32_t key)
{
	struct soft_dest to = {q->far_pd, q->attr.dest_qp_num};
	struct shm_mr *e = entry_of(q->peer, key);

	return e && soft_mw_shut(e, &to, key);
}

struct soft_xlat *soft_xlat_fill(struct soft_qp *q, uint32_t key, int *why)
{
	struct soft_xlat *x = &q->xlat[(key >> 16) % SOFT_XLATS];
	/* A DC target has no windows of its own: it posts no binds. */
	struct soft_dest to = {q->far_pd, q->dc ? 0 : q->attr.dest_qp_num};
	int err = soft_xlat_load(q->peer, &to, x, key, q->ex.qp_base.qp_num,
				 &q->asked_for);

	if (!err)
		return x;
	*why = err == -EAGAIN ? -SOFT_PARK_XLAT : IBV_WC_REM_ACCESS_ERR;
	return NULL;
}
