/* SPDX-License-Identifier: MIT */
/*
 * run.c - the runner: the steps of a program as calls. run_sync.c waits, at each
 * SYNC, until all that was posted is over.
 */
#include "run_inside.h"
#include "stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ev *ev_new(struct run *r, int kind, int pair, int side)
{
	struct ev *e;

	if (r->e->n == EPOCH_EVENTS) {
		r->over = true;
		r->e->n--;
	}
	e = &r->e->ev[r->e->n++];
	*e = (struct ev){.kind = (uint8_t)kind,
			 .pair = (uint8_t)pair,
			 .side = (uint8_t)side};
	return e;
}

void ev_show(struct run *r, const struct ev *e)
{
	if (r->print)
		ev_print(e, r->print);
}

/* ---- requests ---- */

static struct ibv_sge sge_of(struct run *r, int pair, int side,
			     const struct piece *g)
{
	struct lane *l = &r->w->node[side].lane[lane_of(r->p, pair, side)];

	return (struct ibv_sge){.addr = (uintptr_t)l->mem + g->at,
				.length = g->len,
				.lkey = l->mr[g->mr]->lkey ^
					(g->bad ? 0x00ffff00u : 0)};
}

static void send_of(struct run *r, const struct step *s, int k,
		    struct ibv_sge *sge, struct ibv_send_wr *out)
{
	const struct wr *w = &s->wr[k];
	struct lane *far = &r->w->node[!s->side].lane[s->pair];
	uint32_t rkey =
		lane_rkey(far, w->to.mr) ^ (w->to.bad ? 0x00ffff00u : 0);
	uint64_t addr = (uintptr_t)far->mem + w->to.at;
	int i;

	for (i = 0; i < w->n; i++)
		sge[i] = sge_of(r, s->pair, s->side, &w->sge[i]);
	memset(out, 0, sizeof(*out));
	out->wr_id = id_make(s->pair, s->side, false, id_no(r->p, s, k));
	out->sg_list = sge;
	out->num_sge = w->n;
	out->opcode = (enum ibv_wr_opcode)w->op;
	out->send_flags = w->flags;
	out->imm_data = w->imm;
	if (r->p->cfg[s->pair].type == IBV_QPT_UD) {
		ud_address(r->w, s, w, out);
	} else if (op_is_atomic(w->op)) {
		out->wr.atomic.remote_addr = addr;
		out->wr.atomic.rkey = rkey;
		out->wr.atomic.compare_add = w->a;
		out->wr.atomic.swap = w->b;
	} else if (!op_is_send(w->op)) {
		out->wr.rdma.remote_addr = addr;
		out->wr.rdma.rkey = rkey;
	}
}

/* Inline bytes belong to the program again: it overwrites them. */
static void scribble(struct run *r, const struct step *s)
{
	uint8_t *mem = r->w->node[s->side].lane[s->pair].mem;
	const struct wr *w;
	uint32_t k;
	int i;

	for (w = s->wr; w < s->wr + s->n; w++)
		for (i = 0; w->flags & IBV_SEND_INLINE && i < w->n; i++)
			for (k = 0; k < w->sge[i].len; k++)
				mem[w->sge[i].at + k] ^= 0xff;
}

static void do_send(struct run *r, const struct step *s, struct ev *e)
{
	struct ibv_sge sge[LIST][SGES + 1];
	struct ibv_send_wr wr[LIST], *bad = NULL;
	int i;

	for (i = 0; i < s->n; i++) {
		send_of(r, s, i, sge[i], &wr[i]);
		wr[i].next = i + 1 < s->n ? &wr[i + 1] : NULL;
	}
	if (r->p->cfg[s->pair].type == IBV_QPT_UD)
		ud_record(r->w, r->p, s, r->e);
	e->ret = ibv_post_send(r->w->node[s->side].qp[s->pair], wr, &bad);
	/* rxe refuses none of them by name, and keeps them: RXE_GHOST */
	e->n = e->ret && bad ? (int)(bad - wr) : s->n;
	scribble(r, s);
}

static void do_recv(struct run *r, const struct step *s, struct ev *e)
{
	struct ibv_sge sge[LIST][SGES + 1];
	struct ibv_recv_wr wr[LIST], *bad = NULL;
	int i, k;

	for (i = 0; i < s->n; i++) {
		for (k = 0; k < s->wr[i].n; k++)
			sge[i][k] =
				sge_of(r, s->pair, s->side, &s->wr[i].sge[k]);
		wr[i] = (struct ibv_recv_wr){
			.wr_id = id_make(s->pair, s->side, true,
					 id_no(r->p, s, i)),
			.next = i + 1 < s->n ? &wr[i + 1] : NULL,
			.sg_list = sge[i],
			.num_sge = s->wr[i].n};
	}
	if (s->kind == STEP_SRQ_RECV)
		e->ret = ibv_post_srq_recv(r->w->node[s->side].srq, wr, &bad);
	else
		e->ret = ibv_post_recv(r->w->node[s->side].qp[s->pair], wr,
				       &bad);
	e->n = !e->ret ? s->n : bad ? (int)(bad - wr) : 0;
}

/* ---- states ---- */

enum ibv_qp_state qp_state(struct run *r, int pair, int side, bool *draining)
{
	struct node *n = &r->w->node[side];
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;

	if (n->dev->ops->query_qp(n->dev, n->qp[pair], &attr, IBV_QP_STATE,
				  &init))
		return (enum ibv_qp_state)7;
	*draining = attr.sq_draining;
	return attr.qp_state;
}

int bare_modify(struct node *n, struct ibv_qp *qp, int state)
{
	struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)state};

	return n->dev->ops->modify_qp(n->dev, qp, &attr, IBV_QP_STATE);
}

static int to_rtr(struct run *r, int pair, int side)
{
	struct node *n = &r->w->node[side], *far = &r->w->node[!side];

	return dev_qp_rtr(n->dev, n->qp[pair], &far->addr[pair], &r->w->opts);
}

static int to_rts(struct run *r, int pair, int side)
{
	struct node *n = &r->w->node[side], *far = &r->w->node[!side];
	struct dev_qp_opts opts = r->w->opts;

	opts.rnr_retry = r->p->cfg[pair].rnr_retry;
	return dev_qp_rts(n->dev, n->qp[pair], n->addr[pair].psn,
			  &far->addr[pair], &opts);
}

static int do_state(struct run *r, const struct step *s)
{
	struct node *n = &r->w->node[s->side];
	struct ibv_qp *qp = n->qp[s->pair];
	bool draining;

	switch (s->arg) {
	case IBV_QPS_INIT:
		return dev_qp_init(n->dev, qp,
				   r->p->cfg[s->pair].qp[s->side].access);
	case IBV_QPS_RTR:
		return to_rtr(r, s->pair, s->side);
	case IBV_QPS_RTS:
		if (qp_state(r, s->pair, s->side, &draining) == IBV_QPS_RTR)
			return to_rts(r, s->pair, s->side);
		return bare_modify(n, qp, IBV_QPS_RTS);
	default:
		return bare_modify(n, qp, s->arg);
	}
}

/* After ERR or RESET: what the lane holds, once for all of the epoch. */
static void shut(struct run *r, const struct step *s)
{
	bool *done = &r->e->shut[s->pair][s->side];

	if ((s->arg != IBV_QPS_ERR && s->arg != IBV_QPS_RESET) || *done)
		return;
	*done = true;
	memcpy(r->e->then[s->pair][s->side],
	       r->w->node[s->side].lane[s->pair].mem + REM_AT, LANE - REM_AT);
}

static int ud_connect(struct run *r, int pair)
{
	struct node *n;
	int d, rc = 0;

	for (d = 0; d < 2 && !rc; d++) {
		n = &r->w->node[d];
		rc = bare_modify(n, n->qp[pair], IBV_QPS_RESET);
		if (!rc)
			rc = dev_qp_ud(n->dev, n->qp[pair], UD_QKEY, 1);
	}
	return rc;
}

static int do_connect(struct run *r, const struct step *s)
{
	int d, rc = 0, i = s->pair;

	if (r->p->cfg[i].type == IBV_QPT_UD)
		return ud_connect(r, i);

	for (d = 0; d < 2 && !rc; d++)
		rc = bare_modify(&r->w->node[d], r->w->node[d].qp[i],
				 IBV_QPS_RESET);
	for (d = 0; d < 2 && !rc; d++) {
		struct node *n = &r->w->node[d];

		rc = dev_qp_init(n->dev, n->qp[i], r->p->cfg[i].qp[d].access);
		r->w->psn = (r->w->psn + 0x34567) & 0xffffff;
		dev_qp_addr(n->dev, n->qp[i], r->w->psn, &n->addr[i]);
		if (n->addr[i].mtu > r->p->cfg[i].mtu)
			n->addr[i].mtu = (uint8_t)r->p->cfg[i].mtu;
	}
	/* Side 1 first: a side in RTS finds its peer ready, if it will be. */
	if (!rc && s->arg != IBV_QPS_INIT)
		rc = to_rtr(r, i, 1);
	if (!rc && s->arg == IBV_QPS_RTS)
		rc = to_rts(r, i, 1);
	if (!rc)
		rc = to_rtr(r, i, 0);
	return rc ? rc : to_rts(r, i, 0);
}

static int do_mortal(struct run *r, const struct step *s)
{
	struct node *n = &r->w->node[s->side];
	struct lane *l = &n->lane[s->pair];
	struct ibv_mr *old = l->mr[MR_MORTAL];
	struct ibv_mr *d = &l->dead;
	int rc;

	if (s->kind == STEP_REG && old != d)
		return 0;
	if (s->kind == STEP_REG) {
		rc = lane_reg(n, s->pair, MR_MORTAL);
		return rc ? rc : lane_show(r->w, s->side, s->pair, true);
	}
	if (old == d)
		return 0;
	d->lkey = old->lkey;
	d->rkey = old->rkey;
	rc = n->dev->ops->dereg_mr(n->dev, old);
	if (!rc)
		l->mr[MR_MORTAL] = d;
	return rc;
}

/* Where peers reach MR_MORTAL by a window, that is shut first, by a call of its
 * own: between the two calls requests may come. */
static void hide(struct run *r, const struct step *s)
{
	const struct lane *l = &r->w->node[s->side].lane[s->pair];
	struct ev *e;

	if (!l->mw || l->mr[MR_MORTAL] == &l->dead)
		return;
	e = ev_new(r, EV_HIDE, s->pair, s->side);
	e->ret = -lane_show(r->w, s->side, s->pair, false);
	ev_show(r, e);
}

/* ---- steps ---- */

static void do_step(struct run *r, const struct step *s)
{
	struct ev *e;

	if (s->kind == STEP_DEREG)
		hide(r, s);
	e = ev_new(r, EV_STEP, s->pair, s->side);
	e->step = s;
	switch (s->kind) {
	case STEP_SEND:
		do_send(r, s, e);
		break;
	case STEP_RECV:
	case STEP_SRQ_RECV:
		do_recv(r, s, e);
		break;
	case STEP_SRQ_LIMIT:
	case STEP_SRQ_QUERY:
		e->ret = -srq_step(&r->w->node[s->side], s, e);
		break;
	case STEP_ARM:
		e->ret = ibv_req_notify_cq(r->w->node[s->side].cq[s->cq],
					   s->arg);
		break;
	case STEP_STATE:
		e->ret = -do_state(r, s);
		shut(r, s);
		break;
	case STEP_CONNECT:
		e->ret = -do_connect(r, s);
		break;
	case STEP_DEREG:
	case STEP_REG:
		e->ret = -do_mortal(r, s);
		break;
	default:
		break;
	}
	ev_show(r, e);
	if (s->kind == STEP_POLL && poll_cq(r, s->side, s->cq, s->arg) < 0)
		e->ret = -1;
}

/* ---- a program ---- */

static int queues_open(struct run *r, int side)
{
	struct node *n = &r->w->node[side];
	struct ibv_qp_init_attr a;
	int i, rc;

	rc = n->dev->ops->create_comp_channel(n->dev, &n->ch);
	for (i = 0; i < CQS && !rc; i++)
		rc = n->dev->ops->create_cq(n->dev, 512, NULL, n->ch,
					    &n->cq[i]);
	if (!rc)
		rc = srq_open(n, &r->p->srq[side], &r->granted[SRQ_PAIR][side]);
	for (i = 0; i < r->p->pairs && !rc; i++) {
		const struct qp_cfg *q = &r->p->cfg[i].qp[side];

		a = (struct ibv_qp_init_attr){.send_cq = n->cq[q->scq],
					      .recv_cq = n->cq[q->rcq],
					      .cap = {.max_send_wr = q->depth_s,
						      .max_recv_wr = q->depth_r,
						      .max_send_sge = SGES,
						      .max_recv_sge = SGES,
						      .max_inline_data =
							      INLINE_MAX},
					      .qp_type = r->p->cfg[i].type,
					      .srq = q->srq ? n->srq : NULL,
					      .sq_sig_all = q->sig_all};
		rc = n->dev->ops->create_qp(
			n->dev, n->pd, &a,
			q->single ? DEV_QP_SINGLE_THREADED : 0, &n->qp[i]);
		r->granted[i][side] =
			(struct granted){a.cap.max_send_wr, a.cap.max_recv_wr,
					 a.cap.max_send_sge, a.cap.max_recv_sge,
					 a.cap.max_inline_data};
	}
	return rc;
}

static int queues_close(struct run *r, int side)
{
	struct node *n = &r->w->node[side];
	int i, rc;

	for (i = 0; i < PAIRS; i++)
		if (n->qp[i])
			n->dev->ops->destroy_qp(n->dev, n->qp[i]);
	rc = srq_close(n);
	for (i = 0; i < CQS; i++)
		if (n->cq[i])
			n->dev->ops->destroy_cq(n->dev, n->cq[i]);
	if (n->ch)
		n->dev->ops->destroy_comp_channel(n->dev, n->ch);
	memset(n->qp, 0, sizeof(n->qp));
	memset(n->cq, 0, sizeof(n->cq));
	n->ch = NULL;
	return rc;
}

static int lanes_fill(struct run *r)
{
	struct step again = {.kind = STEP_REG};
	int i, d, rc = world_sweep(r->w);
	uint32_t at;

	for (i = 0; i < LANES; i++)
		for (d = 0; d < 2; d++) {
			again.pair = (uint8_t)i;
			again.side = (uint8_t)d;
			rc |= do_mortal(r, &again);
			for (at = 0; at < LANE; at++)
				r->w->node[d].lane[i].mem[at] =
					lane_byte(r->p->seed, i, d, at);
		}
	return rc;
}

static void tell(struct run *r)
{
	int i;

	for (i = 0; !r->print && r->w->complain && i < r->e->n; i++)
		ev_print(&r->e->ev[i], r->w->complain);
}

static void steps_run(struct run *r, const struct audience *to,
		      struct outcome *o)
{
	int i;

	for (i = 0; i < r->p->n; i++) {
		if (r->p->step[i].kind != STEP_SYNC) {
			do_step(r, &r->p->step[i]);
			continue;
		}
		if (!sync_up(r)) {
			snprintf(o->why, sizeof(o->why), "step %d: %s", i,
				 r->check.why);
			o->ok = false;
			tell(r);
			return;
		}
		if (r->print)
			fprintf(r->print,
				"---- step %d: in step with the "
				"model\n",
				i);
		if (to && to->epoch)
			to->epoch(to->arg, r->e);
		o->epochs++;
		r->e->n = r->e->dgrams = 0;
		memset(r->e->shut, 0, sizeof(r->e->shut));
	}
}

void program_run(struct world *w, const struct program *p, FILE *print,
		 const struct audience *to, struct outcome *o)
{
	struct run r = {.w = w, .p = p, .print = print};
	int rc;

	*o = (struct outcome){.ok = true};
	r.e = calloc(1, sizeof(*r.e));
	world_begin(w, p->seed);
	rc = queues_open(&r, 0);
	if (!rc)
		rc = queues_open(&r, 1);
	if (!rc)
		rc = lanes_fill(&r);
	check_init(&r.check, p, r.granted, w->quirks);
	if (rc) {
		o->ok = false;
		snprintf(o->why, sizeof(o->why), "cannot begin: %s",
			 strerror(-rc));
	} else {
		steps_run(&r, to, o);
	}
	o->used = r.check.used;
	memcpy(o->granted, r.granted, sizeof(o->granted));
	check_fini(&r.check);
	rc = srq_close_early(w, p);
	rc = queues_close(&r, 1) ?: rc;
	rc = queues_close(&r, 0) ?: rc;
	if (rc && o->ok) {
		o->ok = false;
		snprintf(o->why, sizeof(o->why), "S8: destroy_srq: %s",
			 strerror(-rc));
	}
	free(r.e);
}
