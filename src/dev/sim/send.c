/* SPDX-License-Identifier: MIT */
/*
 * send.c - the requester's NIC: work requests become messages, answers become
 * completions. After a loss it sends again, from the oldest unanswered request
 * on.
 *
 * Requests are numbered by their place in the send queue. The responder takes
 * them in that order. An answer acknowledges all requests before it except
 * READs and atomics, because their answers carry data: if a later request is
 * answered first, their own answer was lost. On UC and UD there are no answers:
 * a request is over when it has left.
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

/* From when a unit had done with it to now. */
static void trace_request(const struct sim_qp *q, const struct sim_wqe *e)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE with immediate",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND with immediate",
		[IBV_WR_RDMA_READ] = "READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "compare-and-swap",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "fetch-and-add"};
	struct sim_span span = {.name = names[e->opcode],
				.node = q->d->nic->id,
				.track = SIM_TRACK_REQUESTS,
				.begin = e->sent_at,
				.end = sim_now(q->d->w)};

	span.id = (uint64_t)q->ex.qp_base.qp_num << 32 | (q->sq_head + 1);
	if (e->sent_at)
		sim_trace(q->d->w, &span);
}

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

	if (sim_tracing(q->d->w))
		trace_request(q, e);
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

/* The oldest request fails, and the QP with it; an unreliable QP still
 * receives. */
static void fail(struct sim_qp *q, enum ibv_wc_status status)
{
	sim_send_completes(q, status);
	if (!sim_unreliable(q)) {
		sim_qp_to_err(q);
		return;
	}
	if (q->ex.qp_base.state == IBV_QPS_ERR)
		return; /* the CQ had no place for it, and broke the QP */
	q->ex.qp_base.state = IBV_QPS_SQE;
	sim_cancel(q->d->w, &q->tx_ev);
	sim_cancel(q->d->w, &q->timer);
	sim_flush_send(q);
}

/* --- sending ----------------------------------------------------------- */

static void timer_set(struct sim_qp *q, uint64_t from)
{
	uint64_t ns = 4096ull << q->attr.timeout;

	if (q->attr.timeout && !q->timer.pos)
		sim_at(q->d->w, &q->timer, from + ns);
}

static void address(const struct sim_qp *q, const struct sim_wqe *e,
		    struct sim_msg *m)
{
	switch (q->kind) {
	case SIM_UD:
		m->to = e->dest->to;
		m->dst_qpn = e->dest->qpn;
		m->key = e->dest->qkey;
		break;
	case SIM_DCI:
		m->to = e->dest->to;
		m->dst_qpn = e->dest->qpn;
		m->key = e->dest->dc_key;
		m->base = q->dc_base;
		break;
	default:
		m->to = q->far;
		m->dst_qpn = q->attr.dest_qp_num;
		m->base = q->attr.sq_psn;
		break;
	}
}

static bool is_hollow(const struct sim_qp *q, const struct sim_wqe *e)
{
	uint32_t from = q->d->nic->net->hollow_from;

	return from && e->len >= from && q->kind != SIM_UD &&
	       !(e->flags & IBV_SEND_INLINE);
}

static struct sim_msg *request_new(struct sim_qp *q, const struct sim_wqe *e)
{
	bool hollow = is_hollow(q, e);
	uint32_t room = is_read(e) || hollow ? 8 : e->len;
	struct sim_msg *m = sim_msg_new(
		q->d->nic->net, q->kind == SIM_UD ? room + DEV_GRH : room);

	m->hollow = hollow;
	m->len = e->len;
	m->from = q->d->nic;
	m->kind = (uint8_t)q->kind;
	address(q, e, m);
	m->src_qpn = q->ex.qp_base.qp_num;
	m->src_epoch = q->epoch;
	m->opcode = e->opcode;
	m->flags = e->flags;
	m->num = q->sq_next;
	m->imm = e->imm;
	m->rkey = e->rkey;
	m->raddr = e->raddr;
	m->compare_add = e->compare_add;
	m->sum = hollow ? 0 : e->sum;
	m->swap = e->swap;
	return m;
}

static enum ibv_wc_status local_check(struct sim_qp *q, const struct sim_wqe *e)
{
	bool atomic = is_read(e) && e->opcode != IBV_WR_RDMA_READ;

	if (e->len > SIM_MSG_MAX || (atomic && e->len != 8))
		return IBV_WC_LOC_LEN_ERR;
	if (q->kind == SIM_UD && !e->dest->to)
		return IBV_WC_LOC_QP_OP_ERR; /* an AH of another PD */
	for (int i = 0; is_read(e) && i < e->num_sge; i++)
		if (!sim_mr_local(q, &e->sge[i], IBV_ACCESS_LOCAL_WRITE))
			return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

/* Copies the request's bytes into the message. False: the QP may not read a
 * piece. Adds the time for cache misses of the memory. */
static bool load(struct sim_qp *q, struct sim_wqe *e, struct sim_msg *m,
		 uint64_t *ns)
{
	unsigned char *to = m->data;

	if (q->kind == SIM_UD) {
		dev_grh_fill(&e->dest->grh, e->len,
			     e->opcode == IBV_WR_SEND_WITH_IMM, to);
		to += DEV_GRH;
	}
	if (e->flags & IBV_SEND_INLINE) {
		memcpy(to, e->data, e->len);
		return true;
	}
	if (is_read(e))
		return true;
	for (int i = 0; i < e->num_sge; i++)
		*ns += sim_nic_mtt(q->d->nic, e->sge[i].lkey, e->sge[i].addr,
				   e->sge[i].length);
	return sim_gather(q, e->sge, e->num_sge, m->hollow ? NULL : to);
}

/* QPs with requests that wait for an answer. */
static uint32_t busy_qps(const struct sim_nic *nic)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nic->qps_cap; i++)
		n += nic->qps[i] &&
		     nic->qps[i]->sq_head != nic->qps[i]->sq_next;
	return n;
}

/* When a request that is ready at `from` goes out. */
static uint64_t goes_out(struct sim_nic *nic, uint64_t from)
{
	const struct nic_model *model = &nic->net->model;
	uint64_t gap = model->out_gap;
	uint32_t busy;

	if (!gap)
		return from;
	busy = model->out_more ? busy_qps(nic) : 0;
	if (busy > model->out_qps)
		gap += (uint64_t)model->out_more * (busy - model->out_qps);
	if (from < nic->out_at)
		from = nic->out_at;
	nic->out_at = from + gap;
	return from;
}

/* A unit takes the request. */
static enum ibv_wc_status transmit(struct sim_qp *q, struct sim_wqe *e)
{
	struct sim_nic *nic = q->d->nic;
	const struct nic_model *model = &nic->net->model;
	uint64_t ns = model->tx + sim_nic_ctx(nic, q->ex.qp_base.qp_num);
	struct sim_msg *m = request_new(q, e);
	uint64_t depart;

	if (!load(q, e, m, &ns)) {
		sim_msg_free(nic->net, m);
		return IBV_WC_LOC_PROT_ERR;
	}
	if (q->kind == SIM_DCI)
		ns += model->dc_tx;
	q->tx_free = sim_nic_work(nic, sim_now(q->d->w), ns);
	depart = goes_out(nic, q->tx_free);
	if (!(e->flags & IBV_SEND_INLINE) && !is_read(e) && e->len) {
		depart += model->dma_read;
		m->tail = depart + sim_pcie_ns(nic, e->len);
		depart += sim_pcie_ns(nic, sim_first(nic, e->len));
	}
	e->sent_at = depart;
	/* C10-93.1.1: a datagram that does not fit is not sent. */
	if (q->kind == SIM_UD && e->len > sim_nic_mtu(nic))
		sim_msg_free(nic->net, m);
	else
		sim_net_send(m, depart, sim_request_arrives);
	return IBV_WC_SUCCESS;
}

static uint64_t gone_at(const struct sim_qp *q, const struct sim_wqe *e)
{
	return e->sent_at + q->d->nic->net->model.dma_write;
}

/* A request was begun: sets the timer at which the QP looks at it again. */
static void begun(struct sim_qp *q, const struct sim_wqe *e)
{
	if (!sim_unreliable(q))
		timer_set(q, e->sent_at);
	else if (!q->timer.pos)
		sim_at(q->d->w, &q->timer, gone_at(q, e));
}

/* Is there a request that may go out now? */
static bool may_send(struct sim_qp *q)
{
	const struct sim_wqe *e = wqe(q, q->sq_next);

	if (q->rnr_wait || q->halted || q->sq_next == q->sq_tail)
		return false;
	if (q->ex.qp_base.state == IBV_QPS_SQD) {
		/* What was begun comes to its end. */
		if (q->sq_next == q->sq_stop)
			return false;
	} else if (q->ex.qp_base.state != IBV_QPS_RTS) {
		return false;
	}
	/* An answer goes on from here. */
	return !(is_read(e) && q->reads >= q->attr.max_rd_atomic) &&
	       !(e->flags & IBV_SEND_FENCE && q->reads);
}

void sim_qp_tx(struct sim_event *ev)
{
	struct sim_qp *q = container_of(ev, struct sim_qp, tx_ev);
	enum ibv_wc_status status;
	struct sim_wqe *e;

	if (!may_send(q))
		return;
	if (q->tx_free > sim_now(q->d->w)) {
		sim_at(q->d->w, ev, q->tx_free);
		return;
	}
	e = wqe(q, q->sq_next);
	if (q->kind == SIM_DCI && !sim_dci_ready(q, e->dest))
		return;
	status = local_check(q, e);
	if (status == IBV_WC_SUCCESS)
		status = transmit(q, e);
	if (status != IBV_WC_SUCCESS) {
		/* An error completes in order: first the requests before this
		 * one get their answers. */
		if (q->sq_head == q->sq_next)
			fail(q, status);
		return;
	}
	q->reads += is_read(e);
	q->sq_next++;
	begun(q, e);
	if (q->sq_next != q->sq_tail)
		sim_at(q->d->w, ev, q->tx_free);
}

void sim_sqd_look(struct sim_qp *q)
{
	if (q->ex.qp_base.state != IBV_QPS_SQD || !q->sqd_notify ||
	    q->sq_head != q->sq_stop)
		return;
	q->sqd_notify = false;
	sim_async(q->d, IBV_EVENT_SQ_DRAINED, &q->ex.qp_base);
}

static void go_on(struct sim_qp *q)
{
	if (may_send(q) && !q->tx_ev.pos)
		sim_at(q->d->w, &q->tx_ev, sim_now(q->d->w));
	sim_sqd_look(q);
}

/* All from pos on is sent again. */
static void go_back(struct sim_qp *q, uint32_t pos)
{
	for (uint32_t i = pos; i != q->sq_next; i++)
		q->reads -= is_read(wqe(q, i));
	q->sq_next = pos;
}

/* Unreliable: what has left is over. */
static void left(struct sim_qp *q)
{
	while (q->sq_head != q->sq_next) {
		struct sim_wqe *e = wqe(q, q->sq_head);

		if (gone_at(q, e) > sim_now(q->d->w)) {
			sim_at(q->d->w, &q->timer, gone_at(q, e));
			break;
		}
		sim_send_completes(q, IBV_WC_SUCCESS);
	}
	go_on(q);
}

void sim_qp_timer(struct sim_event *ev)
{
	struct sim_qp *q = container_of(ev, struct sim_qp, timer);
	uint64_t due;

	if (sim_unreliable(q)) {
		left(q);
		return;
	}
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

/* Completes the requests before pos. False: the answer of one of them was
 * lost, or the CQ had no place for one, and broke the QP. */
static bool complete_before(struct sim_qp *q, uint32_t pos)
{
	while (q->sq_head != pos) {
		if (is_read(wqe(q, q->sq_head)))
			return false;
		sim_send_completes(q, IBV_WC_SUCCESS);
		if (q->ex.qp_base.state == IBV_QPS_ERR)
			return false;
	}
	return true;
}

static void answer_take(struct sim_qp *q, struct sim_msg *m)
{
	struct sim_wqe *e = wqe(q, m->num);
	enum ibv_wc_status status = (enum ibv_wc_status)m->status;

	/* The request is not under way any more: it was answered before. */
	if (m->num - q->sq_head >= q->sq_next - q->sq_head)
		return;
	if (!complete_before(q, m->num)) {
		if (q->ex.qp_base.state == IBV_QPS_ERR)
			return;
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
		sim_check_read_lands(q, e);
		if (status == IBV_WC_SUCCESS &&
		    !sim_scatter(q, e->sge, e->num_sge,
				 m->hollow ? NULL : m->data, e->len))
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
		at += sim_pcie_ns(nic, sim_first(nic, m->len));
	if (q) {
		if (at < q->came_at)
			at = q->came_at;
		q->came_at = at;
	}
	ev->fn = answer_lands;
	sim_at(nic->net->w, ev, at);
}
