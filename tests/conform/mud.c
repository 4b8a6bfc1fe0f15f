/* SPDX-License-Identifier: MIT */
/*
 * mud.c - the rules for UD QPs (IBA 9.8.3, 10.3.1, 10.7.3, 11.4.1):
 *
 * U1	a post is refused for what is wrong with its form, in RESET, INIT and
 *	RTR, and when the queue is full (11.4.1.1).
 * U2	sends complete in order: with success, with LOC_PROT_ERR if a piece is
 *	bad, flushed behind such a one until the owner asks for RTS, and in ERR
 *	(10.3.1.6, 10.7.3.1). Success says nothing of arrival; longer than the
 *	port's MTU is success too (C10-93.1.1).
 * U3	a receive completes once; with success it holds a datagram that was
 *	sent to this QP with its Q_Key, whole, behind 40 bytes; nothing arrives
 *	twice (9.8.3.2). In any order.
 * U4	a receive with bad pieces: LOC_PROT_ERR, and the QP is in ERR; there
 *	receives are flushed (10.3.1.5).
 * U5	what meets a receive that is long enough in a QP in RTS has arrived.
 *	Not in harsh mode, which loses some (9.8.3: "unreliable"); nor in a QP
 *	that has been away: a sender of soft that met nobody there looks again
 *	after 20 ms only (docs/soft.md).
 */
#include "mud.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void mud_init(struct mud *u, const struct program *p, granted_all granted,
	      unsigned quirks)
{
	memset(u, 0, sizeof(*u));
	u->p = p;
	u->quirks = quirks;
	memcpy(u->granted, granted, sizeof(u->granted));
}

__attribute__((format(printf, 2, 3))) static bool no(struct mud *u,
						     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(u->why, u->why_len, fmt, ap);
	va_end(ap);
	return false;
}

static bool piece_bad(const struct piece *g, int access)
{
	const struct mr_def *def = &mr_defs[g->mr];

	return g->len &&
	       (g->bad || def->foreign || (def->access & access) != access ||
		g->at < def->at || g->at + g->len > def->end);
}

static bool bad(const struct wr *w, int access)
{
	int i;

	for (i = 0; i < w->n && !(w->flags & IBV_SEND_INLINE); i++)
		if (piece_bad(&w->sge[i], access))
			return true;
	return false;
}

/* A receive, or a request, that its own QP found wrong. */
static bool found_wrong(const struct mud *u, int status)
{
	return status == IBV_WC_LOC_PROT_ERR ||
	       (u->quirks & RXE_NAMES && status == IBV_WC_LOC_QP_OP_ERR);
}

static bool has_ud(const struct mud *u, int pair)
{
	return pair < u->p->pairs && u->p->cfg[pair].type == IBV_QPT_UD;
}

/* Did a receive of this QP fail in this epoch (on rxe: or a send)? Its QP breaks
 * in its own time, before or after that completion is polled. */
static bool breaks(const struct mud *u, const struct epoch *e, int pair,
		   int side)
{
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind == EV_WC && v->pair == pair && v->side == side &&
		    (id_recv(v->wc.id) || u->quirks & RXE_NO_SQE) &&
		    found_wrong(u, v->wc.status))
			return true;
	}
	return false;
}

static bool resets(const struct ev *v, int pair, int side)
{
	return v->kind == EV_STEP && v->pair == pair &&
	       (v->step->kind == STEP_CONNECT ||
		(v->step->kind == STEP_STATE && v->side == side &&
		 v->step->arg == IBV_QPS_RESET));
}

/* The event, i or later, that resets this QP; or -1. */
static int next_reset(const struct epoch *e, int i, int pair, int side)
{
	for (; i < e->n; i++)
		if (resets(&e->ev[i], pair, side))
			return i;
	return -1;
}

static bool sends_to(const struct ev *v, int pair, int side)
{
	int k;

	if (v->kind != EV_STEP || v->step->kind != STEP_SEND || v->side == side)
		return false;
	for (k = 0; k < v->step->n; k++)
		if (v->step->wr[k].dest == pair)
			return true;
	return false;
}

/* Is any of the receives that this step posts bad? */
static bool posts_bad(const struct ev *v, int pair, int side)
{
	int k, n;

	if (v->kind != EV_STEP || v->step->kind != STEP_RECV ||
	    v->pair != pair || v->side != side)
		return false;
	n = v->ret ? v->n : v->step->n;
	for (k = 0; k < n; k++)
		if (bad(&v->step->wr[k], IBV_ACCESS_LOCAL_WRITE))
			return true;
	return false;
}

/* May a datagram have met a bad receive before event end, though no completion
 * says so? The RESET that is still to come has taken that one back. */
static bool breaks_unseen(const struct mud *u, const struct epoch *e, int end,
			  int pair, int side)
{
	const struct mud *was = u->was;
	const struct mud_side *s = &was->s[pair][side];
	bool met = false, sent = false;
	int i;

	if (next_reset(e, end, pair, side) < 0)
		return false;
	for (i = 0; i < s->n; i++)
		met |= !s->rq[i].old && s->rq[i].w &&
		       bad(s->rq[i].w, IBV_ACCESS_LOCAL_WRITE);
	for (i = 0; i < was->n_sent; i++)
		sent |= !was->sent[i].gone && was->sent[i].w->dest == pair &&
			was->sent[i].side != side;
	for (i = 0; i < end; i++) {
		if (resets(&e->ev[i], pair, side))
			met = false;
		met |= posts_bad(&e->ev[i], pair, side);
		sent |= sends_to(&e->ev[i], pair, side);
	}
	return met && sent;
}

/* May a receive have broken this QP, before event v or soon behind it? */
static bool broken_by(const struct mud *u, const struct epoch *e,
		      const struct ev *v)
{
	return u->s[v->pair][v->side].broken ||
	       breaks(u, e, v->pair, v->side) ||
	       breaks_unseen(u, e, (int)(v - e->ev), v->pair, v->side);
}

/* ---- calls ---- */

static bool answer(const struct mud *u, const struct mud_side *s,
		   const struct granted *g, int q, const struct wr *w, int err)
{
	bool full = s->posted[q] - s->freed[q] >= (q ? g->recv_wr : g->send_wr);
	bool invalid;

	if (q)
		invalid = s->state == IBV_QPS_RESET || w->n > g->recv_sge;
	else
		invalid = s->state == IBV_QPS_RESET || w->n > g->send_sge ||
			  !(op_is_send(w->op) || u->quirks & RXE_FORM) ||
			  (w->flags & IBV_SEND_INLINE && wr_len(w) > g->inl);
	if (u->quirks & RXE_RING && full && !invalid && err == 0)
		return true;
	if (invalid || full)
		return (invalid && err == EINVAL) || (full && err == ENOMEM);
	return err == 0;
}

static void take_slot(struct mud_side *s, uint64_t id)
{
	s->sq_id[s->posted[0]++ % MUD_SLOTS] = id;
}

static bool accept_recv(struct mud *u, struct mud_side *s, uint64_t id,
			const struct wr *w)
{
	if (s->n == MUD_RECVS)
		return no(u, "too many receives");
	s->posted[1]++;
	s->rq[s->n++] = (struct mud_recv){.id = id, .w = w};
	return true;
}

static bool accept_send(struct mud *u, const struct epoch *e,
			const struct ev *v, int k, uint64_t id)
{
	const struct wr *w = &v->step->wr[k];
	int i;

	take_slot(&u->s[v->pair][v->side], id);
	if (u->n_sent == MUD_SENT)
		return no(u, "too many datagrams");
	for (i = 0; i < e->dgrams && e->dgram[i].id != id; i++)
		;
	if (i < e->dgrams && op_is_send(w->op) && !w->bad_qkey &&
	    wr_len(w) <= DGRAM_MAX)
		u->sent[u->n_sent++] = (struct mud_sent){.d = e->dgram[i],
							 .w = w,
							 .pair = v->pair,
							 .side = v->side};
	return true;
}

static bool post(struct mud *u, const struct epoch *e, const struct ev *v)
{
	const struct step *st = v->step;
	int q = st->kind == STEP_RECV, k, err;
	struct mud_side *s = &u->s[v->pair][v->side];
	uint64_t id;

	for (k = 0; k < st->n; k++) {
		err = k == v->n ? v->ret : 0;
		if (!answer(u, s, &u->granted[v->pair][v->side], q, &st->wr[k],
			    err))
			return no(u, "U1: step %d is answered %d",
				  (int)(st - u->p->step), v->ret);
		if (err)
			return true;
		id = id_make(v->pair, v->side, q, id_no(u->p, st, k));
		if (q ? !accept_recv(u, s, id, &st->wr[k])
		      : !accept_send(u, e, v, k, id))
			return false;
	}
	return true;
}

static void reset(struct mud_side *s, enum ibv_qp_state to)
{
	int i;

	s->state = to;
	s->failed = s->broken = false;
	s->lives++;
	memset(s->posted, 0, sizeof(s->posted));
	memset(s->freed, 0, sizeof(s->freed));
	for (i = 0; i < s->n; i++)
		s->rq[i].old = true;
}

/* It knows no SQE. */
static bool rxe_failed(const struct mud *u, const struct mud_side *s)
{
	return s->failed && u->quirks & RXE_NO_SQE;
}

static bool state(struct mud *u, const struct epoch *e, const struct ev *v)
{
	struct mud_side *s = &u->s[v->pair][v->side];
	int to = v->step->arg;
	/* a receive may be breaking it just now */
	bool ok = (to != IBV_QPS_RTS || s->state == IBV_QPS_RTS) &&
		  !(u->quirks & RXE_NO_RESET_ERR && to == IBV_QPS_ERR &&
		    s->state == IBV_QPS_RESET);

	if (v->ret && (v->ret != EINVAL ||
		       (ok && !rxe_failed(u, s) && !broken_by(u, e, v))))
		return no(u, "modify of step %d is answered %d",
			  (int)(v->step - u->p->step), v->ret);
	if (!v->ret && !ok)
		return no(u, "modify of step %d is allowed",
			  (int)(v->step - u->p->step));
	if (v->ret)
		return true;
	if (to == IBV_QPS_RESET)
		reset(s, IBV_QPS_RESET);
	else
		s->state = (enum ibv_qp_state)to;
	return true;
}

/* ---- receives ---- */

static bool matches(const struct mud *u, const struct epoch *e,
		    const struct ev *v, const struct mud_sent *m)
{
	return !m->gone && m->w->dest == v->pair && m->side != v->side &&
	       has_ud(u, m->pair) && v->wc.byte_len == m->d.len + DGRAM_GRH &&
	       v->wc.src_qp == e->qpn[m->pair][m->side] &&
	       op_has_imm(m->w->op) == !!(v->wc.flags & IBV_WC_WITH_IMM) &&
	       (!op_has_imm(m->w->op) || m->w->imm == v->wc.imm) &&
	       !memcmp(v->wc.data, m->d.data, m->d.len);
}

static bool arrived(struct mud *u, const struct epoch *e, const struct ev *v,
		    const struct mud_recv *r)
{
	int i;

	if (v->wc.opcode != IBV_WC_RECV || !v->wc.grh_ok || !r->w ||
	    v->wc.byte_len > wr_len(r->w) || bad(r->w, IBV_ACCESS_LOCAL_WRITE))
		return no(u, "U3: a receive of step %d cannot be so",
			  (int)((uint32_t)r->id / 8));
	/* Of those with the same bytes the newest: older ones may be lost. */
	for (i = u->n_sent - 1; i >= 0; i--)
		if (matches(u, e, v, &u->sent[i])) {
			u->sent[i].gone = true;
			u->sol[v->side][v->cq] |=
				!!(u->sent[i].w->flags & IBV_SEND_SOLICITED);
			return true;
		}
	return no(u, "U3: nobody has sent what step %d received",
		  (int)((uint32_t)r->id / 8));
}

static bool recv_wc(struct mud *u, const struct epoch *e, const struct ev *v)
{
	struct mud_side *s = &u->s[v->pair][v->side];
	struct mud_recv r;
	int i;

	for (i = 0; i < s->n && s->rq[i].id != v->wc.id; i++)
		;
	if (i == s->n || !v->wc.qp_ok)
		return no(u, "U3: a receive that was not posted, or twice");
	r = s->rq[i];
	memmove(&s->rq[i], &s->rq[i + 1],
		(size_t)(--s->n - i) * sizeof(s->rq[0]));
	if (!r.old)
		s->freed[1]++;
	u->sol[v->side][v->cq] |= v->wc.status != IBV_WC_SUCCESS;
	if (found_wrong(u, v->wc.status)) {
		s->broken |= !r.old;
		return (r.w && (bad(r.w, IBV_ACCESS_LOCAL_WRITE) ||
				(u->quirks & RXE_SHORT &&
				 wr_len(r.w) < DGRAM_ROOM))) ||
		       no(u, "U4: a good receive fails");
	}
	switch (v->wc.status) {
	case IBV_WC_SUCCESS:
		return arrived(u, e, v, &r);
	case IBV_WC_WR_FLUSH_ERR:
		return s->state == IBV_QPS_ERR || r.old || rxe_failed(u, s) ||
		       broken_by(u, e, v) ||
		       no(u, "U4: a receive is flushed without a cause");
	default:
		return no(u, "U4: status %s", status_name(v->wc.status));
	}
}

/* ---- sends ---- */

/* What the order of a send queue's completions is checked with. */
struct sends {
	const struct ev *wc[EPOCH_EVENTS];
	int n, next;
	bool failed;  /* behind a failed one */
	bool flushed; /* one was flushed, and RTS not asked for since */
	bool maybe_err;
};

static bool may_flush(const struct sends *q)
{
	return q->failed || q->maybe_err;
}

/* wrong: a piece is bad. later: the RESET that may have taken it back, or the
 * end of the epoch, is all that is left to wait for. */
static bool one_send(struct mud *u, struct sends *q, const struct ev *post,
		     uint64_t id, bool sig, bool wrong, bool back)
{
	struct mud_side *s = &u->s[post->pair][post->side];
	const struct ev *v = q->next < q->n ? q->wc[q->next] : NULL;

	if (!v || v->wc.id != id) {
		if (back || (!sig && !wrong && !q->flushed))
			return true;
		return no(u,
			  "U2: a send's completion is missing (pair %d "
			  "side %d step %d)",
			  post->pair, post->side, (int)((uint32_t)id / 8));
	}
	q->next++;
	u->sol[v->side][v->cq] |=
		v->wc.status != IBV_WC_SUCCESS && !(u->quirks & RXE_EVENTS);
	if (!v->wc.qp_ok)
		return no(u, "U2: a completion of another QP");
	if (found_wrong(u, v->wc.status)) {
		s->failed = q->failed = q->flushed = true;
		return wrong || no(u, "U2: a good send fails");
	}
	switch (v->wc.status) {
	case IBV_WC_SUCCESS:
		if (wrong || q->flushed || v->wc.opcode != IBV_WC_SEND || !sig)
			return no(u, "U2: success of step %d",
				  (int)((uint32_t)id / 8));
		return true;
	case IBV_WC_WR_FLUSH_ERR:
		if (!may_flush(q))
			return no(u, "U2: flushed without a cause");
		q->flushed = true;
		return true;
	default:
		return no(u, "U2: status %s", status_name(v->wc.status));
	}
}

static bool sends_of(struct mud *u, const struct epoch *e, int i,
		     struct sends *q, bool back)
{
	const struct ev *v = &e->ev[i];
	bool all = u->p->cfg[v->pair].qp[v->side].sig_all;
	int k, n;

	if (v->kind == EV_MARK_SEND)
		return v->ret || one_send(u, q, v, v->id, true, false, back);
	n = v->ret ? v->n : v->step->n;
	for (k = 0; k < n; k++) {
		const struct wr *w = &v->step->wr[k];
		bool sig = all || w->flags & IBV_SEND_SIGNALED;

		if (!one_send(u, q, v,
			      id_make(v->pair, v->side, false,
				      id_no(u->p, v->step, k)),
			      sig, bad(w, 0) || !op_is_send(w->op), back))
			return false;
	}
	return true;
}

/* ERR may come to what is still queued: asked for later in this life. */
static bool err_ahead(const struct epoch *e, int i, int pair, int side)
{
	for (; i < e->n && !resets(&e->ev[i], pair, side); i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind == EV_STEP && v->pair == pair && v->side == side &&
		    v->step->kind == STEP_STATE &&
		    v->step->arg == IBV_QPS_ERR && !v->ret)
			return true;
	}
	return false;
}

/* was: at the start of the epoch */
static bool sends(struct mud *u, const struct epoch *e, int pair, int side,
		  const struct mud_side *was)
{
	bool broke = breaks(u, e, pair, side), err = was->state == IBV_QPS_ERR;
	struct sends q = {.failed = was->failed, .flushed = was->failed};
	int i, end;

	for (i = 0; i < e->n; i++)
		if (e->ev[i].kind == EV_WC && e->ev[i].pair == pair &&
		    e->ev[i].side == side && !id_recv(e->ev[i].wc.id))
			q.wc[q.n++] = &e->ev[i];
	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];
		bool step = v->kind == EV_STEP;

		if ((v->pair != pair || v->side != side) &&
		    !resets(v, pair, side))
			continue;
		if (resets(v, pair, side)) {
			err = q.failed = q.flushed = false;
			u->s[pair][side].failed = false;
		} else if (step && v->step->kind == STEP_STATE && !v->ret &&
			   v->step->arg == IBV_QPS_RTS) {
			/* before or after the failure: either may be */
			q.flushed = false;
		}
		err |= step && v->step->kind == STEP_STATE &&
		       v->step->arg == IBV_QPS_ERR && !v->ret;
		if (v->kind != EV_MARK_SEND &&
		    !(step && v->step->kind == STEP_SEND))
			continue;
		end = next_reset(e, i, pair, side);
		q.maybe_err =
			err || broke || err_ahead(e, i, pair, side) ||
			(end >= 0 && breaks_unseen(u, e, end, pair, side));
		if (!sends_of(u, e, i, &q, end >= 0))
			return false;
	}
	return q.next == q.n || no(u,
				   "U2: a completion of nobody, or out of "
				   "order (pair %d side %d)",
				   pair, side);
}

/* ---- what must be ---- */

/* Was something done to this QP in the epoch, but for a CONNECT before all
 * datagrams? */
static bool disturbed(const struct epoch *e, int pair, int side)
{
	bool busy = false;
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind != EV_STEP)
			continue;
		busy |= v->step->kind == STEP_SEND;
		if (v->pair == pair &&
		    ((busy && v->step->kind == STEP_CONNECT) ||
		     (v->side == side && v->step->kind == STEP_STATE)))
			return true;
	}
	return false;
}

static bool good_recv(const struct wr *w)
{
	return w && wr_len(w) >= DGRAM_ROOM && !bad(w, IBV_ACCESS_LOCAL_WRITE);
}

/* The receives that lay there before the first datagram was posted; -1 when
 * one is too short or bad. */
static int ready(const struct epoch *e, const struct mud_side *was, int pair,
		 int side)
{
	int n = 0, i, k;

	for (i = 0; i < was->n; i++) {
		if (!was->rq[i].old && !good_recv(was->rq[i].w))
			return -1;
		n += !was->rq[i].old;
	}
	for (i = 0; i < e->n && !sends_to(&e->ev[i], pair, side); i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind != EV_STEP || v->pair != pair)
			continue;
		if (v->step->kind == STEP_CONNECT)
			n = 0;
		if (v->step->kind != STEP_RECV || v->side != side)
			continue;
		for (k = 0; k < (v->ret ? v->n : v->step->n); k++, n++)
			if (!good_recv(&v->step->wr[k]))
				return -1;
	}
	return n;
}

/* U5: a QP in RTS throughout, and enough receives before the first datagram
 * to it was posted. */
static bool all_there(struct mud *u, const struct epoch *e,
		      const struct mud *was, int pair, int side)
{
	int n = ready(e, &was->s[pair][side], pair, side), sent = 0;
	int missing = 0, i;

	if (u->quirks & M_QUIRK_HARSH || disturbed(e, pair, side) ||
	    u->s[pair][side].state != IBV_QPS_RTS || u->s[pair][side].broken ||
	    u->s[pair][side].lives > 1)
		return true;
	for (i = 0; i < u->n_sent; i++) {
		const struct mud_sent *m = &u->sent[i];

		if (m->w->dest != pair || m->side == side)
			continue;
		if (i < was->n_sent) { /* late, and took one of them */
			sent += m->gone && !was->sent[i].gone;
			continue;
		}
		sent++;
		missing += !m->gone && !bad(m->w, 0) &&
			   !disturbed(e, m->pair, m->side) &&
			   !u->s[m->pair][m->side].failed &&
			   e->state[m->pair][m->side] == IBV_QPS_RTS;
	}
	return !missing || sent > n ||
	       no(u, "U5: %d datagrams did not arrive (pair %d side %d)",
		  missing, pair, side);
}

static bool asked_rts(const struct epoch *e, int pair, int side)
{
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind == EV_STEP && v->pair == pair && v->side == side &&
		    v->step->kind == STEP_STATE &&
		    v->step->arg == IBV_QPS_RTS && !v->ret)
			return true;
	}
	return false;
}

static bool end_state(struct mud *u, const struct epoch *e, int pair, int side)
{
	struct mud_side *s = &u->s[pair][side];
	int got = e->state[pair][side];
	int want = s->broken && s->state != IBV_QPS_RESET ? IBV_QPS_ERR
							  : (int)s->state;

	if (want == IBV_QPS_RTS && s->failed &&
	    !(got == IBV_QPS_RTS && asked_rts(e, pair, side)))
		want = u->quirks & RXE_NO_SQE ? IBV_QPS_ERR : IBV_QPS_SQE;
	if (got != want)
		return no(u,
			  "state of the QP (pair %d side %d: %s, expected "
			  "%s)",
			  pair, side, state_name(got), state_name(want));
	/* RTS was asked for behind the failure */
	if (got == IBV_QPS_RTS)
		s->failed = false;
	if (got == IBV_QPS_ERR)
		s->state = IBV_QPS_ERR;
	return true;
}

/* A send's completion frees its slot and those before it (10.7.3.1). */
static void free_slots(struct mud_side *s, uint64_t id)
{
	uint32_t pos;

	for (pos = s->freed[0]; pos != s->posted[0]; pos++)
		if (s->sq_id[pos % MUD_SLOTS] == id)
			s->freed[0] = pos + 1;
}

static bool event(struct mud *u, const struct epoch *e, const struct ev *v)
{
	struct mud_side *s = &u->s[v->pair][v->side];
	int d;

	switch (v->kind) {
	case EV_WC:
		if (id_recv(v->wc.id))
			return recv_wc(u, e, v);
		free_slots(s, v->wc.id);
		return true;
	case EV_MARK_SEND:
		if (!v->ret)
			take_slot(s, v->id);
		return true;
	case EV_MARK_RECV:
		return v->ret || accept_recv(u, s, v->id, NULL);
	case EV_STEP:
		break;
	default:
		return true;
	}
	switch (v->step->kind) {
	case STEP_SEND:
	case STEP_RECV:
		return post(u, e, v);
	case STEP_STATE:
		return state(u, e, v);
	case STEP_CONNECT:
		for (d = 0; d < 2; d++)
			reset(&u->s[v->pair][d], IBV_QPS_RTS);
		return v->ret == 0 || no(u, "connect fails");
	default:
		return true;
	}
}

/* Nothing but receives is written to. */
static bool untouched(struct mud *u, const struct epoch *e, int pair, int side)
{
	uint32_t at;

	for (at = 0; at < RCV_AT; at++) {
		if (at >= INL_AT && at < INL_AT + INL_LEN)
			continue; /* the program overwrites them */
		if (e->mem[pair][side][at] !=
		    lane_byte(u->p->seed, pair, side, at))
			return no(u, "memory (pair %d side %d offset %u)", pair,
				  side, at);
	}
	return true;
}

static bool qp_epoch(struct mud *u, const struct mud *was,
		     const struct epoch *e, int pair, int side)
{
	return sends(u, e, pair, side, &was->s[pair][side]) &&
	       end_state(u, e, pair, side) && untouched(u, e, pair, side) &&
	       all_there(u, e, was, pair, side);
}

static bool epoch(struct mud *u, const struct mud *was, const struct epoch *e)
{
	int i, d;

	for (i = 0; i < e->n; i++)
		if (has_ud(u, e->ev[i].pair) && !event(u, e, &e->ev[i]))
			return false;
	for (i = 0; i < u->p->pairs; i++)
		for (d = 0; d < 2 && has_ud(u, i); d++)
			if (!qp_epoch(u, was, e, i, d))
				return false;
	return true;
}

bool mud_epoch(struct mud *u, const struct epoch *e, char *why, size_t len)
{
	struct mud *was = malloc(sizeof(*was));
	bool ok;

	*was = *u;
	u->was = was;
	u->why = why;
	u->why_len = len;
	memset(u->sol, 0, sizeof(u->sol));
	ok = epoch(u, was, e);
	free(was);
	return ok;
}
