/* SPDX-License-Identifier: MIT */
/*
 * recv.c - the receive queue of an RC QP: slots in the owner's memory that its
 * one peer takes in order and completes in place.
 *
 * A slot's word names the side that has it: the owner stores POSTED with a
 * release, the peer acquires it, fills in the completion and stores DONE with a
 * release, the owner's poll acquires that. Whatever the peer wrote is bounded
 * before it is passed on.
 */
#include "dev/soft/ud/ud.h"

#include <errno.h>

static void slot_post(struct soft_qp *q, const struct ibv_recv_wr *wr)
{
	struct shm_slot *slot = soft_slot(q, q->rq_tail);

	q->rq_wr_id[q->rq_tail & q->rq_mask] = wr->wr_id;
	q->rq_len[q->rq_tail & q->rq_mask] = soft_slot_fill(slot, wr);
	/* release: the peer that sees POSTED sees the pieces */
	atomic_store_explicit(&slot->word, q->rq_tail << 2 | SHM_SLOT_POSTED,
			      memory_order_release);
	/* relaxed would do for the count; the poller only compares it */
	__atomic_store_n(&q->rq_tail, q->rq_tail + 1, __ATOMIC_RELEASE);
}

int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		   struct ibv_recv_wr **bad)
{
	struct soft_qp *q = soft_qp_of(qp);
	const struct ibv_recv_wr *first = wr;
	enum ibv_qp_state st;
	int err = 0;

	if (unlikely(!soft_here(q->s))) {
		*bad = wr;
		return EPERM;
	}
	if (unlikely(q->ud))
		return soft_ud_post_recv(q, wr, bad);
	soft_lock(&q->rq_lock);
	st = soft_qp_state(q);
	for (; wr; wr = wr->next) {
		if (unlikely(st == IBV_QPS_RESET || wr->num_sge < 0 ||
			     (uint32_t)wr->num_sge > q->rq_sges))
			err = EINVAL;
		/* acquire: pairs with the reaper: the slot was read */
		else if (unlikely(q->rq_tail - atomic_load_explicit(
						       &q->rq_reap,
						       memory_order_acquire) >=
				  q->rq_slots))
			err = q->srq ? EINVAL : ENOMEM;
		if (unlikely(err)) {
			*bad = wr;
			break;
		}
		slot_post(q, wr);
	}
	/* A peer that waits for a receive said so, did a membarrier(2), and
	 * looked again: the compiler fence is enough here. Under the lock:
	 * modify_qp() changes `far` under it, then lets the peer go. */
	atomic_signal_fence(memory_order_seq_cst);
	if (q->far && unlikely(atomic_load_explicit(&q->far->parked,
						    memory_order_relaxed)))
		soft_ring(q);
	soft_unlock(&q->rq_lock);
	/* What was refused is not flushed. */
	if (unlikely(st == IBV_QPS_ERR) && wr != first)
		soft_cq_fire(soft_cq_of(qp->recv_cq));
	return err;
}

void soft_reap_fill(const struct shm_slot *slot, uint32_t len,
		    struct soft_cqe *e)
{
	uint32_t flags = shm_once(slot->flags);
	uint32_t status = shm_once(slot->status);

	e->opcode = flags & SHM_SLOT_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM
					   : IBV_WC_RECV;
	e->flags = flags & SHM_SLOT_IMM	  ? IBV_WC_WITH_IMM
		   : flags & SHM_SLOT_INV ? IBV_WC_WITH_INV
					  : 0;
	e->sl = 0;
	e->byte_len = shm_once(slot->byte_len);
	e->imm = shm_once(slot->imm);
	/* A caller that trusts the length of a message must read no further
	 * than the receive that it posted. */
	if (unlikely(status > IBV_WC_GENERAL_ERR ||
		     (status == IBV_WC_SUCCESS && !(flags & SHM_SLOT_WRITE) &&
		      e->byte_len > len)))
		status = IBV_WC_GENERAL_ERR;
	e->status = (uint8_t)status;
	e->src_qp = 0;
}

static inline bool posted(struct soft_qp *q, uint32_t n)
{
	return n != __atomic_load_n(&q->rq_tail, __ATOMIC_ACQUIRE);
}

bool soft_reap_due(struct soft_qp *q)
{
	uint32_t n = atomic_load_explicit(&q->rq_reap, memory_order_relaxed);

	return q->rq_slots &&
	       /* acquire: as in soft_reap() */
	       atomic_load_explicit(&soft_slot(q, n)->word,
				    memory_order_acquire) ==
		       (n << 2 | SHM_SLOT_DONE) &&
	       posted(q, n);
}

bool soft_reap(struct soft_qp *q, struct soft_cqe *e)
{
	uint32_t n = atomic_load_explicit(&q->rq_reap, memory_order_relaxed);
	struct shm_slot *slot;
	uint32_t word;

	if (unlikely(!q->rq_slots))
		return q->srq && soft_order_reap(q, e);
	slot = soft_slot(q, n);
	/* acquire: pairs with the peer's release of DONE: data and completion
	 * are in place */
	word = atomic_load_explicit(&slot->word, memory_order_acquire);
	if (word == (n << 2 | SHM_SLOT_DONE) && likely(posted(q, n))) {
		soft_reap_fill(slot, q->rq_len[n & q->rq_mask], e);
	} else if (q->rq_flush && posted(q, n)) {
		e->status = IBV_WC_WR_FLUSH_ERR;
		e->opcode = IBV_WC_RECV;
		e->flags = 0;
		e->sl = 0;
		e->byte_len = 0;
		e->imm = 0;
		e->src_qp = 0;
	} else {
		return false;
	}
	e->wr_id = q->rq_wr_id[n & q->rq_mask];
	e->qpn = q->ex.qp_base.qp_num;
	e->qp = q;
	e->recv = true;
	/* release: pairs with post_recv(), which uses the slot again */
	atomic_store_explicit(&q->rq_reap, n + 1, memory_order_release);
	return true;
}
