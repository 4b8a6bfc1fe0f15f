/* SPDX-License-Identifier: MIT */
/*
 * recv.c - the responder's NIC: requests are checked, carried out in their
 * order, and answered.
 *
 * A request comes twice if its answer was lost. The responder answers it again:
 * it does not carry out a WRITE or SEND again, it carries out a READ again, and
 * for an atomic it gives the result that it kept. A request comes too early if
 * an earlier one was lost. The responder drops it, and the requester sends all
 * of them again. On UC and UD there are no answers: a request that cannot be
 * taken is dropped.
 */
#include "dev/sim/sim_dev.h"

#include <string.h>

/* --- receives ---------------------------------------------------------- */

static void recv_completes(struct sim_qp *q, const struct sim_msg *m,
			   enum ibv_wc_status status)
{
	struct sim_recvq *r = sim_recvq_of(q);
	struct sim_cqe c = {
		.wc = {.wr_id = sim_recvq_first(r)->wr_id,
		       .status = status,
		       .opcode = IBV_WC_RECV,
		       .qp_num = q->ex.qp_base.qp_num},
	};

	r->head++;
	if (m) {
		c.wc.byte_len = m->len;
		if (m->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
			c.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		if (m->opcode != IBV_WR_SEND) {
			c.wc.imm_data = m->imm;
			c.wc.wc_flags = IBV_WC_WITH_IMM;
		}
		if (m->kind == SIM_UD) {
			c.wc.byte_len += DEV_GRH;
			c.wc.src_qp = m->src_qpn;
			c.wc.wc_flags |= IBV_WC_GRH;
		}
	}
	sim_cq_push(sim_cq_of(q->init.recv_cq), &c,
		    m && m->flags & IBV_SEND_SOLICITED);
	if (q->srq)
		sim_srq_taken(q->srq);
}

void sim_flush_recv(struct sim_qp *q)
{
	while (!sim_recvq_empty(&q->rq))
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
	struct sim_rqe *e = sim_recvq_first(sim_recvq_of(q));
	uint32_t len = m->kind == SIM_UD ? m->len + DEV_GRH : m->len;

	if (len > e->len) {
		if (sim_unreliable(q))
			return IBV_WC_SUCCESS; /* dropped */
		recv_completes(q, m, IBV_WC_LOC_LEN_ERR);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	sim_check_carried(q, m);
	sim_check_recv_taken(q->d, e);
	if (!sim_scatter(q, e->sge, e->num_sge, m->hollow ? NULL : m->data,
			 len)) {
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
		sim_check_carried(q, m);
		if (m->pieces)
			sim_tear_move(m, sim_ptr(m->raddr), m->data);
		else if (!m->hollow)
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

	if (st != IBV_WC_SUCCESS || !m->len || m->hollow)
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
	if (m->pieces)
		sim_tear_move(m, m->data, sim_ptr(m->raddr));
	else
		memcpy(m->data, sim_ptr(m->raddr), m->len);
	return st;
}

static void result_keep(struct sim_flow *f, uint32_t num, uint64_t old)
{
	uint32_t i = f->n_results++ % SIM_RD_ATOMIC;

	f->results[i].num = num;
	f->results[i].old = old;
}

/* An older one than are kept cannot be under way. */
static uint64_t result_kept(const struct sim_flow *f, uint32_t num)
{
	for (uint32_t i = 0; i < SIM_RD_ATOMIC; i++)
		if (i < f->n_results && f->results[i].num == num)
			return f->results[i].old;
	return 0;
}

static enum ibv_wc_status do_atomic(struct sim_qp *q, struct sim_flow *f,
				    struct sim_msg *m)
{
	enum ibv_wc_status st;
	uint64_t *word = sim_ptr(m->raddr), old;

	/* only where results are kept: on RC and DC */
	if (!f || m->raddr & 7)
		return IBV_WC_REM_INV_REQ_ERR;
	st = sim_mr_remote(q, m->rkey, m->raddr, 8, IBV_ACCESS_REMOTE_ATOMIC);
	if (st != IBV_WC_SUCCESS)
		return st;
	old = *word;
	if (m->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		*word += m->compare_add;
	else if (old == m->compare_add)
		*word = m->swap;
	result_keep(f, m->num, old);
	memcpy(m->data, &old, sizeof(old));
	sim_notify(q->d->proc);
	return st;
}

static enum ibv_wc_status carry_out(struct sim_qp *q, struct sim_flow *f,
				    struct sim_msg *m)
{
	switch (m->opcode) {
	case IBV_WR_RDMA_READ:
		return do_read(q, m);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return do_atomic(q, f, m);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return do_write(q, m);
	default:
		return do_send(q, m);
	}
}

static enum ibv_wc_status again(struct sim_qp *q, const struct sim_flow *f,
				struct sim_msg *m)
{
	uint64_t old;

	switch (m->opcode) {
	case IBV_WR_RDMA_READ:
		return do_read(q, m);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		old = result_kept(f, m->num);
		memcpy(m->data, &old, sizeof(old));
		return IBV_WC_SUCCESS;
	default:
		return IBV_WC_SUCCESS;
	}
}

/* --- answering --------------------------------------------------------- */

static void answer(struct sim_flow *f, struct sim_msg *m,
		   enum ibv_wc_status status)
{
	struct sim_nic *nic = m->to;
	const struct nic_model *model = &nic->net->model;
	uint64_t depart = m->served_at + model->reply;
	uint32_t qpn = m->src_qpn;

	/* A READ's bytes have only now been fetched. */
	if (m->opcode == IBV_WR_RDMA_READ && m->len) {
		depart = sim_now(nic->net->w);
		m->tail = depart + sim_pcie_ns(nic, m->len);
		depart += sim_pcie_ns(nic, sim_first(nic, m->len));
	}
	if (depart < f->answered_at)
		depart = f->answered_at;
	f->answered_at = depart;
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

/* The requester learns of the error, and the responder's QP breaks. A DCT
 * serves other requesters too, so it does not break. */
static void refuse(struct sim_qp *q, struct sim_flow *f, struct sim_msg *m,
		   enum ibv_wc_status status)
{
	enum ibv_event_type type = status == IBV_WC_REM_ACCESS_ERR
					   ? IBV_EVENT_QP_ACCESS_ERR
					   : IBV_EVENT_QP_REQ_ERR;

	answer(f, m, status);
	if (q->kind == SIM_DCT)
		return;
	if (status != IBV_WC_REM_OP_ERR)
		sim_async(q->d, type, &q->ex.qp_base);
	sim_qp_to_err(q);
}

/* --- taking ------------------------------------------------------------ */

static bool receives(const struct sim_qp *q)
{
	switch (q->ex.qp_base.state) {
	case IBV_QPS_RTR:
	case IBV_QPS_RTS:
	case IBV_QPS_SQD:
	case IBV_QPS_SQE:
		return true;
	default:
		return false;
	}
}

static bool is_for(const struct sim_qp *q, const struct sim_msg *m)
{
	bool peer;

	if (!q || !receives(q))
		return false;
	peer = q->far == m->from && q->attr.dest_qp_num == m->src_qpn;
	switch (m->kind) {
	case SIM_RC:
		return q->kind == SIM_RC && peer && q->attr.rq_psn == m->base;
	case SIM_UC:
		return q->kind == SIM_UC && peer;
	case SIM_UD:
		return q->kind == SIM_UD && q->attr.qkey == m->key;
	default:
		return q->kind == SIM_DCT;
	}
}

static void established(struct sim_qp *q)
{
	if (!q->met && q->ex.qp_base.state == IBV_QPS_RTR &&
	    (q->kind == SIM_RC || q->kind == SIM_UC))
		sim_async(q->d, IBV_EVENT_COMM_EST, &q->ex.qp_base);
	q->met = true;
}

static bool no_receive(struct sim_qp *q, const struct sim_msg *m)
{
	return wants_receive(m) && sim_recvq_empty(sim_recvq_of(q));
}

/* A message that cannot be taken is dropped; only a receive with wrong pieces
 * breaks the QP. */
static void unreliable_take(struct sim_qp *q, struct sim_msg *m)
{
	established(q);
	if (!no_receive(q, m) && carry_out(q, NULL, m) == IBV_WC_REM_OP_ERR)
		sim_qp_to_err(q);
	sim_msg_free(m->to->net, m);
}

static void reliable_take(struct sim_qp *q, struct sim_flow *f,
			  struct sim_msg *m)
{
	int32_t ahead = (int32_t)(m->num - f->expect);
	enum ibv_wc_status status;

	if (ahead > 0) {
		sim_msg_free(m->to->net, m);
		return;
	}
	if (ahead < 0) {
		answer(f, m, again(q, f, m));
		return;
	}
	/* The DCT goes on; this connection of a DCI to it is over. */
	if (f->broken) {
		sim_msg_free(m->to->net, m);
		return;
	}
	established(q);
	if (q->kind == SIM_DCT && q->dc_key != m->key) {
		refuse(q, f, m, IBV_WC_REM_ACCESS_ERR);
		return;
	}
	if (no_receive(q, m)) {
		m->rnr = true;
		q->d->nic->rnr_naks++;
		m->rnr_timer = q->attr.min_rnr_timer;
		answer(f, m, IBV_WC_SUCCESS);
		return;
	}
	status = carry_out(q, f, m);
	f->expect++;
	f->broken = q->kind == SIM_DCT && status != IBV_WC_SUCCESS;
	if (status == IBV_WC_SUCCESS)
		answer(f, m, status);
	else
		refuse(q, f, m, status);
}

/* NULL: nobody keeps count, or an old message. */
static struct sim_flow *flow_of(struct sim_qp *q, const struct sim_msg *m)
{
	if (q->kind == SIM_DCT)
		return sim_dct_flow(q, m);
	return q->kind == SIM_UD ? NULL : &q->flow;
}

/* Moves one piece, but not the last, of a request that moves in pieces. False:
 * the caller takes the whole request, or the rest of it. */
static bool lands_in_part(struct sim_qp *q, struct sim_flow *f,
			  struct sim_msg *m)
{
	bool due = m->num == f->expect && !no_receive(q, m) &&
		   !(q->kind == SIM_DCT && q->dc_key != m->key);

	if (m->pieces && !due)
		m->pieces = 0; /* it is refused, or comes twice */
	if (m->piece + 1 >= m->pieces)
		return false;
	if (m->opcode == IBV_WR_RDMA_READ) {
		if (do_read(q, m) != IBV_WC_SUCCESS)
			return false;
	} else {
		if (sim_mr_remote(q, m->rkey, m->raddr, m->len,
				  IBV_ACCESS_REMOTE_WRITE) != IBV_WC_SUCCESS)
			return false;
		sim_check_carried(q, m);
		sim_tear_move(m, sim_ptr(m->raddr), m->data);
		sim_notify(q->d->proc);
	}
	m->piece++;
	sim_at(m->to->net->w, &m->ev, sim_now(m->to->net->w) + m->tear_gap);
	return true;
}

static void request_lands(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_qp *q = sim_qp_find(m->to, m->dst_qpn);
	struct sim_flow *f;

	if (!is_for(q, m)) {
		sim_msg_free(m->to->net, m);
		return;
	}
	f = flow_of(q, m);
	if (m->pieces && f && lands_in_part(q, f, m))
		return;
	if (sim_unreliable(q))
		unreliable_take(q, m);
	else if (f)
		reliable_take(q, f, m);
	else
		sim_msg_free(m->to->net, m);
}

/* The time for cache misses of the QP, the SRQ and the memory. */
static uint64_t lookups(struct sim_nic *nic, const struct sim_qp *q,
			const struct sim_msg *m)
{
	uint64_t ns = sim_nic_ctx(nic, m->dst_qpn);

	if (q && q->srq && wants_receive(m))
		ns += sim_nic_ctx(nic, SIM_CTX_SRQ | q->srq->num);
	if (m->opcode != IBV_WR_SEND && m->opcode != IBV_WR_SEND_WITH_IMM)
		ns += sim_nic_mtt(nic, m->rkey, m->raddr, m->len);
	return ns;
}

void sim_request_arrives(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_qp *q = sim_qp_find(m->to, m->dst_qpn);
	struct sim_flow *f = is_for(q, m) ? flow_of(q, m) : NULL;
	struct sim_nic *nic = m->to;
	const struct nic_model *model = &nic->net->model;
	uint64_t ns = model->rx + lookups(nic, q, m), at;

	nic->rx_msgs++;
	if (m->kind == SIM_DCI)
		ns += model->dc_rx;
	m->served_at = sim_nic_work(nic, sim_now(nic->net->w), ns);
	at = m->served_at;
	if (m->opcode == IBV_WR_RDMA_READ)
		at += model->dma_read;
	else
		at += model->dma_write +
		      sim_pcie_ns(nic, sim_first(nic, m->len));
	if (f) {
		/* In order, and a READ behind the WRITEs before it. */
		if (at < f->landed_at)
			at = f->landed_at;
		f->landed_at = at + sim_tear_plan(m);
	}
	ev->fn = request_lands;
	sim_at(nic->net->w, ev, at);
}
