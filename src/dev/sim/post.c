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

static int wr_check(const struct sim_qp *q, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		break;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (wr->send_flags & IBV_SEND_INLINE)
			return EINVAL;
		break;
	default:
		return EOPNOTSUPP;
	}
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->init.cap.max_send_sge)
		return EINVAL;
	if (wr->send_flags & IBV_SEND_INLINE &&
	    wr_bytes(wr) > q->init.cap.max_inline_data)
		return EINVAL;
	if (q->sq_tail - q->sq_freed >= q->init.cap.max_send_wr)
		return ENOMEM;
	return 0;
}

static void wr_copy(struct sim_qp *q, const struct ibv_send_wr *wr)
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
	if (!(e->flags & IBV_SEND_INLINE)) {
		if (wr->num_sge)
			memcpy(e->sge, wr->sg_list,
			       (size_t)wr->num_sge * sizeof(*e->sge));
		return;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(p, sim_ptr(wr->sg_list[i].addr), wr->sg_list[i].length);
		p += wr->sg_list[i].length;
	}
}

static void ring(struct sim_qp *q)
{
	struct sim_world *w = q->d->w;

	q->d->nic->doorbells++;
	if (q->ex.qp_base.state == IBV_QPS_ERR)
		sim_flush_send(q);
	else if (q->ex.qp_base.state == IBV_QPS_RTS && !q->tx_ev.pos &&
		 !q->rnr_wait)
		sim_at(w, &q->tx_ev,
		       sim_thread_now(w) + q->d->nic->net->model.doorbell);
}

int sim_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad)
{
	struct sim_qp *q = sim_qp_of(qp);
	const struct nic_model *model = &q->d->nic->net->model;
	uint64_t ns = model->cpu_post;
	int rc = 0;

	if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT ||
	    qp->state == IBV_QPS_RTR) {
		*bad = wr;
		return EINVAL;
	}
	for (; wr; wr = wr->next) {
		rc = wr_check(q, wr);
		if (rc) {
			*bad = wr;
			break;
		}
		wr_copy(q, wr);
		ns += model->cpu_wr;
		if (wr->send_flags & IBV_SEND_INLINE)
			ns += (wr_bytes(wr) + 63) / 64 * model->cpu_inline64;
	}
	sim_charge(q->d->w, ns);
	ring(q);
	return rc;
}

int sim_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad)
{
	struct sim_qp *q = sim_qp_of(qp);
	const struct nic_model *model = &q->d->nic->net->model;
	uint64_t ns = model->cpu_post;
	struct sim_rqe *e;
	int rc = 0;

	for (; wr; wr = wr->next) {
		if (qp->state == IBV_QPS_RESET || wr->num_sge < 0 ||
		    (uint32_t)wr->num_sge > q->init.cap.max_recv_sge)
			rc = EINVAL;
		else if (q->rq_tail - q->rq_head >= q->init.cap.max_recv_wr)
			rc = ENOMEM;
		if (rc) {
			*bad = wr;
			break;
		}
		e = &q->rq[q->rq_tail++ & (q->rq_cap - 1)];
		e->wr_id = wr->wr_id;
		e->num_sge = wr->num_sge;
		e->len = 0;
		for (int i = 0; i < wr->num_sge; i++) {
			e->sge[i] = wr->sg_list[i];
			e->len += wr->sg_list[i].length;
		}
		ns += model->cpu_wr;
	}
	sim_charge(q->d->w, ns);
	if (qp->state == IBV_QPS_ERR)
		sim_flush_recv(q);
	return rc;
}
