/* SPDX-License-Identifier: MIT */
/*
 * gen_srq.c - random steps of shared receive queues. A side has at most one,
 * and its QPs, of any type, may receive from it.
 *
 * Nothing is known here of which receive was taken, so each has a place of its
 * own, for once: that bounds how many there are. Messages of an epoch are no
 * more than the queue is deep: then what waits for a receive finds one by the
 * SYNC, however many of those posted were refused.
 */
#include "gen.h"

#include <string.h>

#define RECV_MAX 320

bool gen_srq_due(const struct gen *g)
{
	return !g->f->no_srq && (g->f->srq || g->p->seed % 8 == 4);
}

static void srq_config(struct gen *g, int side)
{
	static const uint16_t lens[] = {64, 64, 128, RECV_MAX};
	struct srq_cfg *c = &g->p->srq[side];
	int i;

	*c = (struct srq_cfg){.on = true,
			      .plain = chance(g, 25),
			      .depth = (uint8_t)(3 + below(g, 14)),
			      .len = lens[below(g, 4)]};
	for (i = 0; i < g->p->pairs; i++)
		if (g->p->cfg[i].type != IBV_QPT_UD)
			g->p->cfg[i].qp[side].srq = chance(g, 85);
}

void gen_srq_config(struct gen *g)
{
	int some = 1 + (int)below(g, 3);

	if (some & 1)
		srq_config(g, 0);
	if (some & 2)
		srq_config(g, 1);
}

static uint32_t recv_len(struct gen *g, int side)
{
	uint32_t len = g->p->srq[side].len;

	return g->f->tame || chance(g, 90) ? len : below(g, len);
}

static bool place_left(const struct gen *g, int side, int n)
{
	return g->q[side].at + (uint32_t)n * g->p->srq[side].len <= LANE;
}

static void make_recv(struct gen *g, int side, struct wr *w)
{
	static const struct gen_side no_mortal = {.mortal_dead = true};
	struct gen_srq *q = &g->q[side];
	uint32_t len = recv_len(g, side);

	memset(w, 0, sizeof(*w));
	w->op = -1;
	gen_cut(g, &no_mortal, w, len, q->at, 0, IBV_ACCESS_LOCAL_WRITE);
	q->at += len;
	q->recvs++;
	if (g->f->tame || !chance(g, 2) || !w->n || !w->sge[0].len)
		return;
	if (chance(g, 40))
		w->sge[0].bad = true;
	else
		w->sge[0].mr = chance(g, 50) ? MR_FOREIGN : MR_RO;
}

void gen_srq_recvs(struct gen *g, int side, int n)
{
	struct gen_srq *q = &g->q[side];
	int room = g->p->srq[side].depth - q->low - q->recvs;
	struct step *st = NULL;

	/* Too many are refused. */
	if (!g->f->tame && chance(g, 10))
		room += 3;
	for (; n > 0 && room > 0 && place_left(g, side, 1); n--, room--) {
		if (!st || st->n == LIST)
			st = gen_step(g, STEP_SRQ_RECV, SRQ_PAIR, side);
		make_recv(g, side, &st->wr[st->n++]);
	}
	if (!g->f->tame && st && st->n < LIST && chance(g, 3))
		st->wr[st->n++] = (struct wr){.op = -1, .n = SGES + 1};
}

void gen_srq_wrong_recv(struct gen *g, int pair, int side)
{
	struct step *st = gen_step(g, STEP_RECV, pair, side);

	st->wr[st->n++] = (struct wr){.op = -1};
}

bool gen_srq_may(const struct gen *g, int side)
{
	int msgs = g->q[side].msgs + 1;

	return msgs < g->p->srq[side].depth && place_left(g, side, msgs + LIST);
}

int gen_srq_need(const struct gen *g, int side)
{
	return g->q[side].msgs - g->q[side].low - g->q[side].recvs;
}

void gen_srq_step(struct gen *g)
{
	int side = (int)below(g, 2), what = (int)below(g, 100);
	uint32_t depth = g->p->srq[side].depth;
	struct step *st;

	if (!g->p->srq[side].on)
		return;
	if (what < 50) {
		gen_srq_recvs(g, side, 1 + (int)below(g, 4));
	} else if (what < 80) {
		st = gen_step(g, STEP_SRQ_LIMIT, SRQ_PAIR, side);
		st->arg = 1 + (int)below(g, depth);
		if (!g->f->tame && chance(g, 15))
			st->arg = chance(g, 50) ? 0 : 1000;
	} else {
		gen_step(g, STEP_SRQ_QUERY, SRQ_PAIR, side);
	}
}

/* Does one wait for ever for its receive? */
static bool patient(const struct gen *g, int side)
{
	int i;

	for (i = 0; i < g->p->pairs; i++)
		if (on_srq(g, i, side) && g->p->cfg[i].rnr_retry == 7)
			return true;
	return false;
}

void gen_srq_top_up(struct gen *g)
{
	int d;

	for (d = 0; d < 2; d++)
		if (g->p->srq[d].on && (patient(g, d) || chance(g, 50)))
			gen_srq_recvs(g, d, gen_srq_need(g, d));
}

void gen_srq_epoch_end(struct gen *g)
{
	int i, d, later;

	for (d = 0; d < 2; d++) {
		struct gen_srq *q = &g->q[d];

		for (later = 0, i = 0; i < g->p->pairs; i++)
			if (on_srq(g, i, d) && g->s[i][!d].sqd)
				later += g->s[i][!d].msgs;
		q->low += q->recvs;
		if (q->low > g->p->srq[d].depth)
			q->low = g->p->srq[d].depth;
		q->low -= q->msgs - later;
		if (q->low < 0)
			q->low = 0;
		q->recvs = 0;
		q->msgs = later;
	}
}
