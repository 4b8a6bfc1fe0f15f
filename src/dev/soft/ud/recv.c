/* SPDX-License-Identifier: MIT */
/*
 * recv.c - the receives of a UD QP, at their owner.
 *
 * They are claimed in the order of posting and complete in any: one that a
 * stopped process has claimed does not hold up those behind it. What one QP
 * sent arrives in its order all the same: an earlier receive is looked at
 * again once a later one was seen to be complete.
 */
#include "dev/soft/ud/ud.h"

#include <errno.h>

int soft_ud_post_recv(struct soft_qp *q, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad)
{
	const struct ibv_recv_wr *first = wr;
	enum ibv_qp_state st;
	uint32_t n;
	int err = 0;

	if (q->srq) {
		*bad = wr;
		return EINVAL;
	}
	soft_lock(&q->rq_lock);
	/* Under the lock under which soft_ud_shut() takes all back. */
	st = soft_qp_state(q);
	for (; wr; wr = wr->next) {
		if (st == IBV_QPS_RESET || wr->num_sge < 0 ||
		    (uint32_t)wr->num_sge > q->rq_sges)
			err = EINVAL;
		else if (claim_slot_get(&q->ud->claim, &n))
			err = ENOMEM;
		if (unlikely(err)) {
			*bad = wr;
			break;
		}
		q->rq_wr_id[n] = wr->wr_id;
		q->rq_len[n] = soft_slot_fill(soft_slot(q, n), wr);
		if (likely(st != IBV_QPS_ERR))
			claim_post(&q->ud->claim, n);
		else
			claim_post_shut(&q->ud->claim, n);
	}
	soft_unlock(&q->rq_lock);
	if (unlikely(st == IBV_QPS_ERR) && wr != first)
		soft_cq_fire(soft_cq_of(q->ex.qp_base.recv_cq));
	return err;
}

void soft_ud_fill(const struct shm_slot *slot, uint32_t len, struct soft_cqe *e)
{
	soft_reap_fill(slot, len, e);
	e->src_qp = shm_once(slot->src_qp) & 0xffffff;
	e->flags |= IBV_WC_GRH;
	e->sl = shm_once(slot->flags) & SHM_SLOT_V4 ? DEV_GRH_WC_SL_V4
						    : DEV_GRH_WC_SL_V6;
}

static void take(struct soft_qp *q, uint32_t n, struct soft_cqe *e)
{
	struct soft_ud *u = q->ud;

	e->opcode = IBV_WC_RECV;
	e->qpn = q->ex.qp_base.qp_num;
	e->qp = q;
	e->recv = true;
	e->wr_id = q->rq_wr_id[n];
	e->status = IBV_WC_WR_FLUSH_ERR;
	e->flags = e->sl = 0;
	e->byte_len = e->imm = e->src_qp = 0;
	if (claim_state(claim_word(&u->claim, n)) == CLAIM_DONE)
		soft_ud_fill(soft_slot(q, n), q->rq_len[n], e);
	outs_del(&u->outs, n);
	claim_slot_put(&u->claim, n);
}

bool soft_ud_reap(struct soft_qp *q, struct soft_cqe *e,
		  _Atomic uint32_t *ready, uint32_t *seen)
{
	/* acquire: pairs with finish() in ud/send.c: what it counts is DONE */
	uint32_t count = atomic_load_explicit(ready, memory_order_acquire), n;
	struct soft_ud *u = q->ud;

	if (q->srq) {
		if (soft_ud_srq_reap(q, e))
			return true;
		*seen = count;
		return false;
	}
	outs_gather(&u->outs);
	n = outs_first(&u->outs, q->rq_flush);
	if (n == u->claim.slots) {
		*seen = count;
		return false;
	}
	take(q, n, e);
	return true;
}

void soft_ud_reset_recv(struct soft_qp *q)
{
	if (q->srq)
		return;
	claim_reset(&q->ud->claim);
	outs_reset(&q->ud->outs);
}

bool soft_ud_sweep_recv(struct soft_qp *q, uint32_t claimant)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);
	enum ibv_qp_state st;
	uint32_t n, i;
	bool due;

	if (q->srq) { /* soft_ud_swept() sweeps the SRQ's receives */
		soft_lock_revoke(&c->lock);
		soft_cq_look(c, q);
		soft_lock_return(&c->lock);
		return soft_ud_srq_due(q);
	}
	soft_lock_revoke(&q->rq_lock);
	soft_lock_revoke(&c->lock);
	st = soft_qp_state(q);
	outs_gather(&q->ud->outs);
	for (i = 0; claim_sweep(&q->ud->claim, claimant, i, &n); i = n + 1) {
		/* Flushed, or forgotten. */
		if (st == IBV_QPS_ERR || st == IBV_QPS_RESET || q->dying)
			continue;
		/* The message is lost, as datagrams may be; the receive is not.
		 * No other sender can have claimed it, so it is as it was
		 * posted. It goes to the end, because its old position is used
		 * up. */
		outs_del(&q->ud->outs, n);
		claim_post(&q->ud->claim, n);
	}
	/* It may have died between DONE and its count. */
	soft_cq_look(c, q);
	due = outs_first(&q->ud->outs, false) != q->ud->claim.slots;
	soft_lock_return(&c->lock);
	soft_lock_return(&q->rq_lock);
	return due;
}
