/* SPDX-License-Identifier: MIT */
/*
 * send.c - post_send: checks, the direct path, completions.
 *
 * The poster executes: on the direct path nothing is queued, a request is done
 * when post_send() returns. A slot of the send queue is taken by every request
 * and freed as the verbs say: when a later signalled completion is polled.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/link/link.h"
#include "dev/soft/exec/known.h"
#include "dev/soft/mw.h"
#include "dev/soft/ud/ud.h"
#include "dev/soft/qp/wr.h"
#include "dev/states.h"

#include <errno.h>

static __attribute__((noinline)) uint32_t wr_len_sum(
	const struct ibv_send_wr *wr)
{
	uint64_t len = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	return len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
}

static inline uint32_t wr_len(const struct ibv_send_wr *wr)
{
	return likely(wr->num_sge == 1) ? wr->sg_list->length : wr_len_sum(wr);
}

/* READs and atomics say how much they brought; of the others it is known. */
static inline uint32_t wc_len(const struct ibv_send_wr *wr)
{
	return soft_is_answered(wr) ? wr_len(wr) : 0;
}

void soft_complete(struct soft_qp *q, const struct ibv_send_wr *wr,
		   uint32_t pos, int status)
{
	struct soft_cqe e;

	if (status == IBV_WC_SUCCESS && !q->sig_all &&
	    !(wr->send_flags & IBV_SEND_SIGNALED))
		return;
	e.wr_id = wr->wr_id;
	e.qp = q;
	e.qpn = q->ex.qp_base.qp_num;
	e.pos = pos;
	e.byte_len = wc_len(wr);
	e.imm = 0;
	e.status = (uint8_t)status;
	e.opcode = dev_wc_opcode[wr->opcode];
	e.flags = 0;
	e.sl = 0;
	e.recv = false;
	if (q->shut) {
		q->shut = false;
		soft_cq_push_shut(soft_cq_of(q->ex.qp_base.send_cq), &e);
		return;
	}
	soft_cq_push(soft_cq_of(q->ex.qp_base.send_cq), &e, q->held);
	if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR)
		soft_qp_send_failed(q);
}

/* The same for a success while the CQ has room: straight into the ring. */
static __attribute__((noinline)) void complete_ok(struct soft_qp *q,
						  const struct ibv_send_wr *wr,
						  uint32_t pos)
{
	struct soft_cq *c = soft_cq_of(q->ex.qp_base.send_cq);
	struct soft_cqe *e;

	if (!q->sig_all && !(wr->send_flags & IBV_SEND_SIGNALED))
		return;
	soft_lock(&c->lock);
	if (unlikely(c->tail - c->head > c->mask)) {
		soft_unlock(&c->lock);
		soft_complete(q, wr, pos, IBV_WC_SUCCESS);
		return;
	}
	e = &c->ring[c->tail & c->mask];
	e->wr_id = wr->wr_id;
	e->qp = q;
	e->qpn = q->ex.qp_base.qp_num;
	e->pos = pos;
	e->byte_len = wc_len(wr);
	e->imm = 0;
	e->status = IBV_WC_SUCCESS;
	e->opcode = dev_wc_opcode[wr->opcode];
	e->flags = 0;
	e->sl = 0;
	e->recv = false;
	c->tail++;
	/* relaxed: req_notify_cq() holds the same lock */
	if (unlikely(
		    atomic_load_explicit(&c->shm->armed, memory_order_relaxed) &
		    SHM_ARMED_STATE))
		soft_cq_fire_any(c);
	soft_unlock(&c->lock);
}

static inline bool wr_valid(const struct soft_qp *q,
			    const struct ibv_send_wr *wr)
{
	if (unlikely((unsigned)wr->opcode > IBV_WR_SEND_WITH_INV ||
		     !(q->ops >> wr->opcode & 1)))
		return false;
	if ((uint32_t)wr->num_sge > q->sge_max) /* negative too */
		return false;
	if (unlikely(wr->opcode >= IBV_WR_LOCAL_INV) && !soft_mw_valid(q, wr))
		return false;
	if (likely(!(wr->send_flags & IBV_SEND_INLINE)))
		return true;
	return !soft_is_answered(wr) && wr_len(wr) <= q->inline_max;
}

static int dc_exec(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	soft_dc_turn(q, q->dc->to);
	return soft_exec(q, wr, NULL);
}

/* The queue is not on the direct path: parked requests, SQD, ERR, not yet
 * RTS. */
static __attribute__((noinline)) int post_slow(struct soft_qp *q,
					       struct ibv_send_wr *wr,
					       uint32_t pos)
{
	int r, err;

	if (q->ud && (wr->opcode < IBV_WR_SEND || !wr->wr.ud.ah))
		return EINVAL;
	if (q->dc && !q->dc->to)
		return EINVAL; /* where to? */
	if (soft_qp_state(q) == IBV_QPS_RTS && q->parked)
		soft_progress(q);
	switch (soft_qp_state(q)) {
	case IBV_QPS_SQE:
	case IBV_QPS_ERR:
		q->sq_posted++;
		soft_complete(q, wr, pos, IBV_WC_WR_FLUSH_ERR);
		return 0;
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
		break;
	default:
		return EINVAL;
	}
	if (q->link)
		return soft_link_post(q, wr, pos);
	if (q->ud && !q->harsh && !q->parked && soft_qp_state(q) == IBV_QPS_RTS)
		r = soft_ud_exec(q, wr);
	else if (q->dc && !q->harsh && !q->parked)
		r = dc_exec(q, wr);
	else
		r = q->direct ? soft_exec(q, wr, NULL) : -SOFT_PARK_QUEUED;
	if (r < 0) {
		err = soft_park(q, wr, pos, -r);
		if (!err)
			q->sq_posted++;
		return err;
	}
	q->sq_posted++;
	soft_complete(q, wr, pos, r);
	return 0;
}

static inline int post_one(struct soft_qp *q, struct ibv_send_wr *wr)
{
	uint32_t pos = q->sq_posted;
	int r;

	if (unlikely(!wr_valid(q, wr)))
		return EINVAL;
	/* acquire: pairs with the poller, which has read the completion */
	if (unlikely(pos - atomic_load_explicit(&q->sq_done,
						memory_order_acquire) >=
		     q->sq_max))
		return ENOMEM;
	if (unlikely(!q->direct))
		return post_slow(q, wr, pos);
	r = soft_exec(q, wr, NULL);
	if (unlikely(r < 0)) {
		r = soft_park(q, wr, pos, -r);
		if (!r)
			q->sq_posted = pos + 1;
		return r;
	}
	q->sq_posted = pos + 1;
	if (likely(r == 0))
		complete_ok(q, wr, pos);
	else
		soft_complete(q, wr, pos, r);
	return 0;
}

/* The request that is by far the most, alone in its post. False: nothing was
 * done. Its checks are those of post_one(), in another order. */
static inline bool post_known(struct soft_qp *q, const struct ibv_send_wr *wr)
{
	uint32_t pos = q->sq_posted;
	bool done;

	/* acquire: as in post_one() */
	if (unlikely(!wr || wr->next || !soft_is_write_1(wr) || !q->direct ||
		     pos - atomic_load_explicit(&q->sq_done,
						memory_order_acquire) >=
			     q->sq_max))
		return false;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    unlikely(wr->sg_list->length > q->inline_max))
		return false;
	soft_hazard_on(q);
	done = soft_write_known(q, wr);
	soft_hazard_off(q);
	if (unlikely(!done))
		return false;
	q->sq_posted = pos + 1;
	if (unlikely(q->sig_all || wr->send_flags & IBV_SEND_SIGNALED))
		complete_ok(q, wr, pos);
	return true;
}

static __attribute__((noinline)) int post_all(struct soft_qp *q,
					      struct ibv_send_wr *wr,
					      struct ibv_send_wr **bad)
{
	int err;

	for (; wr; wr = wr->next) {
		err = post_one(q, wr);
		if (unlikely(err)) {
			*bad = wr;
			return err;
		}
	}
	return 0;
}

/* caps.no_cancel: what is not known may ask the peer for a file, look whether it
 * lives, wait. */
static __attribute__((noinline)) int post_serial(struct soft_qp *q,
						 struct ibv_send_wr *wr,
						 struct ibv_send_wr **bad)
{
	int was = env_cancel_off(q->s->env);
	int err = post_all(q, wr, bad);

	env_cancel_back(q->s->env, was);
	return err;
}

/* relaxed: the caller that names such a region has seen it registered */
static inline bool any_moved(const struct soft_qp *q)
{
	return atomic_load_explicit(&q->s->moved_mrs, memory_order_relaxed);
}

static int post(struct soft_qp *q, struct ibv_send_wr *wr,
		struct ibv_send_wr **bad)
{
	int err = 0;

	soft_lock(&q->lock);
	if (unlikely(!post_known(q, wr)))
		err = q->flags & DEV_QP_SERIAL ? post_serial(q, wr, bad)
					       : post_all(q, wr, bad);
	soft_unlock(&q->lock);
	return err;
}

/* Pieces by their addresses here, which all that carries out requests means. */
static void sges_here(const struct soft_qp *q, const struct ibv_send_wr *wr,
		      struct ibv_sge *sge)
{
	for (int i = 0; i < wr->num_sge; i++) {
		sge[i] = wr->sg_list[i];
		sge[i].addr = soft_mr_here(q->s, sge[i].lkey, sge[i].addr);
	}
}

/* While there are regions that are moved. */
static __attribute__((noinline, cold)) int post_moved(struct soft_qp *q,
						      struct ibv_send_wr *wr,
						      struct ibv_send_wr **bad)
{
	struct ibv_sge sge[SOFT_SGE_MAX];
	struct ibv_send_wr one, *which;
	int err = 0;

	for (; wr && !err; wr = wr->next) {
		one = *wr;
		one.next = NULL;
		*bad = wr;
		if (!(wr->send_flags & IBV_SEND_INLINE) &&
		    wr->num_sge <= (int)SOFT_SGE_MAX) {
			sges_here(q, wr, sge);
			one.sg_list = sge;
		}
		err = post(q, &one, &which);
	}
	return err;
}

int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad)
{
	struct soft_qp *q = soft_qp_of(qp);

	if (unlikely(!soft_here(q->s))) {
		*bad = wr;
		return EPERM;
	}
	if (unlikely(any_moved(q)))
		return post_moved(q, wr, bad);
	return post(q, wr, bad);
}

/* Before any of them is carried out: is there a state, are there places, does
 * each have a form that the device takes? */
static int all_postable(struct soft_qp *q, const struct ibv_send_wr *wr,
			uint32_t n)
{
	enum ibv_qp_state st = soft_qp_state(q);

	if (st < IBV_QPS_RTS)
		return EINVAL;
	/* acquire: as in post_one() */
	if (n > q->sq_max - (q->sq_posted -
			     atomic_load_explicit(&q->sq_done,
						  memory_order_acquire)))
		return ENOMEM;
	for (; wr; wr = wr->next)
		if (!wr_valid(q, wr))
			return EINVAL;
	return 0;
}

int soft_post_all_held(struct soft_qp *q, struct ibv_send_wr *wr, uint32_t n)
{
	int err = all_postable(q, wr, n);

	for (; wr && !err; wr = wr->next)
		err = post_one(q, wr);
	return err;
}

int soft_post_all(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t n)
{
	struct soft_qp *q = soft_qp_of(qp);
	struct ibv_send_wr *one;
	int err;

	if (unlikely(!soft_here(q->s)))
		return EPERM;
	for (one = wr; unlikely(any_moved(q)) && one; one = one->next)
		if (!(one->send_flags & IBV_SEND_INLINE))
			sges_here(q, one, one->sg_list);
	soft_lock(&q->lock);
	err = soft_post_all_held(q, wr, n);
	soft_unlock(&q->lock);
	return err;
}
