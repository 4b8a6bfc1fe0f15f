/* SPDX-License-Identifier: MIT */
/*
 * gen_ud.c - random steps of UD QPs. A datagram goes to the QP at the other
 * side of any UD pair: a QP hears from several.
 */
#include "gen.h"

#include <string.h>

static void datagram(struct gen *g, int pair, int side, struct wr *w)
{
	struct gen_side *s = &g->s[pair][side];
	uint32_t len = chance(g, 15) ? 0 : 1 + below(g, DGRAM_MAX);

	memset(w, 0, sizeof(*w));
	/* no two are alike: by their bytes, or by their immediate */
	w->op = len >= 12 && chance(g, 60) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
	w->imm = (uint32_t)prng_u64(&g->r);
	if (chance(g, 55) || s->sent + 1 >= g->p->cfg[pair].qp[side].depth_s)
		w->flags |= IBV_SEND_SIGNALED;
	if (chance(g, 25))
		w->flags |= IBV_SEND_SOLICITED;
	do
		w->dest = (uint8_t)below(g, (uint32_t)g->p->pairs);
	while (g->p->cfg[w->dest].type != IBV_QPT_UD);
	if (len <= INLINE_MAX && s->inl + len <= INL_LEN && chance(g, 30)) {
		gen_cut(g, s, w, len, INL_AT + s->inl, 0, 0);
		s->inl += len;
		w->flags |= IBV_SEND_INLINE;
	} else {
		gen_cut(g, s, w, len, SRC_AT, SRC_LEN, 0);
	}
	s->sent++;
}

/* One thing wrong. */
static void spoil(struct gen *g, int pair, int side, struct wr *w)
{
	switch (below(g, 5)) {
	case 0:
	case 1:
		w->bad_qkey = true;
		break;
	case 2: /* longer than the port's MTU */
		w->flags &= (uint8_t)~IBV_SEND_INLINE;
		w->n = 1;
		w->sge[0] = (struct piece){.mr = MR_ALL,
					   .len = 4097 + below(g, 1000)};
		break;
	default:
		if (!w->n || !w->sge[0].len || w->flags & IBV_SEND_INLINE)
			break;
		if (chance(g, 50))
			w->sge[0].bad = true;
		else
			w->sge[0].mr = MR_FOREIGN;
		g->s[pair][side].broken = true;
		break;
	}
}

/* What a post must refuse; only as the last of its list. */
static void refuse(struct gen *g, struct wr *w)
{
	int i;

	w->flags &= (uint8_t)~IBV_SEND_INLINE;
	if (chance(g, 50)) {
		w->op = IBV_WR_RDMA_READ; /* no such thing on UD */
		return;
	}
	for (i = 0; i < SGES + 1; i++)
		w->sge[i] = (struct piece){.mr = MR_ALL, .at = SRC_AT};
	w->n = SGES + 1;
}

static void add_sends(struct gen *g, int pair, int side)
{
	struct gen_side *s = &g->s[pair][side];
	int n = 1 + (int)below(g, 3);
	int room = g->p->cfg[pair].qp[side].depth_s - s->sent;
	struct step *st;

	if (!g->f->tame && chance(g, 10))
		room += 2;
	if (n > room)
		n = room;
	/* in RESET rxe would keep them: RXE_GHOST */
	if (n <= 0 || (g->f->rxe && s->reset))
		return;
	st = gen_step(g, STEP_SEND, pair, side);
	for (; st->n < n; st->n++) {
		datagram(g, pair, side, &st->wr[st->n]);
		if (!g->f->tame && chance(g, 8))
			spoil(g, pair, side, &st->wr[st->n]);
	}
	if (!g->f->tame && chance(g, 4)) {
		datagram(g, pair, side, &st->wr[st->n]);
		s->sent--;
		refuse(g, &st->wr[st->n++]);
		s->broken |= g->f->rxe; /* found wrong when it is sent */
	}
}

/* Receives have places of their own, from one CONNECT to the next, as it is not
 * known here which of them is done or was refused. */
static void add_recvs(struct gen *g, int pair, int side)
{
	struct gen_side *s = &g->s[pair][side];
	int n = 1 + (int)below(g, LIST);
	struct step *st;
	uint32_t len;

	if (s->rcv + (uint32_t)n > DGRAM_SLOTS)
		return;
	st = gen_step(g, STEP_RECV, pair, side);
	for (; st->n < n; st->n++) {
		struct wr *w = &st->wr[st->n];

		memset(w, 0, sizeof(*w));
		w->op = -1;
		len = g->f->tame || chance(g, 90) ? DGRAM_ROOM
						  : below(g, DGRAM_ROOM);
		gen_cut(g, s, w, len, RCV_AT + s->rcv * DGRAM_ROOM, 0,
			IBV_ACCESS_LOCAL_WRITE);
		s->rcv++;
		if (g->f->tame || !chance(g, 2) || !w->n || !w->sge[0].len)
			continue;
		s->broken = true;
		if (chance(g, 40))
			w->sge[0].bad = true;
		else
			w->sge[0].mr = chance(g, 50) ? MR_FOREIGN : MR_RO;
	}
}

void gen_ud(struct gen *g, int pair, int side, int what)
{
	static const int to[] = {IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTS,
				 IBV_QPS_RTS};
	struct gen_side *s = &g->s[pair][side];
	int st;

	if (what < 40) {
		add_sends(g, pair, side);
	} else if (what < 75) {
		add_recvs(g, pair, side);
	} else if (!g->f->tame && what < 97) {
		st = to[below(g, 4)];
		gen_step(g, STEP_STATE, pair, side)->arg = st;
		s->broken |= st != IBV_QPS_RTS;
		s->reset |= st == IBV_QPS_RESET;
	}
}
