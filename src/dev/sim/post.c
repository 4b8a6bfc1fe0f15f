/* SPDX-License-Identifier: MIT */
/*
 * post.c - the processor's part: work requests are copied into the queues, and
 * the doorbell rings.
 */
#include "dev/sim/sim_dev.h"

#include <errno.h>
#include <string.h>

static uint64_t wr_bytes(const struct ibv_send_wr *wr)
{
	uint64_t len = 0;

	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	return len;
}

static int op_check(const struct sim_qp *q, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return 0;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return q->kind == SIM_UD ? EINVAL : 0;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return sim_unreliable(q) || wr->send_flags & IBV_SEND_INLINE
			       ? EINVAL
			       : 0;
	default:
		return EINVAL;
	}
}

static int wr_check(const struct sim_qp *q, const struct ibv_send_wr *wr)
{
	int rc = op_check(q, wr);

	if (rc)
		return rc;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->init.cap.max_send_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    wr_bytes(wr) > q->init.cap.max_inline_data)
		return EINVAL;
	return q->kind == SIM_UD && !wr->wr.ud.ah ? EINVAL : 0;
}

static void ud_dest(const struct sim_qp *q, struct sim_wqe *e,
		    const struct ibv_send_wr *wr)
{
	const struct sim_ah *a = sim_ah_of(wr->wr.ud.ah);
	uint32_t qkey = wr->wr.ud.remote_qkey;

	/* A high bit: the QP's own (IBA 10.2.5). */
	*e->dest = (struct sim_dest){
		.to = a->ah.pd == q->ex.qp_base.pd ? a->to : NULL,
		.qpn = wr->wr.ud.remote_qpn & 0xffffff,
		.qkey = qkey >> 31 ? q->attr.qkey : qkey,
		.grh = a->grh,
	};
}

static void wr_copy(struct sim_qp *q, const struct ibv_send_wr *wr,
		    const struct sim_dest *dest)
{
	struct sim_wqe *e = &q->sq[q->sq_tail++ & (q->sq_cap - 1)];
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t len = wr_bytes(wr);
	unsigned char *p = e->data;

	e->wr_id = wr->wr_id;
	e->opcode = (uint8_t)wr->opcode;
	e->flags = (uint8_t)wr->send_flags;
	if (q->init.sq_sig_all)
		e->flags |= IBV_SEND_SIGNALED;
	e->num_sge = (uint8_t)wr->num_sge;
	e->len = len > SIM_MSG_MAX ? UINT32_MAX : (uint32_t)len;
	e->imm = wr->imm_data;
	e->raddr = atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
	e->rkey = atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
	e->compare_add = atomic ? wr->wr.atomic.compare_add : 0;
	e->swap = atomic ? wr->wr.atomic.swap : 0;
	e->sum = 0;
	e->sent_at = 0;
	if (q->kind == SIM_UD)
		ud_dest(q, e, wr);
	else if (dest)
		*e->dest = *dest;
	if (!(e->flags & IBV_SEND_INLINE)) {
		if (wr->num_sge)
			memcpy(e->sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*e->sge));
		sim_check_posted(q, e);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(p, sim_ptr(wr->sg_list[i].addr), wr->sg_list[i].length);
		p += wr->sg_list[i].length;
	}
}

/* A doorbell may carry the request if the post has only one; else the NIC
 * fetches the requests. */
static uint64_t doorbell_ns(const struct nic_model *model, unsigned n,
			    unsigned flags)
{
	bool carried = n == 1 && (model->wqe_push > 1 ||
				  (model->wqe_push && flags & IBV_SEND_INLINE));

	return model->doorbell + (carried ? 0 : model->wqe_read);
}

/* For a post of n requests, the last with flags. */
static void ring(struct sim_qp *q, unsigned n, unsigned flags)
{
	struct sim_world *w = q->d->w;

	q->d->nic->doorbells++;
	switch (q->ex.qp_base.state) {
	case IBV_QPS_ERR:
	case IBV_QPS_SQE:
		sim_flush_send(q);
		break;
	case IBV_QPS_RTS:
		if (!q->tx_ev.pos && !q->rnr_wait)
			sim_at(w, &q->tx_ev,
			       sim_thread_now(w) +
				       doorbell_ns(&q->d->nic->net->model, n,
						   flags));
		break;
	default:
		break;
	}
}

static bool may_post(const struct sim_qp *q)
{
	return q->ex.qp_base.state > IBV_QPS_RTR;
}

static uint32_t room(const struct sim_qp *q)
{
	return q->init.cap.max_send_wr - (q->sq_tail - q->sq_freed);
}

/* Into the queue: what it costs the core. */
static uint64_t put(struct sim_qp *q, const struct ibv_send_wr *wr,
		    const struct sim_dest *dest)
{
	const struct nic_model *model = &q->d->nic->net->model;
	uint64_t ns = model->cpu_wr;

	wr_copy(q, wr, dest);
	if (wr->send_flags & IBV_SEND_INLINE)
		ns += (wr_bytes(wr) + 63) / 64 * model->cpu_inline64;
	return ns;
}

int sim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad)
{
	struct sim_qp *q = sim_qp_of(qp);
	uint64_t ns = q->d->nic->net->model.cpu_post;
	unsigned n = 0, flags = 0;
	int rc = 0;

	if (!may_post(q) || q->kind > SIM_UD) {
		*bad = wr;
		return EINVAL;
	}
	for (; wr; wr = wr->next) {
		rc = wr_check(q, wr);
		if (!rc && !room(q))
			rc = ENOMEM;
		if (rc) {
			*bad = wr;
			break;
		}
		ns += put(q, wr, NULL);
		n++;
		flags = wr->send_flags;
	}
	sim_charge(q->d->w, ns);
	ring(q, n, flags);
	return rc;
}

int sim_post_all(struct sim_qp *q, struct ibv_send_wr *wr,
		 const struct sim_dest *dest)
{
	uint64_t ns = q->d->nic->net->model.cpu_post;
	const struct ibv_send_wr *x;
	uint32_t n = 0;

	if (!may_post(q))
		return EINVAL;
	for (x = wr; x; x = x->next, n++)
		if (wr_check(q, x))
			return EINVAL;
	if (n > room(q))
		return ENOMEM;
	for (x = wr; x; x = x->next)
		ns += put(q, x, dest);
	sim_charge(q->d->w, ns);
	ring(q, n, n ? wr->send_flags : 0);
	return 0;
}

int sim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad)
{
	struct sim_qp *q = sim_qp_of(qp);
	int rc;

	if (qp->state == IBV_QPS_RESET || q->srq) {
		*bad = wr;
		return EINVAL;
	}
	rc = sim_recvq_post(&q->rq, q->d, wr, bad);
	if (qp->state == IBV_QPS_ERR)
		sim_flush_recv(q);
	return rc;
}
