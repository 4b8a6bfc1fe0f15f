/* SPDX-License-Identifier: MIT */
/*
 * run_sync.c - what comes of a program's steps, and at each SYNC the wait until
 * all that was posted is over.
 *
 * It waits by markers, not by time: a zero-byte request on each QP in RTS, a
 * receive and a request on each in ERR. The model is asked only whether what
 * has come is already a whole explanation; what never comes is a failure after
 * world.patience_ns.
 */
#include "run_inside.h"
#include "stage.h"

#include <errno.h>
#include <string.h>

enum {
	MARK_NONE,
	MARK_RTS,
	MARK_FULL, /* ERR was asked for to make room for its marker */
	MARK_ERR,  /* the receives' marker is posted */
	MARK_ERR_FULL,
	MARK_OVER
};

/* ---- completions ---- */

static void wc_take(struct run *r, int side, int cq, const struct ibv_wc *wc)
{
	int pair = id_pair(wc->wr_id);
	struct ev *e;

	if (pair == SRQ_PAIR)
		pair = srq_pair_of(&r->w->node[side], wc->qp_num);
	e = ev_new(r, EV_WC, pair < PAIRS ? pair : 0, side);

	e->cq = (uint8_t)cq;
	e->wc.id = wc->wr_id;
	e->wc.status = (int)wc->status;
	e->wc.opcode = (int)wc->opcode;
	e->wc.byte_len = wc->byte_len;
	e->wc.imm = wc->imm_data;
	e->wc.flags = wc->wc_flags;
	e->wc.qp_ok = pair < r->p->pairs &&
		      wc->qp_num == r->w->node[side].qp[pair]->qp_num;
	if (e->wc.qp_ok && r->p->cfg[pair].type == IBV_QPT_UD &&
	    id_recv(wc->wr_id) && wc->status == IBV_WC_SUCCESS)
		ud_came(r->w, r->p, wc, e);
	if ((uint32_t)wc->wr_id & ID_MARK && pair < PAIRS)
		r->awaited[pair][side]--;
	ev_show(r, e);
}

int poll_cq(struct run *r, int side, int cq, int max)
{
	struct ibv_wc wc[16];
	int n, i;

	n = ibv_poll_cq(r->w->node[side].cq[cq], max < 16 ? max : 16, wc);
	for (i = 0; i < n; i++)
		wc_take(r, side, cq, &wc[i]);
	return n;
}

void poll_all(struct run *r)
{
	int side, i;

	for (side = 0; side < 2; side++)
		for (i = 0; i < CQS; i++)
			while (poll_cq(r, side, i, 16) == 16)
				;
}

static void take_async(struct run *r, int side)
{
	struct ev e = {.kind = EV_ASYNC, .side = (uint8_t)side};

	while (srq_async(&r->w->node[side], &e)) {
		*ev_new(r, EV_ASYNC, e.pair, side) = e;
		ev_show(r, &e);
	}
}

/* The next event that the device does not know to be one too many. */
static bool next_event(struct node *n, struct ibv_cq **cq)
{
	uint32_t spares;

	do {
		spares = world_spares(n);
		if (n->dev->ops->get_cq_event(n->dev, n->ch, cq))
			return false;
		n->dev->ops->ack_cq_events(n->dev, *cq, 1);
	} while (world_spares(n) != spares);
	return true;
}

void take_events(struct run *r)
{
	struct ibv_cq *cq;
	struct node *n;
	struct ev *e;
	int side;

	for (side = 0; side < 2; side++) {
		n = &r->w->node[side];
		if (r->p->srq[side].on)
			take_async(r, side);
		while (next_event(n, &cq)) {
			e = ev_new(r, EV_EVENT, 0, side);
			while (n->cq[e->cq] != cq && e->cq < CQS - 1)
				e->cq++;
			ev_show(r, e);
		}
	}
}

/* ---- markers ---- */

/* A marker on the send queue; none while the queue is full. */
static bool mark_send(struct run *r, int pair, int side)
{
	bool write = r->p->cfg[pair].type == IBV_QPT_UC ||
		     r->p->cfg[pair].qp[!side].access & IBV_ACCESS_REMOTE_WRITE;
	struct ibv_send_wr wr = {
		.wr_id = id_make(pair, side, false, ID_MARK | r->marks),
		.opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED};
	struct step to = {.pair = (uint8_t)pair, .side = (uint8_t)side};
	struct wr mark = {.dest = (uint8_t)pair, .bad_qkey = true};
	struct ibv_send_wr *bad;
	struct ibv_sge sge;
	struct ev *e;
	int rc;

	/* rxe does not bear a READ of no bytes twice: docs/design/semantics.md */
	if (!write && r->w->quirks & M_QUIRK_RXE)
		world_peek(r->w, side, &sge, &wr);
	if (r->p->cfg[pair].type == IBV_QPT_UD) {
		wr.opcode = IBV_WR_SEND; /* that is dropped */
		ud_address(r->w, &to, &mark, &wr);
	}
	rc = ibv_post_send(r->w->node[side].qp[pair], &wr, &bad);
	if (rc == ENOMEM)
		return false;
	e = ev_new(r, EV_MARK_SEND, pair, side);
	e->id = wr.wr_id;
	e->n = !write;
	e->ret = rc;
	r->marks++;
	r->awaited[pair][side] += !rc;
	ev_show(r, e);
	return true;
}

static bool mark_recv(struct run *r, int pair, int side)
{
	struct ibv_recv_wr wr = {
		.wr_id = id_make(pair, side, true, ID_MARK | r->marks)};
	struct ibv_recv_wr *bad;
	struct ev *e;
	int rc;

	rc = ibv_post_recv(r->w->node[side].qp[pair], &wr, &bad);
	if (rc == ENOMEM)
		return false;
	e = ev_new(r, EV_MARK_RECV, pair, side);
	e->id = wr.wr_id;
	e->ret = rc;
	r->marks++;
	r->awaited[pair][side] += !rc;
	ev_show(r, e);
	return true;
}

/* What lies in the queues of a QP in ERR is flushed now: rxe does so when it is
 * told only (docs/design/semantics.md, section 4). */
static void again_err(struct run *r, int pair, int side)
{
	struct node *n = &r->w->node[side];
	struct ev *e = ev_new(r, EV_MARK_ERR, pair, side);

	e->ret = -bare_modify(n, n->qp[pair], IBV_QPS_ERR);
	ev_show(r, e);
}

static bool mark_err(struct run *r, int pair, int side)
{
	int *marked = &r->marked[pair][side];

	if (*marked < MARK_ERR) {
		if (!r->p->cfg[pair].qp[side].srq &&
		    !mark_recv(r, pair, side)) {
			if (*marked != MARK_FULL)
				again_err(r, pair, side);
			*marked = MARK_FULL;
			return false;
		}
		*marked = MARK_ERR;
	}
	if (!mark_send(r, pair, side)) {
		if (*marked != MARK_ERR_FULL)
			again_err(r, pair, side);
		*marked = MARK_ERR_FULL;
		return false;
	}
	again_err(r, pair, side);
	*marked = MARK_OVER;
	return true;
}

/* Is all of this QP over? Posts its markers when they are due. */
static bool qp_over(struct run *r, int pair, int side)
{
	bool draining = false;
	enum ibv_qp_state st = qp_state(r, pair, side, &draining);
	int *marked = &r->marked[pair][side];

	r->e->state[pair][side] = (int)st;
	switch (st) {
	case IBV_QPS_RTS:
		if (*marked == MARK_NONE && mark_send(r, pair, side))
			*marked = MARK_RTS;
		return *marked == MARK_RTS && !r->awaited[pair][side];
	case IBV_QPS_ERR:
		if (*marked < MARK_OVER && !mark_err(r, pair, side))
			return false;
		return *marked == MARK_OVER && !r->awaited[pair][side];
	case IBV_QPS_SQD:
		return !draining;
	default:
		return true;
	}
}

static bool all_over(struct run *r)
{
	bool over = true;
	int i, d;

	for (i = 0; i < r->p->pairs; i++)
		for (d = 0; d < 2; d++)
			over = qp_over(r, i, d) && over;
	return over;
}

/* What there is, and whether the model agrees. */
static bool agreed(struct run *r)
{
	int i, d;

	poll_all(r);
	take_events(r);
	for (i = 0; i < r->p->pairs; i++)
		for (d = 0; d < 2; d++)
			memcpy(r->e->mem[i][d], r->w->node[d].lane[i].mem,
			       LANE);
	for (d = 0; d < 2; d++)
		if (r->p->srq[d].on)
			memcpy(r->e->srq_mem[d],
			       r->w->node[d]
				       .lane[lane_of(r->p, SRQ_PAIR, d)]
				       .mem,
			       LANE);
	for (i = 0; i < r->p->pairs; i++)
		for (d = 0; d < 2; d++)
			r->e->qpn[i][d] = r->w->node[d].qp[i]->qp_num;
	return check_epoch(&r->check, r->e);
}

/* Where QPs broke, requests may still be under way: once, they are awaited. A
 * UC message may be, too, when its request has completed; whether an SRQ had a
 * receive for it the model does not know, and takes it for lost. */
static bool swept(struct run *r)
{
	int i, d;
	bool broken = false;

	for (i = 0; i < r->p->pairs; i++)
		for (d = 0; d < 2; d++)
			broken |= r->e->state[i][d] == IBV_QPS_ERR ||
				  r->e->shut[i][d] ||
				  (r->p->cfg[i].type == IBV_QPT_UC &&
				   r->p->cfg[i].qp[d].srq);
	if (broken && !r->swept)
		r->swept = !world_sweep(r->w);
	return !broken || r->swept;
}

/* Is all over, and does the model agree? took: how long it was asked for. While
 * something is missing it looks at all orders there are: seconds, at times. */
static bool done(struct run *r, uint64_t *took)
{
	uint64_t begun;
	bool ok;

	*took = 0;
	if (!all_over(r) || r->over || !swept(r))
		return false;
	begun = env_now_ns(r->w->env);
	ok = agreed(r);
	*took = env_now_ns(r->w->env) - begun;
	return ok;
}

#define NAP_MAX 10000000ull
#define NAP_LONG 500000000ull

bool sync_up(struct run *r)
{
	uint64_t end = env_now_ns(r->w->env) + r->w->patience_ns, nap = 1000;
	uint64_t took;

	r->check.thorough = false;
	memset(r->marked, 0, sizeof(r->marked));
	memset(r->awaited, 0, sizeof(r->awaited));
	r->swept = false;
	for (;;) {
		poll_all(r);
		take_events(r);
		if (done(r, &took))
			return true;
		end += took;
		if (env_now_ns(r->w->env) > end || r->over)
			break;
		/* A thread that polls all the time takes the core from the
		 * threads that it waits for, and timers are late by
		 * milliseconds in any case. */
		if (took > nap)
			nap = took < NAP_LONG ? took : NAP_LONG;
		stage_sleep(nap);
		nap = nap < NAP_MAX ? nap * 2 : NAP_MAX;
	}
	r->check.thorough = true;
	if (r->over)
		snprintf(r->check.why, sizeof(r->check.why), "too many events");
	else if (done(r, &took))
		return true;
	else if (agreed(r))
		snprintf(r->check.why, sizeof(r->check.why),
			 "the program waits for ever, and rightly so");
	return false;
}
