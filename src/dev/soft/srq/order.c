/* SPDX-License-Identifier: MIT */
/*
 * order.c - the owner's end of a QP's order ring: which receives of the shared
 * queue its peer completed, in which order.
 *
 * The peer is the ring's one producer; an entry is written after the slot is
 * DONE and says by itself which lap it belongs to. A peer that died between the
 * two left one DONE slot that is in no entry: once it is out, the owner writes
 * the entry in its place.
 */
#include "dev/soft/qp/qp.h"
#include "dev/soft/srq/srq.h"

static _Atomic uint32_t *ring(struct soft_qp *q)
{
	return (_Atomic uint32_t *)(void *)q->self->slots;
}

/* Is there an n-th entry? Its slot is this QP's and done. */
static bool entry(struct soft_qp *q, uint32_t n, uint32_t *slot)
{
	struct claim *c = &q->srq->c;
	uint32_t e, s;
	uint64_t word;

	/* acquire: pairs with soft_take_done(): DONE is older */
	e = atomic_load_explicit(&ring(q)[n & (c->slots - 1)],
				 memory_order_acquire);
	s = e & 0xffff;
	if (e != shm_srq_entry(n, c->slots, s) || s >= c->slots)
		return false;
	word = claim_word(c, s);
	if (claim_state(word) != CLAIM_DONE || claim_id(word) != q->srq_id ||
	    !atomic_load_explicit(&q->srq->recv[s].is_out,
				  memory_order_relaxed))
		return false;
	*slot = s;
	return true;
}

static void reaped(struct soft_qp *q)
{
	atomic_fetch_add_explicit(&q->rq_reap, 1, memory_order_relaxed);
}

/* The next entry that is a message; posts again those that the peer gave back
 * unused. The receive CQ's lock is held. */
static bool next(struct soft_qp *q, uint32_t *slot)
{
	uint32_t n;

	for (;;) {
		n = atomic_load_explicit(&q->rq_reap, memory_order_relaxed);
		if (!entry(q, n, slot))
			return false;
		if (likely(!(shm_once(soft_srq_slot(q->srq, *slot)->flags) &
			     SHM_SLOT_VOID)))
			return true;
		reaped(q);
		soft_cq_seen(q);
		soft_srq_post_again(q->srq, *slot);
	}
}

bool soft_order_reap(struct soft_qp *q, struct soft_cqe *e)
{
	uint32_t slot;

	if (!next(q, &slot))
		return false;
	soft_reap_fill(soft_srq_slot(q->srq, slot), q->srq->recv[slot].len, e);
	e->wr_id = q->srq->recv[slot].wr_id;
	e->qpn = q->ex.qp_base.qp_num;
	e->qp = q;
	e->recv = true;
	reaped(q);
	soft_srq_give_back(q->srq, slot);
	return true;
}

void soft_order_service(struct soft_qp *q)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);
	uint32_t slot;

	soft_lock_revoke(&c->lock);
	next(q, &slot);
	soft_lock_return(&c->lock);
	soft_srq_limit(q->srq);
}

/* The receive CQ's lock is held. */
static void complete_ring(struct soft_qp *q)
{
	struct claim *c = &q->srq->c;
	uint32_t n = atomic_load(&q->rq_reap), i, slot;
	uint32_t in[SOFT_SRQ_WR_MAX / 32] = {0};
	uint64_t word;

	for (; entry(q, n, &slot); n++)
		in[slot / 32] |= 1u << slot % 32;
	for (i = 0; i < c->slots; i++) {
		word = claim_word(c, i);
		if (claim_state(word) != CLAIM_DONE ||
		    claim_id(word) != q->srq_id || in[i / 32] & 1u << i % 32)
			continue;
		atomic_store_explicit(&ring(q)[n & (c->slots - 1)],
				      shm_srq_entry(n, c->slots, i),
				      memory_order_release);
		n++;
	}
	/* The peer may not have come to its count either. */
	soft_cq_set_ready(q, n);
}

void soft_order_sweep(struct soft_qp *q)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);
	uint32_t slot, from = 0;
	while (claim_sweep(&q->srq->c, q->srq_id, from, &slot)) {
		soft_srq_post_again(q->srq, slot);
		from = slot + 1;
	}
	soft_lock_revoke(&c->lock);
	complete_ring(q);
	soft_lock_return(&c->lock);
	/* A living peer has rung for the receives that it completed. */
	if (q->peer && atomic_load(&q->peer->dead))
		soft_cq_fire(c);
}

void soft_order_forget(struct soft_qp *q)
{
	struct claim *c = &q->srq->c;
	uint64_t word;
	uint32_t i;

	for (i = 0; i < c->slots; i++) {
		word = claim_word(c, i);
		if (claim_state(word) == CLAIM_DONE &&
		    claim_id(word) == q->srq_id)
			soft_srq_give_back(q->srq, i);
		atomic_store_explicit(&ring(q)[i], 0, memory_order_relaxed);
	}
	atomic_store(&q->rq_reap, 0);
}
