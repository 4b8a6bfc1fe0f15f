/* SPDX-License-Identifier: MIT */
/*
 * send.c - the requester's NIC: work requests become messages, answers become
 * completions; what is lost is sent again, from the oldest on.
 *
 * Requests are numbered by their place in the send queue. The responder takes
 * them in that order; an answer speaks for all before it, but for READs and
 * atomics, whose answers carry data: one of them passed over was lost.
 */
#include "dev/sim/sim_dev.h"

#include "dev/states.h"

#include <string.h>

static struct sim_wqe *wqe(struct sim_qp *q, uint32_t pos)
{
	return &q->sq[pos & (q->sq_cap - 1)];
}

static bool is_read(const struct sim_wqe *e)
{
	return e->opcode == IBV_WR_RDMA_READ ||
	       e->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       e->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* --- completions ------------------------------------------------------- */

void sim_send_completes(struct sim_qp *q, enum ibv_wc_status status)
{
	struct sim_wqe *e = wqe(q, q->sq_head);
	struct sim_cqe c = {
		.wc = {.wr_id = e->wr_id,
		       .status = status,
		       .opcode = dev_wc_opcode[e->opcode],
		       .byte_len = is_read(e) ? e->len : 0,
		       .qp_num = q->ex.qp_base.qp_num},
		.send = true,
	};

	c.freed = ++q->sq_head;
	if (status != IBV_WC_SUCCESS || e->flags & IBV_SEND_SIGNALED)
		sim_cq_push(sim_cq_of(q->init.send_cq), &c, false);
}

void sim_flush_send(struct sim_qp *q)
{
	while (q->sq_head != q->sq_tail)
		sim_send_completes(q, IBV_WC_WR_FLUSH_ERR);
	q->sq_next = q->sq_tail;
	q->reads = 0;
}

/* The oldest request fails, and with it the QP. */
static void fail(struct sim_qp *q, enum ibv_wc_status status)
{
	sim_send_completes(q, status);
	sim_qp_to_err(q);
}

/* --- sending ----------------------------------------------------------- */

static void timer_set(struct sim_qp *q, uint64_t from)
{
	uint64_t ns = 4096ull << q->attr.timeout;

	if (q->attr.timeout && !q->timer.pos)
		sim_at(q->d->w, &q->timer, from + ns);
}

static struct sim_msg *request_new(struct sim_qp *q, const struct sim_wqe *e)
{
	bool empty = e->opcode == IBV_WR_RDMA_READ;
	struct sim_msg *m =
		sim_msg_new(q->d->nic->net, empty || is_read(e) ? 8 : e->len);

	m->len = e->len;
	m->from = q->d->nic;
	m->to = q->far;
	m->src_qpn = q->ex.qp_base.qp_num;
	m->dst_qpn = q->attr.dest_qp_num;
	m->src_epoch = q->epoch;
	m->opcode = e->opcode;
	m->flags = e->flags;
	m->num = q->sq_next;
	m->imm = e->imm;
	m->rkey = e->rkey;
	m->raddr = e->raddr;
	m->compare_add = e->compare_add;
	m->swap = e->swap;
	return m;
}

static enum ibv_wc_status local_check(struct sim_qp *q, const struct sim_wqe *e)
{
	bool atomic = is_read(e) && e->opcode != IBV_WR_RDMA_READ;

	if (e->len > SIM_MSG_MAX || (atomic && e->len != 8))
		return IBV_WC_LOC_LEN_ERR;
	for (int i = 0; is_read(e) && i < e->num_sge; i++)
		if (!sim_mr_local(q, &e->sge[i], IBV_ACCESS_LOCAL_WRITE))
			return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

/* A unit takes the request: false when a piece of it is not ours to read. */
static bool transmit(struct sim_qp *q, struct sim_wqe *e)
{
	struct sim_nic *nic = q->d->nic;
	const struct nic_model *model = &nic->net->model;
	uint64_t ns = model->tx + sim_nic_ctx(nic, q->ex.qp_base.qp_num);
	uint64_t now = sim_now(q->d->w), depart;
	struct sim_msg *m = request_new(q, e);

	if (e->flags & IBV_SEND_INLINE) {
		memcpy(m->data, e->data, e->len);
	} else if (!is_read(e)) {
		if (!sim_gather(q, e->sge, e->num_sge, m->data)) {
			sim_msg_free(nic->net, m);
			return false;
		}
		for (int i = 0; i < e->num_sge; i++)
			ns += sim_nic_mtt(nic, e->sge[i].lkey, e->sge[i].addr,
					  e->sge[i].length);
	}
	q->tx_free = sim_nic_work(nic, now, ns);
	depart = q->tx_free;
	if (!(e->flags & IBV_SEND_INLINE) && !is_read(e) && e->len)
		depart += model->dma_read + sim_pcie_ns(nic, e->len);
	e->sent_at = depart;
	sim_net_send(m, depart, sim_request_arrives);
	return true;
}

void sim_qp_tx(struct sim_event *ev)
{
	struct sim_qp *q = container_of(ev, struct sim_qp, tx_ev);
	enum ibv_wc_status status;
	struct sim_wqe *e;

	if (q->ex.qp_base.state != IBV_QPS_RTS || q->rnr_wait ||
	    q->sq_next == q->sq_tail)
		return;
	if (q->tx_free > sim_now(q->d->w)) {
		sim_at(q->d->w, ev, q->tx_free);
		return;
	}
	e = wqe(q, q->sq_next);
	/* An answer goes on from here. */
	if ((is_read(e) && q->reads >= q->attr.max_rd_atomic) ||
	    (e->flags & IBV_SEND_FENCE && q->reads))
		return;
	status = local_check(q, e);
	if (status == IBV_WC_SUCCESS && !transmit(q, e))
		status = IBV_WC_LOC_PROT_ERR;
	if (status != IBV_WC_SUCCESS) {
		/* In its turn: those before it have their answers first. */
		if (q->sq_head == q->sq_next)
			fail(q, status);
		return;
	}
	q->reads += is_read(e);
	q->sq_next++;
	timer_set(q, e->sent_at);
	if (q->sq_next != q->sq_tail)
		sim_at(q->d->w, ev, q->tx_free);
}

static void go_on(struct sim_qp *q)
{
	if (q->sq_next != q->sq_tail && !q->tx_ev.pos && !q->rnr_wait)
		sim_at(q->d->w, &q->tx_ev, sim_now(q->d->w));
	else if (q->sq_head == q->sq_tail && q->ex.qp_base.state == IBV_QPS_SQD)
		sim_async(q->d, IBV_EVENT_SQ_DRAINED, q, NULL);
}

/* All from pos on is sent again. */
static void go_back(struct sim_qp *q, uint32_t pos)
{
	for (uint32_t i = pos; i != q->sq_next; i++)
		q->reads -= is_read(wqe(q, i));
	q->sq_next = pos;
}

void sim_qp_timer(struct sim_event *ev)
{
	struct sim_qp *q = container_of(ev, struct sim_qp, timer);
	uint64_t due;

	if (q->rnr_wait) {
		q->rnr_wait = false;
		go_on(q);
		return;
	}
	if (q->sq_head == q->sq_next)
		return;
	due = wqe(q, q->sq_head)->sent_at + (4096ull << q->attr.timeout);
	if (due > sim_now(q->d->w)) {
		sim_at(q->d->w, ev, due);
		return;
	}
	if (!q->retries) {
		fail(q, IBV_WC_RETRY_EXC_ERR);
		return;
	}
	q->retries--;
	go_back(q, q->sq_head);
	go_on(q);
}

/* --- answers ----------------------------------------------------------- */

static void come_again(struct sim_qp *q, const struct sim_msg *m)
{
	if (q->attr.rnr_retry != 7 && !q->rnr_retries) {
		fail(q, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (q->attr.rnr_retry != 7)
		q->rnr_retries--;
	go_back(q, m->num);
	q->rnr_wait = true;
	sim_cancel(q->d->w, &q->tx_ev);
	sim_at(q->d->w, &q->timer, sim_now(q->d->w) + dev_rnr_ns(m->rnr_timer));
}

/* Those before pos are done with; false when an answer among them was lost. */
static bool complete_before(struct sim_qp *q, uint32_t pos)
{
	while (q->sq_head != pos) {
		if (is_read(wqe(q, q->sq_head)))
			return false;
		sim_send_completes(q, IBV_WC_SUCCESS);
	}
	return true;
}

static void answer_take(struct sim_qp *q, struct sim_msg *m)
{
	struct sim_wqe *e = wqe(q, m->num);
	enum ibv_wc_status status = (enum ibv_wc_status)m->status;

	/* Not among those under way: it was answered before. */
	if (m->num - q->sq_head >= q->sq_next - q->sq_head)
		return;
	if (!complete_before(q, m->num)) {
		go_back(q, q->sq_head);
		go_on(q);
		return;
	}
	if (m->rnr) {
		come_again(q, m);
		return;
	}
	q->retries = q->attr.retry_cnt;
	q->rnr_retries = q->attr.rnr_retry;
	if (is_read(e)) {
		q->reads--;
		if (status == IBV_WC_SUCCESS &&
		    !sim_scatter(q, e->sge, e->num_sge, m->data, e->len))
			status = IBV_WC_LOC_PROT_ERR;
	}
	if (status == IBV_WC_SUCCESS) {
		sim_send_completes(q, status);
		go_on(q);
	} else {
		fail(q, status);
	}
}

static void answer_lands(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_qp *q = sim_qp_find(m->to, m->dst_qpn);

	if (q && q->epoch == m->src_epoch &&
	    (q->ex.qp_base.state == IBV_QPS_RTS ||
	     q->ex.qp_base.state == IBV_QPS_SQD))
		answer_take(q, m);
	sim_msg_free(m->to->net, m);
}

void sim_answer_arrives(struct sim_event *ev)
{
	struct sim_msg *m = container_of(ev, struct sim_msg, ev);
	struct sim_qp *q = sim_qp_find(m->to, m->dst_qpn);
	struct sim_nic *nic = m->to;
	const struct nic_model *model = &nic->net->model;
	uint64_t at;

	at = sim_nic_work(nic, sim_now(nic->net->w),
			  model->reply + sim_nic_ctx(nic, m->dst_qpn)) +
	     model->dma_write;
	if (m->opcode == IBV_WR_RDMA_READ)
		at += sim_pcie_ns(nic, m->len);
	if (q) {
		if (at < q->came_at)
			at = q->came_at;
		q->came_at = at;
	}
	ev->fn = answer_lands;
	sim_at(nic->net->w, ev, at);
}
