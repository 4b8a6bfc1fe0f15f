/* SPDX-License-Identifier: MIT */
/*
 * msrq.c - the rules for shared receive queues (IBA 10.2.9 and 11.6.3.1; the
 * verbs manual pages ibv_create_srq, ibv_modify_srq, ibv_post_srq_recv,
 * ibv_get_async_event):
 *
 * S1	a post is refused for too many pieces and when the queue is full; a
 *	place is free when the completion of its receive was polled. A QP that
 *	has an SRQ takes no receives of its own.
 * S2	a receive completes once, at the QP that took it and by that QP's
 *	receive CQ; and only after it was posted. In which order, and which QP
 *	gets which, is open.
 * S3	a message finds no receive (RNR; on UC it is dropped) only if there may
 *	have been none: if some were never taken there was one. Not counted:
 *	what a QP that breaks may have begun to use, and what a RESET took back.
 * S4	SRQ_LIMIT_REACHED comes once for one modify_srq(), when fewer receives
 *	than that are left, or already are; and not before. query_srq() says the
 *	limit until then, and 0 from then on.
 * S5	a QP in ERR flushes nothing: what was not taken stays for the others.
 *	One that a message had begun to use may come back flushed, says IBA;
 *	soft and sim keep it, and no more is allowed here.
 * S6	QP_LAST_WQE_REACHED comes once for each time that a QP goes to ERR. One
 *	that is moved on to RESET at once may be without.
 * S7	memory: a message's bytes are in the receive that completed, and
 *	nothing else changes, but in receives that a broken QP may have begun
 *	to use.
 * S8	destroy_srq() is refused while a QP uses it (run_srq.c).
 *
 * What is taken cannot be seen before its completion is polled, so numbers of
 * receives are known as least and most.
 */
#include "msrq.h"
#include "minner.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

void msrq_init(struct msrq *u, const struct program *p, granted_all granted)
{
	uint32_t at;
	int d;

	memset(u, 0, sizeof(*u));
	u->p = p;
	for (d = 0; d < 2; d++) {
		u->granted[d] = granted[SRQ_PAIR][d];
		for (at = 0; at < LANE; at++)
			u->s[d].mem[at] = lane_byte(
				p->seed, lane_of(p, SRQ_PAIR, d), d, at);
	}
}

__attribute__((format(printf, 2, 3))) static bool no(struct msrq *u,
						     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(u->why, u->why_len, fmt, ap);
	va_end(ap);
	return false;
}

static bool uses(const struct msrq *u, int pair, int side)
{
	return pair < u->p->pairs && u->p->cfg[pair].qp[side].srq;
}

static bool to_reset(const struct ev *v, int pair, int side)
{
	return v->kind == EV_STEP && v->pair == pair && !v->ret &&
	       (v->step->kind == STEP_CONNECT ||
		(v->step->kind == STEP_STATE && v->side == side &&
		 v->step->arg == IBV_QPS_RESET));
}

/* ---- S1, S2 ---- */

static bool post_one(struct msrq *u, int d, int ev, const struct wr *w,
		     uint64_t id, int err)
{
	struct msrq_side *s = &u->s[d];
	const struct granted *g = &u->granted[d];
	int most = s->n - s->observed, max = (int)g->recv_wr;
	bool invalid = w->n > g->recv_sge;

	if (err == EINVAL)
		return invalid || no(u, "S1: a good receive is refused");
	if (err == ENOMEM)
		return most >= max ||
		       no(u, "S1: refused, though only %d of %d", most, max);
	if (err || invalid)
		return no(u, "S1: answered %d", err);
	if (most - s->lost >= max)
		return no(u, "S1: beyond max_wr, %d", max);
	if (s->n == MSRQ_RECVS)
		return no(u, "too many receives");
	s->recv[s->n++] = (struct msrq_recv){.id = id, .w = w, .ev = ev};
	return true;
}

static bool post(struct msrq *u, const struct ev *v, int ev)
{
	const struct step *st = v->step;
	int k, err;

	for (k = 0; k < st->n; k++) {
		err = v->ret && k == v->n ? v->ret : 0;
		if (!post_one(u, v->side, ev, &st->wr[k],
			      id_make(SRQ_PAIR, v->side, true,
				      id_no(u->p, st, k)),
			      err))
			return false;
		if (err)
			break;
	}
	return true;
}

static bool take(struct msrq *u, const struct ev *v, int ev)
{
	struct msrq_side *s = &u->s[v->side];
	struct msrq_recv *r = s->recv, *end = s->recv + s->n;

	while (r < end && r->id != v->wc.id)
		r++;
	if (r == end || r->is_taken)
		return no(u, "S2: a receive of step %d %s",
			  (int)((uint32_t)v->wc.id / 8),
			  r == end ? "was not posted" : "completes twice");
	if (!v->wc.qp_ok || !uses(u, v->pair, v->side))
		return no(u, "S2: not by a QP of this SRQ");
	r->is_taken = true;
	r->taken = ev;
	s->observed++;
	return true;
}

static bool is_srq_wc(const struct ev *v)
{
	return v->kind == EV_WC && id_pair(v->wc.id) == SRQ_PAIR;
}

/* Messages to this QP up to event ev that are not known to have come. */
static int under_way(const struct msrq *u, const struct epoch *e,
		     const struct m_pair *was, int pair, int side, int ev)
{
	int n = was->s[!side].n, i, k;

	(void)u;
	for (i = 0; i < ev; i++) {
		const struct ev *v = &e->ev[i];

		if (is_srq_wc(v) && v->pair == pair && v->side == side)
			n--;
		if (v->kind != EV_STEP || v->step->kind != STEP_SEND ||
		    v->pair != pair || v->side == side)
			continue;
		for (k = 0; k < v->step->n; k++)
			n += op_is_message(v->step->wr[k].op);
	}
	return n > 0 ? n : 0;
}

static bool broken(const struct epoch *e, int pair)
{
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->pair == pair &&
		    ((v->kind == EV_WC && v->wc.status != IBV_WC_SUCCESS) ||
		     (v->kind == EV_STEP && (v->step->kind == STEP_STATE ||
					     v->step->kind == STEP_CONNECT))))
			return true;
	}
	return false;
}

/* S3: what is known by the end of the epoch. */
static void reckon(struct msrq *u, const struct epoch *e, int d)
{
	struct msrq_side *s = &u->s[d];
	struct msrq_sure *k = &s->sure;
	uint32_t len;
	int i;

	k->slack = s->lost;
	for (i = 0; i < u->p->pairs; i++)
		k->slack += uses(u, i, d) && broken(e, i);
	k->n[0] = 0;
	k->shortest[0] = UINT32_MAX;
	for (i = 0; i < s->n; i++) {
		len = s->recv[i].was_taken ? UINT32_MAX : wr_len(s->recv[i].w);
		k->n[i + 1] = k->n[i] + !s->recv[i].is_taken;
		k->shortest[i + 1] =
			len < k->shortest[i] ? len : k->shortest[i];
	}
}

static void lose(struct msrq_side *s, int n)
{
	s->lost += n;
	s->open_now |= n > 0;
}

/* Was a message to this QP flushed, or not answered? It may have begun to use a
 * receive before: when, and whether, no completion tells. One that was posted in
 * ERR has not. */
static bool untold(const struct msrq *u, const struct epoch *e,
		   const struct m_pair *was, int pair, int side)
{
	bool err = was->s[!side].state == IBV_QPS_ERR;
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];
		uint32_t no = (uint32_t)v->wc.id;

		if (to_reset(v, pair, !side))
			err = false;
		if (v->kind != EV_WC || v->pair != pair || v->side == side ||
		    id_recv(v->wc.id) || no & ID_MARK || err ||
		    (v->wc.status != IBV_WC_WR_FLUSH_ERR &&
		     v->wc.status != IBV_WC_RETRY_EXC_ERR))
			continue;
		if (op_is_send(u->p->step[no / 8].wr[no % 8].op))
			return true;
	}
	return false;
}

bool msrq_before(struct msrq *u, const struct epoch *e,
		 struct m_pair *const now[PAIRS], char *why, size_t len)
{
	int i, k, d;

	u->why = why;
	u->why_len = len;
	for (d = 0; d < 2; d++) {
		u->s[d].open_now = false;
		for (i = 0; i < u->s[d].n; i++) {
			u->s[d].recv[i].ev = -1;
			u->s[d].recv[i].was_taken = u->s[d].recv[i].is_taken;
		}
	}
	for (k = 0; k < u->p->pairs; k++)
		for (d = 0; d < 2; d++)
			u->s[d].open_now |=
				uses(u, k, d) && untold(u, e, now[k], k, d);
	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		for (k = 0; k < u->p->pairs; k++)
			for (d = 0; d < 2; d++)
				if (uses(u, k, d) && to_reset(v, k, d))
					lose(&u->s[d],
					     under_way(u, e, now[k], k, d, i));
		if (v->kind == EV_STEP && v->step->kind == STEP_SRQ_RECV &&
		    !post(u, v, i))
			return false;
		if (is_srq_wc(v) && !take(u, v, i))
			return false;
		if (v->kind == EV_STEP && v->step->kind == STEP_SRQ_LIMIT &&
		    v->ret != (v->step->arg > (int)u->granted[v->side].recv_wr
				       ? EINVAL
				       : 0))
			return no(u, "S4: limit %d is answered %d",
				  v->step->arg, v->ret);
	}
	reckon(u, e, 0);
	reckon(u, e, 1);
	return true;
}

/* ---- for the pairs ---- */

static bool lend(struct msrq *u, const struct epoch *e, struct m_pair *m, int d)
{
	struct msrq_side *s = &u->s[d];
	struct m_side *b = &m->s[d];
	uint32_t at;
	int i, k;

	b->n_took = b->rn = b->rhead = b->resets = 0;
	b->srq_open = false;
	b->sure = &s->sure;
	for (b->srq_seen = 0; b->srq_seen < s->n; b->srq_seen++)
		if (s->recv[b->srq_seen].ev >= 0)
			break;
	for (at = 0; at < LANE; at++)
		m->srq_mem[d][at] = M_OTHERS;
	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		b->resets += to_reset(v, m->pair, d);
		if (!is_srq_wc(v) || v->pair != m->pair || v->side != d)
			continue;
		if (b->n_took == M_QUEUE)
			return no(u, "too many receives of one QP");
		for (k = 0; s->recv[k].id != v->wc.id; k++)
			;
		b->rq[b->n_took++] = (struct m_req){
			.id = v->wc.id, .w = s->recv[k].w, .pos = (uint32_t)k};
	}
	while (b->rn < b->n_took && (int)b->rq[b->rn].pos < b->srq_seen)
		b->rn++;
	return true;
}

bool msrq_lend(struct msrq *u, const struct epoch *e, struct m_pair *m)
{
	int d;

	for (d = 0; d < 2; d++)
		if (m->s[d].srq && !lend(u, e, m, d))
			return false;
	return true;
}

void m_srq_posted(struct m_side *s, const struct ev *e)
{
	s->srq_seen += e->ret ? e->n : e->step->n;
	while (s->rn < s->n_took && (int)s->rq[s->rn].pos < s->srq_seen)
		s->rn++;
}

bool m_maybe_empty(const struct m_side *s)
{
	return !s->srq || s->sure->n[s->srq_seen] <= s->sure->slack;
}

/* ---- S4 ---- */

/* How many receives there were behind event ev: at most all that were posted
 * and not polled as completed; at least those that were not taken, or were
 * posted later. */
static void left(const struct msrq_side *s, int ev, int *least, int *most)
{
	int i;

	*least = -s->sure.slack;
	*most = 0;
	for (i = 0; i < s->n && s->recv[i].ev <= ev; i++) {
		const struct msrq_recv *r = &s->recv[i];

		*least += !r->is_taken;
		*most += !r->is_taken || (!r->was_taken && r->taken > ev);
	}
}

static int count_async(const struct epoch *e, int type, int pair, int side)
{
	int i, n = 0;

	for (i = 0; i < e->n; i++)
		n += e->ev[i].kind == EV_ASYNC && e->ev[i].n == type &&
		     e->ev[i].pair == pair && e->ev[i].side == side;
	return n;
}

static bool sets_limit(const struct ev *v, int d)
{
	return v->kind == EV_STEP && v->step->kind == STEP_SRQ_LIMIT &&
	       v->side == d && !v->ret;
}

/* From event `from`, at which a limit is set, or -1, to the next such one. */
struct reach {
	int from, end;
	bool may, must;
};

static struct reach reach(const struct msrq_side *s, const struct epoch *e,
			  int d, int from, uint32_t limit)
{
	struct reach r = {.from = from, .end = from};
	int least, most;

	do {
		left(s, r.end, &least, &most);
		r.may |= least < (int)limit;
		r.must |= most < (int)limit;
		r.end++;
	} while (r.end < e->n && !sets_limit(&e->ev[r.end], d));
	return r;
}

static bool queries_ok(struct msrq *u, const struct epoch *e, int d,
		       const struct reach *r, bool may)
{
	uint32_t limit = u->s[d].limit;
	int i;

	for (i = r->from < 0 ? 0 : r->from; i < r->end && i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind != EV_STEP || v->side != d ||
		    v->step->kind != STEP_SRQ_QUERY)
			continue;
		if (v->ret || v->n != (int)u->granted[d].recv_wr ||
		    (v->id != limit && !(v->id == 0 && may)))
			return no(u, "S4: query says %d, %d; set was %d", v->n,
				  (int)v->id, (int)limit);
	}
	return true;
}

static bool limits_ok(struct msrq *u, const struct epoch *e, int d)
{
	struct msrq_side *s = &u->s[d];
	int must = 0, may = s->late, got;
	struct reach r = {.end = -1};
	bool now;

	for (;;) {
		r = reach(s, e, d, r.end, s->limit);
		may += r.may;
		must += r.must && !s->maybe_reached;
		if (!queries_ok(u, e, d, &r, r.may || s->maybe_reached))
			return false;
		if (r.end >= e->n)
			break;
		s->limit = (uint32_t)e->ev[r.end].step->arg;
		s->maybe_reached = false;
	}
	got = count_async(e, IBV_EVENT_SRQ_LIMIT_REACHED, SRQ_PAIR, d);
	if (got < must || got > may)
		return no(u, "S4: %d limit events, expected %d to %d (side %d)",
			  got, must, may, d);
	/* was it for the last one? */
	now = r.must || (r.may && may == got);
	s->maybe_reached |= (r.may || s->late) && got > 0;
	s->late = may > got;
	if (now)
		s->limit = 0;
	s->maybe_reached &= s->limit > 0;
	return true;
}

/* ---- S6 ---- */

static bool last_ok(struct msrq *u, const struct epoch *e, int pair, int d)
{
	bool was = u->s[d].err[pair], is = e->state[pair][d] == IBV_QPS_ERR;
	int lives = 0, i, got, least, most;

	for (i = 0; i < e->n; i++)
		lives += to_reset(&e->ev[i], pair, d);
	/* The life that has been in ERR before has had its event. */
	least = is && !(was && !lives);
	most = lives - was + is;
	if (was && !lives)
		most = 0;
	got = count_async(e, IBV_EVENT_QP_LAST_WQE_REACHED, pair, d);
	u->s[d].err[pair] = is;
	return (got >= least && got <= most) ||
	       no(u,
		  "S6: %d events of the last WQE, expected %d to %d (pair %d "
		  "side %d)",
		  got, least, most, pair, d);
}

/* ---- S7 ---- */

static void mark(const struct wr *w, bool own[LANE])
{
	int i;

	for (i = 0; i < w->n; i++)
		if (w->sge[i].at + w->sge[i].len <= LANE)
			memset(own + w->sge[i].at, true, w->sge[i].len);
}

static bool memory_ok(struct msrq *u, const struct epoch *e,
		      struct m_pair *const next[PAIRS], int d)
{
	struct msrq_side *s = &u->s[d];
	bool own[LANE] = {false};
	bool open = s->open_now;
	int i, at;

	for (i = 0; i < u->p->pairs; i++) {
		if (!uses(u, i, d))
			continue;
		open |= u->p->cfg[i].type != IBV_QPT_UD &&
			next[i]->s[d].srq_open;
		for (at = 0; at < LANE; at++)
			own[at] |= next[i]->srq_mem[d][at] != M_OTHERS;
	}
	for (i = 0; open && i < s->n; i++)
		if (!s->recv[i].was_taken)
			mark(s->recv[i].w, own);
	for (at = 0; at < LANE; at++)
		if (!own[at] && s->mem[at] != e->srq_mem[d][at])
			return no(u,
				  "S7: memory of nobody's message (side %d "
				  "offset %d: 0x%02x, was 0x%02x)",
				  d, at, e->srq_mem[d][at], s->mem[at]);
	memcpy(s->mem, e->srq_mem[d], LANE);
	return true;
}

bool msrq_after(struct msrq *u, const struct epoch *e,
		struct m_pair *const next[PAIRS])
{
	int i, d;

	for (d = 0; d < 2; d++) {
		if (!u->p->srq[d].on)
			continue;
		if (!limits_ok(u, e, d) || !memory_ok(u, e, next, d))
			return false;
		for (i = 0; i < u->p->pairs; i++)
			if (uses(u, i, d) && !last_ok(u, e, i, d))
				return false;
	}
	return true;
}
