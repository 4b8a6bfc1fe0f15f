/* SPDX-License-Identifier: MIT */
/*
 * ud_recv.c - the receives of a UD QP, at their owner.
 *
 * They are claimed in the order of posting and complete in any: one that a
 * stopped process has claimed does not hold up those behind it. What one QP
 * sent arrives in its order all the same: an earlier receive is looked at
 * again once a later one was seen to be complete.
 */
#include "dev/soft/ud.h"

#include <errno.h>

int soft_ud_post_recv(struct soft_qp *q, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad)
{
	enum ibv_qp_state st;
	uint32_t n;
	int err = 0;

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
	if (unlikely(st == IBV_QPS_ERR))
		soft_cq_fire(soft_cq_of(q->ex.qp_base.recv_cq));
	return err;
}

static void out_add(struct soft_ud *u, uint32_t n)
{
	uint32_t end = u->claim.slots, last = u->out[end].prev;

	u->out[n] = (struct ud_link){.prev = last, .next = end};
	u->out[last].next = n;
	u->out[end].prev = n;
}

static void out_del(struct soft_ud *u, uint32_t n)
{
	u->out[u->out[n].prev].next = u->out[n].next;
	u->out[u->out[n].next].prev = u->out[n].prev;
}

/* Is it over: complete, or the owner's to flush? */
static bool is_over(struct soft_qp *q, uint32_t n)
{
	uint64_t word = claim_word(&q->ud->claim, n);

	return claim_state(word) == CLAIM_DONE ||
	       (q->rq_flush && claim_state(word) == CLAIM_CLAIMED &&
		claim_id(word) == CLAIM_OWNER);
}

/* All that was claimed into the list: positions are claimed in order. */
static void gather(struct soft_ud *u)
{
	uint64_t tail = claim_tail(&u->claim);
	uint32_t n;

	for (; u->next != tail; u->next++) {
		n = claim_order(&u->claim, u->next);
		if (claim_state(claim_word(&u->claim, n)) == CLAIM_POSTED)
			break;
		out_add(u, n);
	}
}

/* The first that is over, or the list's head. */
static uint32_t first_over(struct soft_qp *q)
{
	struct soft_ud *u = q->ud;
	uint32_t end = u->claim.slots, best = end, n;

	for (n = u->out[end].next; n != best; n = u->out[n].next) {
		if (!is_over(q, n))
			continue;
		/* One of the same sender that was not over when it was looked
		 * at may be by now, and is then seen: is_over() acquires. */
		best = n;
		if (u->out[n].prev != end)
			n = end;
		else
			break;
	}
	return best;
}

static void take(struct soft_qp *q, uint32_t n, struct soft_cqe *e)
{
	const struct shm_slot *slot = soft_slot(q, n);
	struct soft_ud *u = q->ud;

	e->opcode = IBV_WC_RECV;
	e->qpn = q->ex.qp_base.qp_num;
	e->qp = q;
	e->recv = true;
	e->wr_id = q->rq_wr_id[n];
	e->status = IBV_WC_WR_FLUSH_ERR;
	e->flags = 0;
	e->byte_len = e->imm = e->src_qp = 0;
	if (claim_state(claim_word(&u->claim, n)) == CLAIM_DONE) {
		soft_reap_fill(slot, q->rq_len[n], e);
		e->src_qp = shm_once(slot->src_qp) & 0xffffff;
		e->flags |= IBV_WC_GRH;
	}
	out_del(u, n);
	claim_slot_put(&u->claim, n);
}

bool soft_ud_reap(struct soft_qp *q, struct soft_cqe *e,
		  _Atomic uint32_t *ready, uint32_t *seen)
{
	/* acquire: pairs with finish() in ud_send.c: what it counts is DONE */
	uint32_t count = atomic_load_explicit(ready, memory_order_acquire), n;
	struct soft_ud *u = q->ud;

	gather(u);
	n = first_over(q);
	if (n == u->claim.slots) {
		*seen = count;
		return false;
	}
	take(q, n, e);
	return true;
}

void soft_ud_reset_recv(struct soft_qp *q)
{
	struct soft_ud *u = q->ud;

	claim_reset(&u->claim);
	u->next = claim_tail(&u->claim);
	u->out[u->claim.slots] =
		(struct ud_link){u->claim.slots, u->claim.slots};
}

void soft_ud_sweep_recv(struct soft_qp *q, uint32_t claimant)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.recv_cq);
	enum ibv_qp_state st;
	uint32_t n, i;

	soft_lock_revoke(&q->rq_lock);
	soft_lock_revoke(&c->lock);
	st = soft_qp_state(q);
	gather(q->ud);
	for (i = 0; claim_sweep(&q->ud->claim, claimant, i, &n); i = n + 1) {
		/* Flushed, or forgotten. */
		if (st == IBV_QPS_ERR || st == IBV_QPS_RESET || q->dying)
			continue;
		/* Its message is lost, as datagrams are; the receive is not:
		 * nobody else can have claimed it, so it is as it was posted.
		 * It goes to the end, for the place of old is used up. */
		out_del(q->ud, n);
		claim_post(&q->ud->claim, n);
	}
	/* It may have died between DONE and its count. */
	soft_cq_look(c, q);
	soft_lock_return(&c->lock);
	soft_lock_return(&q->rq_lock);
}
