/* SPDX-License-Identifier: MIT */
/*
 * check.c - the comparer: see check.h.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

void check_init(struct check *c, const struct program *p, granted_all granted,
		unsigned quirks)
{
	int i;

	memset(c, 0, sizeof(*c));
	c->p = p;
	memset(c->armed, -1, sizeof(c->armed));
	for (i = 0; i < p->pairs; i++) {
		c->now[i] = malloc(sizeof(*c->now[i]));
		c->next[i] = malloc(sizeof(*c->next[i]));
		m_init(c->now[i], p, i, granted[i], quirks);
	}
	c->ud = malloc(sizeof(*c->ud));
	c->ud_next = malloc(sizeof(*c->ud_next));
	mud_init(c->ud, p, granted, quirks);
	if (!p->srq[0].on && !p->srq[1].on)
		return;
	c->srq = malloc(sizeof(*c->srq));
	c->srq_next = malloc(sizeof(*c->srq_next));
	msrq_init(c->srq, p, granted);
}

void check_fini(struct check *c)
{
	int i;

	for (i = 0; i < PAIRS; i++) {
		free(c->now[i]);
		free(c->next[i]);
	}
	free(c->ud);
	free(c->ud_next);
	free(c->srq);
	free(c->srq_next);
}

/* The wr_id names the QP of the completion, or its SRQ. */
static bool of_qp(const struct program *p, const struct ev *v)
{
	int pair = id_pair(v->wc.id);

	if (pair == SRQ_PAIR)
		return v->pair < p->pairs && p->cfg[v->pair].qp[v->side].srq;
	return pair < p->pairs && pair == v->pair;
}

/* Every completion by the CQ of its queue. */
static bool right_cqs(struct check *c, const struct epoch *e)
{
	int i;

	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];
		const struct qp_cfg *q;

		if (v->kind != EV_WC)
			continue;
		if (id_side(v->wc.id) != v->side || !of_qp(c->p, v)) {
			snprintf(c->why, sizeof(c->why),
				 "event %d: a completion of nobody", i);
			return false;
		}
		q = &c->p->cfg[v->pair].qp[v->side];
		if (v->cq != (id_recv(v->wc.id) ? q->rcq : q->scq)) {
			snprintf(c->why, sizeof(c->why),
				 "event %d: completion on the wrong CQ", i);
			return false;
		}
	}
	return true;
}

struct tally {
	int wcs, events;
	bool sol;
};

static void count(const struct check *c, const struct epoch *e, int side,
		  int cq, struct tally *t)
{
	int i;

	*t = (struct tally){0};
	for (i = 0; i < e->n; i++) {
		const struct ev *v = &e->ev[i];

		if (v->side != side || v->cq != cq)
			continue;
		t->wcs += v->kind == EV_WC;
		t->events += v->kind == EV_EVENT;
	}
	for (i = 0; i < c->p->pairs; i++)
		t->sol |= c->next[i]->sol[side][cq];
	t->sol |= c->ud_next->sol[side][cq];
}

/* A RESET may take completions back after their event was made. */
static bool took_back(const struct program *p, const struct epoch *e)
{
	int i;

	for (i = 0; i < e->n; i++) {
		const struct step *s = e->ev[i].step;

		if (e->ev[i].kind != EV_STEP)
			continue;
		if (s->kind == STEP_STATE && s->arg == IBV_QPS_RESET)
			return true;
		/* datagrams of the epoch before */
		if (s->kind == STEP_CONNECT &&
		    p->cfg[s->pair].type == IBV_QPT_UD)
			return true;
	}
	return false;
}

/* Datagrams of an epoch before may come at any time, their events in harsh mode
 * later still: whether an arming was before or behind them nobody knows, so of
 * a CQ that UD QPs receive by only too many events are wrong. */
static bool of_ud(const struct program *p, int side, int cq)
{
	int i;

	for (i = 0; i < p->pairs; i++)
		if (p->cfg[i].type == IBV_QPT_UD &&
		    p->cfg[i].qp[side].rcq == cq)
			return true;
	return false;
}

/* One event per arming, for the first completion that it asked for. */
static bool right_events(struct check *c, const struct epoch *e)
{
	int armed[2][CQS], wishes[2][CQS], i, side, cq;
	bool loose = took_back(c->p, e), due;
	struct tally t;

	memcpy(armed, c->armed, sizeof(armed));
	memcpy(wishes, c->wishes, sizeof(wishes));
	for (i = 0; i < e->n; i++) {
		const struct step *s = e->ev[i].step;

		if (e->ev[i].kind != EV_STEP || s->kind != STEP_ARM)
			continue;
		if (wishes[s->side][s->cq] < 2)
			wishes[s->side][s->cq]++;
		/* A wider wish stays. */
		if (armed[s->side][s->cq] != 0)
			armed[s->side][s->cq] = s->arg;
	}
	for (side = 0; side < 2; side++)
		for (cq = 0; cq < CQS; cq++) {
			count(c, e, side, cq, &t);
			due = (armed[side][cq] == 0 && t.wcs) ||
			      (armed[side][cq] == 1 && t.sol);
			if (t.events != due &&
			    !(loose && t.events == 1 && armed[side][cq] >= 0) &&
			    !(of_ud(c->p, side, cq) &&
			      t.events <= wishes[side][cq])) {
				snprintf(
					c->why, sizeof(c->why),
					"side %d CQ %d: %d events, expected %d",
					side, cq, t.events, due);
				return false;
			}
			if (t.events)
				armed[side][cq] = -1;
			wishes[side][cq] -= t.events;
			if (wishes[side][cq] < 0)
				wishes[side][cq] = 0;
		}
	memcpy(c->armed, armed, sizeof(armed));
	memcpy(c->wishes, wishes, sizeof(wishes));
	return true;
}

/* Once a step to ERR or RESET has returned, the peer touches no memory that
 * only this QP let it reach (dev.h: the device quiesces). */
static bool left_alone(struct check *c, const struct epoch *e)
{
	int i, d;
	uint32_t at;

	for (i = 0; i < c->p->pairs; i++)
		for (d = 0; d < 2; d++)
			for (at = REM_AT; e->shut[i][d] && at < LANE; at++)
				if (e->then[i][d][at - REM_AT] !=
				    e->mem[i][d][at]) {
					snprintf(c->why, sizeof(c->why),
						 "memory was written after the "
						 "QP was shut (pair %d side %d "
						 "offset %u)",
						 i, d, at);
					return false;
				}
	return true;
}

static bool pair_ok(struct check *c, const struct epoch *e, int i, char *why,
		    size_t len)
{
	*c->next[i] = *c->now[i];
	memset(c->next[i]->sol, 0, sizeof(c->next[i]->sol));
	c->next[i]->thorough = c->thorough;
	if (c->p->cfg[i].type == IBV_QPT_UD)
		return true;
	if (c->srq && !msrq_lend(c->srq_next, e, c->next[i]))
		return false;
	return m_explain(c->next[i], e, why, len);
}

static bool pairs_ok(struct check *c, const struct epoch *e)
{
	char why[120] = "";
	int i;

	if (c->srq) {
		*c->srq_next = *c->srq;
		if (!msrq_before(c->srq_next, e, c->now, why, sizeof(why))) {
			snprintf(c->why, sizeof(c->why), "SRQ: %s", why);
			return false;
		}
	}
	for (i = 0; i < c->p->pairs; i++)
		if (!pair_ok(c, e, i, why, sizeof(why))) {
			snprintf(c->why, sizeof(c->why), "pair %d: %s", i, why);
			return false;
		}
	if (c->srq && !msrq_after(c->srq_next, e, c->next)) {
		snprintf(c->why, sizeof(c->why), "SRQ: %s", why);
		return false;
	}
	return true;
}

bool check_epoch(struct check *c, const struct epoch *e)
{
	struct m_pair *was;
	struct msrq *srq;
	struct mud *ud;
	char why[120];
	int i;

	if (!right_cqs(c, e) || !left_alone(c, e) || !pairs_ok(c, e))
		return false;
	*c->ud_next = *c->ud;
	if (!mud_epoch(c->ud_next, e, why, sizeof(why))) {
		snprintf(c->why, sizeof(c->why), "UD: %s", why);
		return false;
	}
	if (!right_events(c, e))
		return false;
	ud = c->ud;
	c->ud = c->ud_next;
	c->ud_next = ud;
	srq = c->srq;
	c->srq = c->srq_next;
	c->srq_next = srq;
	for (i = 0; i < c->p->pairs; i++) {
		was = c->now[i];
		c->now[i] = c->next[i];
		c->next[i] = was;
		c->used |= c->now[i]->used;
	}
	return true;
}
