/* SPDX-License-Identifier: MIT */
/*
 * search.c - is an epoch explained by the model?
 *
 * A depth-first search over orders of actions, by replay: a path is the list
 * of choices made, each attempt plays the epoch from its start along the path
 * and then takes the first choice everywhere. The first choices are those of
 * an eager device, so an epoch without a race needs one attempt. Places that
 * were seen before (same progress everywhere) are not entered again.
 */
#include "minner.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PATH 2048
#define SEEN (1u << 18)
/* As many times more of both, when all has come that will. */
#define THOROUGH 16

/* How often each order of choices is tried: first those of a device that does
 * everything at once; then those of a device that works only when the program
 * waits; then the first ones again, for long. */
static const struct phase {
	bool lazy;
	int attempts;
} phases[] = {{false, 2000}, {true, 2000}, {false, 40000}};

struct search {
	const struct epoch *e;
	int n_ev; /* events of this pair */
	const struct ev *ev[EPOCH_EVENTS];
	int n, at; /* choices made; played */
	uint8_t choice[PATH], of[PATH];
	uint64_t *seen;
	uint32_t n_seen, seen_max;
	bool lazy;
	bool full;     /* seen is: what is new is not entered any more */
	bool restless; /* some QP broke or was reset: the odd actions count */
	int far;       /* the furthest event that was explained */
	char *why;
	size_t why_len;
};

struct option {
	uint8_t act, side;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static uint64_t progress(const struct m_pair *m, int at)
{
	uint64_t h = (uint64_t)at + 1;
	int d, i;

	for (d = 0; d < 2; d++) {
		const struct m_side *s = &m->s[d];

		h = mix(h, (uint64_t)s->state << 8 | (uint64_t)s->fault << 1 |
				   (uint64_t)s->stuck);
		h = mix(h, (uint64_t)s->n << 24 | (uint64_t)s->exec << 16 |
				   (uint64_t)s->ack << 8 | (uint64_t)s->rhead |
				   (uint64_t)s->held << 32);
		h = mix(h, (uint64_t)s->n_out[0] << 16 | (uint64_t)s->n_out[1]);
		h = mix(h, s->history);
		for (i = 0; i < s->n_out[0]; i++)
			h = mix(h, s->out[0][i].id << 8 |
					   (uint64_t)s->out[0][i].status);
		for (i = 0; i < s->n_out[1]; i++)
			h = mix(h, s->out[1][i].id << 8 |
					   (uint64_t)s->out[1][i].status);
	}
	return h | 1;
}

/* True: not seen before. A full table explains nothing more, and says so. */
static bool enter(struct search *q, uint64_t h)
{
	uint32_t i = (uint32_t)h % q->seen_max;

	for (; q->seen[i]; i = (i + 1) % q->seen_max)
		if (q->seen[i] == h)
			return false;
	if (q->n_seen > q->seen_max / 2) {
		q->full = true;
		return false;
	}
	q->seen[i] = h;
	q->n_seen++;
	return true;
}

/* Does a step of the program take the completions of side d back? */
static bool resets(const struct ev *e, int d)
{
	return e->kind == EV_STEP &&
	       (e->step->kind == STEP_CONNECT ||
		(e->step->kind == STEP_STATE && e->side == d &&
		 e->step->arg == IBV_QPS_RESET));
}

/* The receive of side d that is polled next, behind those that the model has
 * ready; NULL: none, before it is reset. */
static const struct ev *next_recv(const struct search *q,
				  const struct m_pair *m, int at, int d)
{
	int ready = m->s[d].n_out[1] - m->s[d].taken[1];

	for (; at < q->n_ev && !resets(q->ev[at], d); at++) {
		const struct ev *e = q->ev[at];

		if (e->kind == EV_WC && e->side == d && id_recv(e->wc.id) &&
		    ready-- == 0)
			return e;
	}
	return NULL;
}

/* UC's choices are many, and nobody's answer tells which was made; but the
 * receive that is polled next may. */
static bool telling(const struct search *q, const struct m_pair *m, int at,
		    int d, enum m_act act)
{
	const struct m_side *a = &m->s[d], *b = &m->s[!d];
	const struct ev *e;

	if (!m_uc(m) || a->exec == a->n || b->rhead == b->rn)
		return false;
	e = next_recv(q, m, at, !d);
	if (!e || e->wc.id != b->rq[b->rhead].id)
		return false;
	if (act == M_OTHER)
		return e->wc.status == IBV_WC_LOC_PROT_ERR;
	return act == M_DROP && e->wc.status == IBV_WC_SUCCESS &&
	       e->wc.flags & IBV_WC_WITH_IMM &&
	       op_has_imm(a->sq[a->exec].w->op) &&
	       e->wc.imm == a->sq[a->exec].w->imm;
}

static int options(const struct search *q, const struct m_pair *m, int at,
		   struct option *o)
{
	static const uint8_t own[] = {M_BREAK, M_ACK, M_EXEC};
	static const uint8_t odd[] = {M_OTHER,	  M_LATE, M_LOST, M_CUT,
				      M_CUT_HERE, M_DROP, M_GONE, M_GONE_LONG,
				      M_GONE_BAD, M_WAKE, M_FLY,  M_SENT};
	int n = 0, d;
	size_t i;

	for (d = 0; d < 2; d++)
		if (m_can(m, d, M_OTHER) && telling(q, m, at, d, M_OTHER))
			o[n++] = (struct option){M_OTHER, (uint8_t)d};
	if (q->lazy && at < q->n_ev)
		o[n++] = (struct option){M_STEP, 0};
	for (d = 0; d < 2; d++)
		for (i = 0; i < sizeof(own); i++)
			if (m_can(m, d, own[i]))
				o[n++] = (struct option){own[i], (uint8_t)d};
	if (!q->lazy && at < q->n_ev)
		o[n++] = (struct option){M_STEP, 0};
	for (d = 0; d < 2; d++)
		if (m_can(m, d, M_STOP))
			o[n++] = (struct option){M_STOP, (uint8_t)d};
	for (d = 0; (q->restless || m_uc(m)) && d < 2; d++)
		for (i = 0; i < sizeof(odd); i++)
			if (m_can(m, d, odd[i]) &&
			    !telling(q, m, at, d, odd[i]))
				o[n++] = (struct option){odd[i], (uint8_t)d};
	return n;
}

/* -1: this path leads to where another has been. */
static int choose(struct search *q, const struct m_pair *m, int at, int n)
{
	if (n == 1)
		return 0;
	if (q->at == q->n) {
		if (q->n == PATH || !enter(q, progress(m, at)))
			return -1;
		q->of[q->n] = (uint8_t)n;
		q->choice[q->n++] = 0;
	}
	return q->choice[q->at++];
}

static bool next_path(struct search *q)
{
	while (q->n && q->choice[q->n - 1] + 1 == q->of[q->n - 1])
		q->n--;
	if (!q->n)
		return false;
	q->choice[q->n - 1]++;
	return true;
}

__attribute__((format(printf, 3, 4))) static void say(struct search *q, int at,
						      const char *fmt, ...)
{
	va_list ap;

	if (at < q->far || !q->why)
		return;
	q->far = at;
	va_start(ap, fmt);
	vsnprintf(q->why, q->why_len, fmt, ap);
	va_end(ap);
}

/* What this pair's messages wrote to the memory of side d's SRQ. */
static bool srq_memory_ok(struct search *q, struct m_pair *m, int d)
{
	uint32_t i;

	for (i = 0; i < LANE; i++) {
		m_byte want = m->srq_mem[d][i];
		uint8_t got = q->e->srq_mem[d][i];

		if (want & (M_OTHERS | M_ANY) ||
		    (want & M_OR && want >> 16 == got) || (want & 0xff) == got)
			continue;
		say(q, q->n_ev,
		    "memory of the SRQ (side %d offset %u: 0x%02x, expected "
		    "0x%02x)",
		    d, i, got, want & 0xff);
		return false;
	}
	return true;
}

/* What is left when the program has ended and no action is possible. */
static bool end_ok(struct search *q, struct m_pair *m)
{
	int d, k;
	uint32_t i;

	for (d = 0; d < 2; d++) {
		struct m_side *s = &m->s[d];

		if (s->srq && !srq_memory_ok(q, m, d))
			return false;
		for (k = 0; k < 2; k++)
			while (s->taken[k] < s->n_out[k])
				if (!s->out[k][s->taken[k]++].optional) {
					say(q, q->n_ev,
					    "a completion is missing (side %d %s of step %d: %s)",
					    d, k ? "receive" : "request",
					    (int)((uint32_t)s
							  ->out[k]
							       [s->taken[k] - 1]
							  .id /
						  8),
					    status_name(
						    s->out[k][s->taken[k] - 1]
							    .status));
					return false;
				}
		if ((int)s->state != q->e->state[m->pair][d]) {
			say(q, q->n_ev,
			    "state of the QP (side %d: %s, expected %s)", d,
			    state_name(q->e->state[m->pair][d]),
			    state_name((int)s->state));
			return false;
		}
		for (i = 0; i < LANE; i++) {
			uint8_t got = q->e->mem[m->pair][d][i];

			if (s->mem[i] == M_ANY ||
			    (s->mem[i] & M_OR && s->mem[i] >> 16 == got))
				s->mem[i] = got;
			s->mem[i] &= 0xff;
			if (s->mem[i] != got) {
				say(q, q->n_ev,
				    "memory (side %d offset %u: 0x%02x, expected 0x%02x)",
				    d, i, got, s->mem[i]);
				return false;
			}
		}
	}
	return true;
}

/* Completions come in order, so what the model has ready is what is polled
 * next: a path on which it is not, is left at once. Only a RESET may take the
 * rest back. */
static bool foretold(const struct search *q, const struct m_pair *m, int at,
		     int d, int k)
{
	const struct m_side *s = &m->s[d];
	int t = s->taken[k];
	const struct ev *e;

	for (; at < q->n_ev; at++) {
		e = q->ev[at];
		if (resets(e, d))
			return true;
		if (e->kind != EV_WC || e->side != d || id_recv(e->wc.id) != k)
			continue;
		while (t < s->n_out[k] && s->out[k][t].optional &&
		       !m_same(m, &s->out[k][t], e))
			t++;
		if (t == s->n_out[k])
			return true;
		if (!m_same(m, &s->out[k][t++], e))
			return false;
	}
	while (t < s->n_out[k] && s->out[k][t].optional)
		t++;
	return t == s->n_out[k];
}

static bool hopeful(const struct search *q, const struct m_pair *m, int at)
{
	return foretold(q, m, at, 0, 0) && foretold(q, m, at, 0, 1) &&
	       foretold(q, m, at, 1, 0) && foretold(q, m, at, 1, 1);
}

static bool play_event(struct search *q, struct m_pair *m, int at)
{
	const struct ev *e = q->ev[at];
	bool sol;

	if (e->kind == EV_WC) {
		if (m_poll(m, e, &sol)) {
			m->sol[e->side][e->cq] |= sol;
			return true;
		}
		say(q, at,
		    "completion not allowed here (event %d, side %d %s of step "
		    "%d: %s)",
		    at, e->side, id_recv(e->wc.id) ? "receive" : "request",
		    (int)((uint32_t)e->wc.id / 8), status_name(e->wc.status));
		return false;
	}
	if (m_step(m, e))
		return true;
	say(q, at, "answer not allowed (event %d, step %d: %d)", at,
	    e->step ? (int)(e->step - m->p->step) : -1, e->ret);
	return false;
}

/* Has each message of UC that was sent met its fate? */
static bool has_arrived(const struct m_pair *m)
{
	return !m_uc(m) ||
	       (m->s[0].exec >= m->s[0].ack && m->s[1].exec >= m->s[1].ack);
}

static bool play(struct search *q, struct m_pair *m)
{
	struct option o[2 * M_ACTS + 2];
	int at = 0, n, k;

	q->at = 0;
	for (;;) {
		n = options(q, m, at, o);
		if (at == q->n_ev && (n == 0 || o[0].act > M_BREAK) &&
		    (n == 0 || has_arrived(m)))
			return has_arrived(m) && end_ok(q, m);
		k = choose(q, m, at, n);
		if (k < 0)
			return false;
		if (o[k].act != M_STEP) {
			m_do(m, o[k].side, o[k].act);
			if (!hopeful(q, m, at))
				return false;
			continue;
		}
		if (!play_event(q, m, at++))
			return false;
	}
}

static bool posts_srq(const struct m_pair *m, const struct ev *v)
{
	return v->kind == EV_STEP && v->step->kind == STEP_SRQ_RECV &&
	       m->s[v->side].srq;
}

/* On the link what was sent goes on, so these have odd ends without a failure. */
static bool cuts(const struct m_pair *m, const struct ev *v)
{
	return m->quirks & M_QUIRK_LINK && v->kind == EV_STEP &&
	       (v->step->kind == STEP_DEREG || v->step->kind == STEP_STATE ||
		v->step->kind == STEP_CONNECT);
}

static void collect(struct search *q, const struct m_pair *m)
{
	const struct epoch *e = q->e;
	int i, d;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->kind == EV_EVENT || v->kind == EV_ASYNC ||
		    (v->pair != m->pair && !posts_srq(m, v)))
			continue;
		q->ev[q->n_ev++] = v;
		q->restless |= cuts(m, v);
		for (d = 0; d < 2; d++)
			q->restless |= m->s[d].srq && resets(v, d);
		if (v->kind == EV_WC && v->wc.status != IBV_WC_SUCCESS)
			q->restless = true;
	}
	for (d = 0; d < 2; d++)
		if (e->state[m->pair][d] == IBV_QPS_ERR ||
		    e->state[m->pair][d] == IBV_QPS_RESET)
			q->restless = true;
}

/* SRQs' memory is copied only where there is one. */
static size_t m_len(const struct m_pair *m)
{
	return m->s[0].srq || m->s[1].srq ? sizeof(*m)
					  : offsetof(struct m_pair, srq_mem);
}

/* In one order of the choices: true, or m is left as it was. */
static bool run_phase(struct search *q, const struct phase *ph,
		      const struct m_pair *m, struct m_pair *try)
{
	size_t len = m_len(m);
	int i;

	q->lazy = ph->lazy;
	q->full = false;
	q->n = 0;
	if (q->n_seen)
		memset(q->seen, 0, q->seen_max * sizeof(*q->seen));
	q->n_seen = 0;
	for (i = 0; i < ph->attempts * (m->thorough ? THOROUGH : 1); i++) {
		memcpy(try, m, len);
		if (play(q, try))
			return true;
		if (!next_path(q))
			return false;
	}
	q->full = true;
	return false;
}

static void say_gave_up(char *why, size_t len)
{
	char best[64];

	snprintf(best, sizeof(best), "%s", why);
	snprintf(why, len, "the search for an explanation gave up (%s)", best);
}

bool m_explain(struct m_pair *m, const struct epoch *e, char *why,
	       size_t why_len)
{
	struct search *q = calloc(1, sizeof(*q));
	struct m_pair *try = malloc(sizeof(*try));
	bool ok = false;
	size_t i;

	q->e = e;
	q->why = why;
	q->why_len = why_len;
	q->seen_max = m->thorough ? THOROUGH * SEEN : SEEN;
	q->seen = calloc(q->seen_max, sizeof(*q->seen));
	collect(q, m);
	for (i = 0; i < sizeof(phases) / sizeof(phases[0]) && !ok; i++) {
		ok = run_phase(q, &phases[i], m, try);
		if (!ok && !q->full)
			break; /* all orders were looked at */
	}
	if (ok) {
		memcpy(m, try, m_len(m));
		m_tidy(m);
	} else if (q->full) {
		say_gave_up(why, why_len);
	}
	free(q->seen);
	free(try);
	free(q);
	return ok;
}
