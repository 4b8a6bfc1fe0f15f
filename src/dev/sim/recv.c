/* SPDX-License-Identifier: MIT */
/*
 * recv.c - the responder's NIC: requests are checked, carried out in their
 * order, and answered.
 *
 * A request that comes twice (its answer was lost) is answered again: WRITEs
 * and SENDs are not carried out again, READs are, atomics give the result that
 * was kept. One that comes too early (one before it was lost) is dropped: the
 * requester sends all of them again.
 */
#include "dev/sim/sim_dev.h"

#include <string.h>

/* --- receives ---------------------------------------------------------- */

static void recv_completes(struct sim_qp *q, const struct sim_msg *m,
			   enum ibv_wc_status status)
{
	struct sim_rqe *e = &q->rq[q->rq_head++ & (q->rq_cap - 1)];
	struct sim_cqe c = {
		.wc = {.wr_id = e->wr_id,
		       .status = status,
		       .opcode = IBV_WC_RECV,
		       .qp_num = q->ex.qp_base.qp_num},
	};

	if (m) {
		c.wc.byte_len = m->len;
		if (m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			c.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		if (m->opcode != IBV_WR_SEND) {
			c.wc.imm_data = m->imm;
			c.wc.wc_flags = IBV_WC_WITH_IMM;
		}
	}
	sim_cq_push(sim_cq_of(q->init.recv_cq), &c,
		    m && m->flags & IBV_SEND_SOLICITED);
}

void sim_flush_recv(struct sim_qp *q)
{
	while (q->rq_head != q->rq_tail)
		recv_completes(q, NULL, IBV_WC_WR_FLUSH_ERR);
}

/* --- carrying out ------------------------------------------------------ */

static bool wants_receive(const struct sim_msg *m)
{
	return m->opcode == IBV_WR_SEND || m->opcode == IBV_WR_SEND_WITH_IMM ||
	       m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static enum ibv_wc_status do_send(struct sim_qp *q, struct sim_msg *m)
{
	struct sim_rqe *e = &q->rq[q->rq_head & (q->rq_cap - 1)];

	if (m->len > e->len) {
		recv_completes(q, m, IBV_WC_LOC_LEN_ERR);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (!sim_scatter(q, e->sge, e->num_sge, m->data, m->len)) {
		recv_completes(q, m, IBV_WC_LOC_PROT_ERR);
		return IBV_WC_REM_OP_ERR;
	}
	recv_completes(q, m, IBV_WC_SUCCESS);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status do_write(struct sim_qp *q, struct sim_msg *m)
{
	enum ibv_wc_status st = sim_mr_remote(q, m->rkey, m->raddr, m->len,
					      IBV_ACCESS_REMOTE_WRITE);

	if (st != IBV_WC_SUCCESS)
		return st;
	if (m->len) {
		memcpy(sim_ptr(m->raddr), m->data, m->len);
		sim_notify(q->d->proc);
	}
	if (m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		recv_completes(q, m, IBV_WC_SUCCESS);
	return st;
}

static enum ibv_wc_status do_read(struct sim_qp *q, struct sim_msg *m)
{
	enum ibv_wc_status st = sim_mr_remote(q, m->rkey, m->raddr, m->len,
					      IBV_ACCESS_REMOTE_READ);
	struct sim_net *net = m->to->net;
	struct sim_msg *full;

	if (st != IBV_WC_SUCCESS || !m->len)
		return st;
	if (m->data_cap < m->len) {
		/* its buffer, for ours */
		full = sim_msg_new(net, m->len);
		unsigned char *data = full->data;
		uint32_t cap = full->data_cap;

		full->data = m->data;
		full->data_cap = m->data_cap;
		m->data = data;
		m->data_cap = cap;
		sim_msg_free(net, full);
	}
	memcpy(m->data, sim_ptr(m->raddr), m->len);
	return st;
}

static enum ibv_wc_status do_atomic(struct sim_qp *q, struct sim_msg *m)
{
	enum ibv_wc_status st;
	uint64_t *word = sim_ptr(m->raddr), old;

	if (m->raddr & 7)
		return IBV_WC_REM_INV_REQ_ERR;
	st = sim_mr_remote(q, m->rkey, m->raddr, 8, IBV_ACCESS_REMOTE_ATOMIC);
	if (st != IBV_WC_SUCCESS)
		return st;
	old = *word;
	if (m->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		*word += m->compare_add;
	else if (old == m->compare_add)
		*word = m->swap;
	q->results[m->num % SIM_RESULTS] = old;
	memcpy(m->data, &old, sizeof(old));
	sim_notify(q->d->proc);
	return st;
}

static enum ibv_wc_status carry_out(struct sim_qp *q, struct sim_msg *m)
{
	switch (m->opcode) {
	case IBV_WR_RDMA_READ:
		return do_read(q, m);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return do_atomic(q, m);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return do_write(q, m);
	default:
		return do_send(q, m);
	}
}

static enum ibv_wc_status again(struct sim_qp *q, struct sim_msg *m)
{
	uint64_t old = q->results[m->num % SIM_RESULTS];

	switch (m->opcode) {
	case IBV_WR_RDMA_READ:
		return do_read(q, m);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		memcpy(m->data, &old, sizeof(old));
		return IBV_WC_SUCCESS;
	default:
		return IBV_WC_SUCCESS;
	}
}

/* --- answering --------------------------------------------------------- */

static void answer(struct sim_qp *q, struct sim_msg *m,
		   enum ibv_wc_status status)
{
	struct sim_nic *nic = m->to;
	const struct nic_model *model = &nic->net->model;
	uint64_t depart = m->served_at + model->reply;
	uint32_t qpn = m->src_qpn;

	/* A READ's bytes have only now been fetched. */
	if (m->opcode == IBV_WR_RDMA_READ && m->len)
		depart = sim_now(nic->net->w) + sim_pcie_ns(nic, m->len);
	if (depart < q->answered_at)
		depart = q->answered_at;
	q->answered_at = depart;
	m->status = (uint8_t)status;
	if (status != IBV_WC_SUCCESS && m->opcode == IBV_WR_RDMA_READ)
		m->len = 0;
	m->answer = true;
	m->to = m->from;
	m->from = nic;
	m->src_qpn = m->dst_qpn;
	m->dst_qpn = qpn;
	sim_net_send(m, depart, sim_answer_arrives);
}

static bool is_for(const struct sim_qp *q, const struct sim_msg *m)
{
	return q && q->far == m->from && q->attr.dest_qp_num == m->src_qpn &&
	       (q->ex.qp_base.state == IBV_QPS_RTR ||
		q->ex.qp_base.state == IBV_QPS_RTS ||
		q->ex.qp_base.state == IBV_QPS_SQD);
}

static void refuse(struct sim_qp *q, struct sim_msg *m,
		   enum ibv_wc_status status)
{
	enum ibv_event_type type = status == IBV_WC_REM_ACCESS_ERR
					   ? IBV_EVENT_QP_ACCESS_ERR
					   : IBV_EVENT_QP_REQ_ERR;

	answer(q, m, status);
	if (status != IBV_WC_REM_OP_ERR)
		sim_async(q->d, type, q, NULL);
	sim_qp_to_err(q);
}

static void request_take(struct sim_qp *q, struct sim_msg *m)
{
	int32_t ahead = (int32_t)(m->num - q->expect);
	enum ibv_wc_status status;

	if (ahead > 0) {
		sim_msg_free(m->to->net, m);
		return;
	}
	if (ahead < 0) {
		answer(q, m, again(q, m));
		return;
	}
	if (!q->met && q->ex.qp_base.state == IBV_QPS_RTR)
		sim_async(q->d, IBV_EVENT_COMM_EST, q, NULL);
	q->met = true;
	if (wants_receive(m) && q->rq_head == q->rq_tail) {
		m->rnr = true;
		m->rnr_timer = q->attr.min_rnr_timer;
		answer(q, m, IBV_WC_SUCCESS);
		return;
	}
	status = carry_out(q, m);
	q->expect++;
	if (status == IBV_WC_SUCCESS)
		answer(q, m, status);
	else
		refuse(q, m, status);
}

static void request_lands(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_qp *q = sim_qp_find(m->to, m->dst_qpn);

	if (is_for(q, m))
		request_take(q, m);
	else
		sim_msg_free(m->to->net, m);
}

void sim_request_arrives(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_qp *q = sim_qp_find(m->to, m->dst_qpn);
	struct sim_nic *nic = m->to;
	const struct nic_model *model = &nic->net->model;
	uint64_t ns = model->rx + sim_nic_ctx(nic, m->dst_qpn), at;

	nic->rx_msgs++;
	if (m->opcode != IBV_WR_SEND && m->opcode != IBV_WR_SEND_WITH_IMM)
		ns += sim_nic_mtt(nic, m->rkey, m->raddr, m->len);
	m->served_at = sim_nic_work(nic, sim_now(nic->net->w), ns);
	at = m->served_at;
	if (m->opcode == IBV_WR_RDMA_READ)
		at += model->dma_read;
	else
		at += model->dma_write + sim_pcie_ns(nic, m->len);
	if (q) {
		/* In order, and a READ behind the WRITEs before it. */
		if (at < q->landed_at)
			at = q->landed_at;
		q->landed_at = at;
	}
	ev->fn = request_lands;
	sim_at(nic->net->w, ev, at);
}
