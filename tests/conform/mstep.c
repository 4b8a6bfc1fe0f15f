/* SPDX-License-Identifier: MIT */
/*
 * mstep.c - the reference model's other half: the program's calls, and what
 * their answers must be (IBA 10.3.1 and 11.2.5.2 states, 11.4.1 posts).
 */
#include "minner.h"

#include <errno.h>
#include <string.h>

static const struct wr marks[2] = {
	{.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED},
	{.op = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED},
};
static const struct wr mark_recv = {.op = -1};

void m_init(struct m_pair *m, const struct program *p, int pair,
	    const struct granted granted[2], unsigned quirks)
{
	uint32_t at;
	int d;

	memset(m, 0, sizeof(*m));
	m->p = p;
	m->pair = pair;
	m->quirks = quirks;
	for (d = 0; d < 2; d++) {
		m->granted[d] = granted[d];
		m->s[d].state = IBV_QPS_RESET;
		m->s[d].held = M_QUEUE;
		m->s[d].sig_all = p->cfg[pair].qp[d].sig_all;
		m->s[d].srq = p->cfg[pair].qp[d].srq;
		for (at = 0; at < LANE; at++)
			m->s[d].mem[at] = lane_byte(p->seed, pair, d, at);
	}
}

/* ---- posts ---- */

static bool too_early(const struct m_side *s)
{
	return s->state == IBV_QPS_RESET || s->state == IBV_QPS_INIT ||
	       s->state == IBV_QPS_RTR;
}

static bool send_valid(const struct m_pair *m, int d, const struct wr *w)
{
	const struct granted *g = &m->granted[d];
	bool in = w->flags & IBV_SEND_INLINE;

	if (w->n > g->send_sge || (in && wr_len(w) > g->inl))
		return false;
	if (m->quirks & RXE_FORM)
		return !op_is_atomic(w->op) ||
		       (wr_len(w) == 8 && w->to.at % 8 == 0);
	return (unsigned)w->op <= IBV_WR_ATOMIC_FETCH_AND_ADD &&
	       !((m_uc(m) || in) && op_fetches(w->op));
}

/* May a post be answered with this error? err 0: accepted. */
static bool send_answer(const struct m_pair *m, int d, const struct wr *w,
			int err)
{
	const struct m_side *s = &m->s[d];
	bool full = s->posted[0] - s->freed[0] >= m->granted[d].send_wr;
	bool invalid = !send_valid(m, d, w);

	if (m->quirks & RXE_GHOST && too_early(s))
		return err ? err == EINVAL && (invalid || full) : !invalid;
	invalid |= too_early(s);
	if (m->quirks & RXE_RING && full && !invalid && err == 0)
		return true;
	if (invalid || full)
		return (invalid && err == EINVAL) || (full && err == ENOMEM);
	return err == 0;
}

static bool recv_answer(const struct m_pair *m, int d, const struct wr *w,
			int err)
{
	const struct m_side *s = &m->s[d];
	const struct granted *g = &m->granted[d];
	bool invalid =
		s->srq || s->state == IBV_QPS_RESET || w->n > g->recv_sge;
	bool full = !s->srq && s->posted[1] - s->freed[1] >= g->recv_wr;

	if (m->quirks & RXE_RING && full && !invalid && err == 0)
		return true;
	if (invalid || full)
		return (invalid && err == EINVAL) || (full && err == ENOMEM);
	return err == 0;
}

static void take_inline(struct m_side *s, struct m_req *r)
{
	m_byte *out = r->inl;
	int i;

	for (i = 0; i < r->w->n; i++) {
		memcpy(out, s->mem + r->w->sge[i].at,
		       r->w->sge[i].len * sizeof(*out));
		out += r->w->sge[i].len;
	}
}

/* The runner overwrites inline sources at once, accepted or not. */
static void scribble(struct m_side *s, const struct wr *w)
{
	uint32_t k;
	int i;

	for (i = 0; i < w->n; i++)
		for (k = 0; k < w->sge[i].len; k++)
			s->mem[w->sge[i].at + k] ^= 0xff;
}

static void flush_one(struct m_side *s, int q, uint64_t id, uint32_t pos)
{
	s->out[q][s->n_out[q]++] = (struct m_cqe){
		.id = id, .pos = pos, .status = IBV_WC_WR_FLUSH_ERR};
}

static void accept_send(struct m_pair *m, int d, const struct wr *w,
			uint64_t id)
{
	struct m_side *s = &m->s[d];
	struct m_req *r;

	if (s->state == IBV_QPS_ERR || s->state == IBV_QPS_SQE) {
		flush_one(s, 0, id, s->posted[0]++);
		return;
	}
	r = &s->sq[s->n++];
	*r = (struct m_req){.id = id,
			    .w = w,
			    .pos = s->posted[0]++,
			    .status = -1,
			    .life = {s->own_life, m->s[!d].shown_life}};
	if (w->flags & IBV_SEND_INLINE)
		take_inline(s, r);
}

static void accept_recv(struct m_side *s, const struct wr *w, uint64_t id)
{
	if (s->state == IBV_QPS_ERR) {
		flush_one(s, 1, id, s->posted[1]++);
		return;
	}
	s->rq[s->rn++] = (struct m_req){
		.id = id, .w = w, .pos = s->posted[1]++, .life = {s->own_life}};
}

static bool room(const struct m_side *s)
{
	return s->n + LIST < M_QUEUE && s->rn + LIST < M_QUEUE &&
	       s->n_out[0] + M_QUEUE < 2 * M_QUEUE &&
	       s->n_out[1] + M_QUEUE < 2 * M_QUEUE;
}

/* Each request of the list is answered for, up to the first refused. */
static bool step_post(struct m_pair *m, const struct ev *e)
{
	const struct step *st = e->step;
	bool recv = st->kind == STEP_RECV;
	int i, err, d = st->side;
	struct m_side *s = &m->s[d];
	const struct wr *w;
	uint64_t id;

	if (!recv && m->quirks & RXE_GHOST && too_early(s) && e->ret != EINVAL)
		return false;
	for (i = 0; i < st->n; i++) {
		w = &st->wr[i];
		err = i == e->n ? e->ret : 0;
		if (!(recv ? recv_answer(m, d, w, err)
			   : send_answer(m, d, w, err)))
			return false;
		if (err)
			break;
		id = id_make(m->pair, d, recv, id_no(m->p, st, i));
		if (recv)
			accept_recv(s, w, id);
		else
			accept_send(m, d, w, id);
	}
	for (i = 0; !recv && i < st->n; i++)
		if (st->wr[i].flags & IBV_SEND_INLINE)
			scribble(s, &st->wr[i]);
	return room(s);
}

/* ---- states ---- */

static bool legal(enum ibv_qp_state from, enum ibv_qp_state to)
{
	static const uint8_t next[] = {
		[IBV_QPS_RESET] = 1 << IBV_QPS_INIT,
		[IBV_QPS_INIT] = 1 << IBV_QPS_INIT | 1 << IBV_QPS_RTR,
		[IBV_QPS_RTR] = 1 << IBV_QPS_RTS,
		[IBV_QPS_RTS] = 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD,
		[IBV_QPS_SQD] = 1 << IBV_QPS_RTS | 1 << IBV_QPS_SQD,
		[IBV_QPS_SQE] = 1 << IBV_QPS_RTS,
		[IBV_QPS_ERR] = 0,
	};

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	return next[from] & 1 << to;
}

static bool step_state(struct m_pair *m, const struct ev *e)
{
	struct m_side *s = &m->s[e->side];
	enum ibv_qp_state to = (enum ibv_qp_state)e->step->arg;

	if (!legal(s->state, to) ||
	    (m->quirks & RXE_NO_RESET_ERR && s->state == IBV_QPS_RESET &&
	     to == IBV_QPS_ERR))
		return e->ret == EINVAL;
	if (e->ret)
		return false;
	if (to == IBV_QPS_ERR) {
		m_to_err(m, e->side);
	} else if (to == IBV_QPS_RESET) {
		m_to_reset(m, e->side);
	} else {
		if (to == IBV_QPS_SQD && s->state == IBV_QPS_RTS)
			s->held = s->n;
		if (to == IBV_QPS_RTS) {
			s->held = M_QUEUE;
			s->stuck = false;
		}
		s->state = to;
	}
	return true;
}

static bool step_connect(struct m_pair *m, const struct ev *e)
{
	int d;

	for (d = 0; d < 2; d++)
		m_to_reset(m, d);
	for (d = 0; d < 2; d++) {
		m->s[d].n_fly = m->s[d].flown = 0; /* of other PSNs */
		m->s[d].linked = true;
		m->s[d].state = IBV_QPS_RTS;
	}
	m->s[1].state = (enum ibv_qp_state)e->step->arg;
	return e->ret == 0;
}

bool m_step(struct m_pair *m, const struct ev *e)
{
	struct m_side *s = &m->s[e->side];

	if (e->kind == EV_MARK_SEND) {
		if (!send_answer(m, e->side, &marks[e->n], e->ret))
			return false;
		if (!e->ret)
			accept_send(m, e->side, &marks[e->n], e->id);
		return room(s);
	}
	if (e->kind == EV_MARK_RECV) {
		if (!recv_answer(m, e->side, &mark_recv, e->ret))
			return false;
		if (!e->ret)
			accept_recv(s, &mark_recv, e->id);
		return room(s);
	}
	if (e->kind == EV_MARK_ERR) {
		m_to_err(m, e->side);
		return e->ret == 0;
	}
	if (e->kind == EV_HIDE) {
		s->shown_life = s->own_life + 1;
		return e->ret == 0;
	}
	switch (e->step->kind) {
	case STEP_SEND:
	case STEP_RECV:
		return step_post(m, e);
	case STEP_STATE:
		return step_state(m, e);
	case STEP_CONNECT:
		return step_connect(m, e);
	case STEP_DEREG:
	case STEP_REG:
		/* A program that was made smaller may ask twice. */
		s->own_life += M_LIFE_DEAD(s->own_life) !=
			       (e->step->kind == STEP_DEREG);
		s->shown_life = s->own_life;
		return e->ret == 0;
	case STEP_SRQ_RECV:
		m_srq_posted(s, e);
		return true;
	default:
		return e->ret >= 0;
	}
}

/* ---- completions ---- */

/* rxe has other names for some failures (docs/design/semantics.md, section 4).
 */
static bool rxe_says(int status, int got)
{
	switch (status) {
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_LEN_ERR:
		return got == IBV_WC_LOC_QP_OP_ERR;
	case IBV_WC_REM_INV_REQ_ERR:
		return got == IBV_WC_REM_OP_ERR;
	default:
		return false;
	}
}

/* On a completion that is no success, only wr_id, status and qp_num mean
 * anything (IBA 11.4.2.1). */
bool m_same(const struct m_pair *m, const struct m_cqe *c, const struct ev *e)
{
	if (c->id != e->wc.id || !e->wc.qp_ok)
		return false;
	if (c->status != e->wc.status &&
	    !(m->quirks & RXE_NAMES && rxe_says(c->status, e->wc.status)))
		return false;
	if (c->status != IBV_WC_SUCCESS)
		return true;
	if (c->opcode != e->wc.opcode ||
	    (c->has_len && c->byte_len != e->wc.byte_len))
		return false;
	/* wc_flags and imm_data are a receive's. */
	if (!id_recv(c->id))
		return true;
	return c->has_imm == !!(e->wc.flags & IBV_WC_WITH_IMM) &&
	       (!c->has_imm || c->imm == e->wc.imm);
}

static bool is_solicited(const struct m_pair *m, const struct m_cqe *c)
{
	if (m->quirks & RXE_EVENTS)
		return id_recv(c->id) &&
		       (c->solicited || c->status == IBV_WC_WR_FLUSH_ERR);
	return c->solicited || c->status;
}

bool m_poll(struct m_pair *m, const struct ev *e, bool *solicited)
{
	int q = id_recv(e->wc.id);
	struct m_side *s = &m->s[id_side(e->wc.id)];
	const struct m_cqe *c;

	for (; s->taken[q] < s->n_out[q]; s->taken[q]++) {
		c = &s->out[q][s->taken[q]];
		if (m_same(m, c, e)) {
			if (!c->optional)
				s->freed[q] = c->pos + 1;
			*solicited = is_solicited(m, c);
			s->taken[q]++;
			return true;
		}
		if (!c->optional)
			break;
	}
	return false;
}

void m_tidy(struct m_pair *m)
{
	struct m_side *s;
	int d;

	for (d = 0; d < 2; d++) {
		s = &m->s[d];
		s->n -= s->ack;
		s->exec -= s->ack;
		memmove(s->sq, s->sq + s->ack, (size_t)s->n * sizeof(*s->sq));
		if (s->held != M_QUEUE)
			s->held -= s->ack;
		s->ack = 0;
		s->n_fly = s->flown = 0; /* all has arrived */
		s->rn -= s->rhead;
		memmove(s->rq, s->rq + s->rhead,
			(size_t)s->rn * sizeof(*s->rq));
		s->rhead = 0;
		if (s->srq)
			s->rn = 0;
		memset(s->n_out, 0, sizeof(s->n_out));
		memset(s->taken, 0, sizeof(s->taken));
	}
}
