/* SPDX-License-Identifier: MIT */
/*
 * gen.c - the generator: struct program from a seed.
 *
 * Most of what it posts is right, about one request in 25 has one thing
 * wrong. It keeps clear of what has no defined result: nothing is overwritten
 * while a request may read it, requests that touch what a READ or an atomic
 * brings, or overwrite what it reads, are fenced; a message that waits for
 * ever has its receive before the SYNC. For that it counts: no more messages
 * in an epoch than the peer's queue is deep, and none in a place of a list or
 * queue where it might be refused.
 *
 * For rxe (features.rxe) it keeps clear of what hangs or breaks a QP there for
 * good: a READ or atomic behind a fenced
 * request that may have to be sent again; a READ of no bytes; on RC, a request
 * that its own QP finds wrong behind one that has no answer yet; SQD; and of an
 * opcode that does not exist, by which that kernel reads beyond a table.
 */
#include "gen.h"

#include <string.h>

uint8_t lane_byte(uint64_t seed, int pair, int side, uint32_t at)
{
	uint64_t v = prng_mix(seed * 64 + (uint64_t)(pair * 2 + side) +
			      ((uint64_t)(at / 8) << 40));

	return (uint8_t)(v >> at % 8 * 8);
}

static uint64_t lane_word(const struct program *p, int pair, int side,
			  uint32_t at)
{
	uint64_t v = 0;
	uint32_t i;

	for (i = 0; i < 8; i++)
		v |= (uint64_t)lane_byte(p->seed, pair, side, at + i) << 8 * i;
	return v;
}

struct step *gen_step(struct gen *g, int kind, int pair, int side)
{
	struct program *p = g->p;
	struct step *s = &p->step[p->n < STEPS - 1 ? p->n++ : STEPS - 1];

	*s = (struct step){.kind = (uint8_t)kind,
			   .pair = (uint8_t)pair,
			   .side = (uint8_t)side};
	return s;
}

static uint32_t msg_len(struct gen *g)
{
	switch (below(g, 8)) {
	case 0:
		return 0;
	case 1:
		return 200 + below(g, MSG_MAX - 300);
	case 2:
		return 64 + below(g, 200);
	default:
		return 1 + below(g, 64);
	}
}

/* A kind of MR that is good for [at, at + len) and these rights. */
static uint8_t pick_mr(struct gen *g, const struct gen_side *owner, uint32_t at,
		       uint32_t len, int access)
{
	uint8_t k;

	for (;;) {
		k = (uint8_t)below(g, MR_KINDS);
		if (mr_defs[k].foreign ||
		    (mr_defs[k].access & access) != access ||
		    at < mr_defs[k].at || at + len > mr_defs[k].end)
			continue;
		if (k == MR_MORTAL && owner->mortal_dead)
			continue;
		return k;
	}
}

/* Cuts len into up to max pieces from one area or, if at is not given, from
 * places of their own. */
void gen_cut(struct gen *g, const struct gen_side *owner, struct wr *w,
	     uint32_t len, uint32_t at, uint32_t area, int access)
{
	uint32_t part, where;
	int n = 1 + (int)below(g, SGES), i;

	if (len == 0 && chance(g, 50))
		n = 0;
	w->n = (uint8_t)n;
	for (i = 0; i < n; i++) {
		part = i == n - 1 ? len : below(g, len + 1);
		if (area) {
			where = at + below(g, area - part + 1);
		} else {
			where = at;
			at += part;
		}
		w->sge[i] = (struct piece){.mr = pick_mr(g, owner, where, part,
							 access),
					   .at = where,
					   .len = part};
		len -= part;
	}
}

static const int ops[] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_READ,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
};

static int right_for(int op)
{
	if (op_is_atomic(op))
		return IBV_ACCESS_REMOTE_ATOMIC;
	return op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
				      : IBV_ACCESS_REMOTE_WRITE;
}

/* Behind a fence on rxe there is neither READ nor atomic. A connection that may
 * do nothing else has no fences. */
static bool may_fence(const struct gen *g, int pair, int side)
{
	return !g->f->rxe ||
	       g->p->cfg[pair].qp[!side].access & IBV_ACCESS_REMOTE_WRITE;
}

/* May a request be one that its own QP finds wrong? */
static bool may_fail_here(const struct gen *g, int pair, int side)
{
	return !g->f->rxe || g->p->cfg[pair].type != IBV_QPT_RC ||
	       g->s[pair][side].sent <= 1;
}

static bool op_allowed(struct gen *g, int pair, int side, int op, bool last)
{
	const struct pair_cfg *c = &g->p->cfg[pair];
	struct gen_side *s = &g->s[pair][side];

	if (op_is_message(op) && on_srq(g, pair, !side) &&
	    !gen_srq_may(g, !side))
		return false;
	if (op_is_message(op) && (s->msgs >= c->qp[!side].depth_r || s->sqd ||
				  last || s->sent >= c->qp[side].depth_s))
		return false;
	if (op_fetches(op) && g->f->rxe && s->fenced)
		return false;
	if (op_fetches(op) &&
	    (c->type == IBV_QPT_UC || s->dst + MSG_MAX > DST_LEN))
		return false;
	if (!op_is_send(op) && !(c->qp[!side].access & right_for(op)) &&
	    (g->f->tame || !chance(g, 4)))
		return false;
	return true;
}

static void target(struct gen *g, int pair, int side, struct wr *w)
{
	struct gen_side *peer = &g->s[pair][!side];
	uint32_t len = wr_len(w);

	if (op_is_atomic(w->op)) {
		w->to.at = REM_AT + 8 * below(g, 8);
		w->a = below(g, 1000);
		if (w->op == IBV_WR_ATOMIC_CMP_AND_SWP && chance(g, 60))
			w->a = lane_word(g->p, pair, !side, w->to.at);
		w->b = prng_u64(&g->r);
		len = 8;
	} else {
		w->to.at =
			REM_AT + below(g, chance(g, 40) ? 64 : REM_LEN - len);
		if (w->to.at + len > REM_AT + REM_LEN)
			w->to.at = REM_AT;
	}
	w->to.mr = pick_mr(g, peer, w->to.at, len, right_for(w->op));
}

/* One thing wrong, most of them with the key or the range. */
static void spoil(struct gen *g, int pair, int side, struct wr *w)
{
	struct piece *l = &w->sge[0];
	bool local = w->n && l->len && !(w->flags & IBV_SEND_INLINE) &&
		     (op_fetches(w->op) || may_fail_here(g, pair, side));
	bool remote = !op_is_send(w->op) && wr_len(w);
	static const uint8_t no_right[] = {MR_LOCAL, MR_RO, MR_WO, MR_NOATOMIC};
	uint8_t k;

	switch (below(g, 10)) {
	case 0:
		l->bad = local;
		break;
	case 1:
		if (local)
			l->mr = MR_FOREIGN;
		break;
	case 2: /* out of the region, at its end */
		if (local)
			*l = (struct piece){.mr = MR_SHORT,
					    .at = SHORT_END - l->len + 1,
					    .len = l->len};
		break;
	case 3:
		if (local && op_fetches(w->op))
			l->mr = MR_RO;
		break;
	case 4:
		w->to.bad = remote;
		break;
	case 5:
		if (remote)
			w->to.mr = MR_FOREIGN;
		break;
	case 6:
	case 7:
		k = no_right[below(g, sizeof(no_right))];
		if (remote && !(mr_defs[k].access & right_for(w->op)))
			w->to.mr = k;
		break;
	case 8:
		if (remote && !op_is_atomic(w->op)) {
			w->to.mr = MR_SHORT;
			w->to.at = chance(g, 50) ? SHORT_END - wr_len(w) + 1
						 : SHORT_AT - 1;
		}
		break;
	default:
		if (op_is_atomic(w->op) && chance(g, 50))
			w->to.at += 1 + below(g, 7);
		else if (op_is_atomic(w->op) && w->n == 1)
			l->len = 4;
		break;
	}
}

/* What a post must refuse; only as the last of its list. */
static void refuse(struct gen *g, struct wr *w, bool may_read)
{
	int i;

	switch (below(g, 3)) {
	case 0:
		if (g->f->rxe)
			break;
		w->op = 77;
		w->flags = 0;
		w->n = 0;
		break;
	case 1:
		for (i = w->n; i < SGES + 1; i++)
			w->sge[i] = (struct piece){.mr = MR_ALL, .at = SRC_AT};
		w->n = SGES + 1;
		break;
	default: /* rxe takes it: as a READ of no bytes, on RC */
		if (g->f->rxe && !may_read)
			break;
		w->op = IBV_WR_RDMA_READ;
		w->flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
		w->n = 0;
		break;
	}
}

/* most: of a message to an SRQ, or 0 */
static void body(struct gen *g, struct gen_side *s, struct wr *w, bool fence,
		 uint32_t most)
{
	uint32_t len = msg_len(g);

	if (most && op_is_send(w->op) && (g->f->tame || !chance(g, 3)))
		len %= most + 1;
	if (op_is_atomic(w->op))
		len = 8;
	else if (!fence && s->fetched && !op_is_send(w->op) &&
		 w->op != IBV_WR_RDMA_READ)
		len = 0;
	if (op_fetches(w->op)) {
		if (s->dst + len > DST_LEN)
			len = 0;
		if (!len && g->f->rxe) { /* not of no bytes: see above */
			s->dst -= s->dst == DST_LEN;
			len = 1;
		}
		gen_cut(g, s, w, len, DST_AT + s->dst, 0,
			IBV_ACCESS_LOCAL_WRITE);
		s->dst += (len + 7) & ~7u;
	} else if (len <= INLINE_MAX && s->inl + len <= INL_LEN &&
		   chance(g, 30)) {
		gen_cut(g, s, w, len, INL_AT + s->inl, 0, 0);
		s->inl += len;
		w->flags |= IBV_SEND_INLINE;
	} else if (fence && s->fetched && len && chance(g, 40)) {
		w->flags |= IBV_SEND_FENCE;
		gen_cut(g, s, w, len < s->dst ? len : s->dst, DST_AT, s->dst,
			0);
	} else {
		gen_cut(g, s, w, len, SRC_AT, SRC_LEN, 0);
	}
	/* What an earlier READ or atomic reads is not overwritten under it. */
	if (s->fetched && !op_is_send(w->op) && w->op != IBV_WR_RDMA_READ)
		w->flags |= IBV_SEND_FENCE;
	if (!fence || (g->f->rxe && op_fetches(w->op)))
		w->flags &= (uint8_t)~IBV_SEND_FENCE;
	s->fenced |= !!(w->flags & IBV_SEND_FENCE);
	if (op_fetches(w->op))
		s->fetched = true;
}

static void make_send(struct gen *g, int pair, int side, struct wr *w,
		      bool last)
{
	struct gen_side *s = &g->s[pair][side];
	int tries;

	memset(w, 0, sizeof(*w));
	w->op = -1;
	for (tries = 0; tries < 100 && w->op < 0; tries++) {
		w->op = ops[below(g, sizeof(ops) / sizeof(ops[0]))];
		if (!op_allowed(g, pair, side, w->op, last))
			w->op = -1;
	}
	/* One of the two is allowed to every QP. */
	if (w->op < 0)
		w->op = g->p->cfg[pair].type == IBV_QPT_UC ||
					g->p->cfg[pair].qp[!side].access &
						IBV_ACCESS_REMOTE_WRITE
				? IBV_WR_RDMA_WRITE
				: IBV_WR_RDMA_READ;
	if (s->sqd || chance(g, 55))
		w->flags |= IBV_SEND_SIGNALED;
	/* A queue full of unsignalled requests is full for ever. */
	if (s->sent + 1 >= g->p->cfg[pair].qp[side].depth_s)
		w->flags |= IBV_SEND_SIGNALED;
	if (chance(g, 25))
		w->flags |= IBV_SEND_SOLICITED;
	if (chance(g, 5))
		w->flags |= IBV_SEND_FENCE;
	body(g, s, w, may_fence(g, pair, side),
	     on_srq(g, pair, !side) ? g->p->srq[!side].len : 0);
	w->imm = (uint32_t)prng_u64(&g->r);
	if (!op_is_send(w->op)) {
		target(g, pair, side, w);
		if (right_for(w->op) & ~g->p->cfg[pair].qp[!side].access)
			s->broken = true;
	}
	if (op_is_message(w->op)) {
		s->msgs++;
		g->q[!side].msgs += on_srq(g, pair, !side);
	}
	s->sent++;
	if (!g->f->tame && chance(g, 4)) {
		spoil(g, pair, side, w);
		s->broken = true;
	}
}

static void make_recv(struct gen *g, int pair, int side, struct wr *w)
{
	struct gen_side *s = &g->s[pair][side];
	uint32_t len = g->f->tame || chance(g, 85) ? MSG_MAX : msg_len(g);

	memset(w, 0, sizeof(*w));
	w->op = -1;
	if (s->rcv + len > RCV_LEN)
		s->rcv = 0;
	gen_cut(g, s, w, len, RCV_AT + s->rcv, 0, IBV_ACCESS_LOCAL_WRITE);
	s->rcv += len / 4;
	s->recvs++;
	if (g->f->tame || !chance(g, 2) || !w->n || !w->sge[0].len)
		return;
	s->broken = true;
	if (chance(g, 40))
		w->sge[0].bad = true;
	else
		w->sge[0].mr = chance(g, 50) ? MR_FOREIGN : MR_RO;
}

static void add_recvs(struct gen *g, int pair, int side, int n)
{
	struct gen_side *s = &g->s[pair][side];
	int depth = g->p->cfg[pair].qp[side].depth_r;
	struct step *st = NULL;

	if (on_srq(g, pair, side)) {
		if (!g->f->tame && chance(g, 3))
			gen_srq_wrong_recv(g, pair, side);
		gen_srq_recvs(g, side, n);
		return;
	}
	for (; n > 0 && s->surplus + s->recvs < depth; n--) {
		if (!st || st->n == LIST)
			st = gen_step(g, STEP_RECV, pair, side);
		make_recv(g, pair, side, &st->wr[st->n++]);
	}
	/* Too many pieces: refused. */
	if (!g->f->tame && st && st->n < LIST && chance(g, 3)) {
		st->wr[st->n] = (struct wr){.op = -1, .n = SGES + 1};
		st->n++;
	}
}

static void add_sends(struct gen *g, int pair, int side)
{
	struct gen_side *s = &g->s[pair][side];
	const struct pair_cfg *c = &g->p->cfg[pair];
	int n = chance(g, 50) ? 1 : 1 + (int)below(g, LIST);
	int room = c->qp[side].depth_s - s->sent, before = s->msgs, i;
	struct step *st;

	/* One more than fits: refused, or not if the device has room. */
	if (!g->f->tame && chance(g, 10))
		room += 2;
	if (n > room)
		n = room;
	if (n <= 0)
		return;
	st = gen_step(g, STEP_SEND, pair, side);
	for (i = 0; i < n; i++) {
		make_send(g, pair, side, &st->wr[i],
			  s->sent >= c->qp[side].depth_s);
		st->n++;
	}
	if (!g->f->tame && n < LIST && chance(g, 4)) {
		make_send(g, pair, side, &st->wr[n], true);
		refuse(g, &st->wr[n], c->type == IBV_QPT_UC && !s->fenced);
		st->n++;
		s->sent--;
		/* rxe finds some of them wrong only when it sends them */
		s->broken |= g->f->rxe;
	}
	/* A finite patience: most receives are there before. */
	if (s->msgs > before && c->rnr_retry != 7 &&
	    (g->f->tame || chance(g, 85))) {
		struct step mine = *st;
		struct gen_side *peer = &g->s[pair][!side];
		int need = on_srq(g, pair, !side)
				   ? gen_srq_need(g, !side)
				   : s->msgs - peer->surplus - peer->recvs;

		g->p->n--;
		add_recvs(g, pair, !side, need);
		*gen_step(g, STEP_SEND, pair, side) = mine;
	}
}

/* What SQD held back is not seen of an unsignalled request: all that a QP has
 * had since it was connected are signalled. */
static void signal_all(struct gen *g, int pair, int side)
{
	struct step *s = g->p->step + g->p->n;
	int k;

	while (s-- > g->p->step) {
		if (s->kind == STEP_CONNECT && s->pair == pair)
			return;
		if (s->kind != STEP_SEND || s->pair != pair || s->side != side)
			continue;
		for (k = 0; k < s->n; k++)
			s->wr[k].flags |= IBV_SEND_SIGNALED;
	}
}

static void add_state(struct gen *g, int pair, int side)
{
	static const int to[] = {IBV_QPS_ERR,  IBV_QPS_ERR, IBV_QPS_RESET,
				 IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
				 IBV_QPS_SQD,  IBV_QPS_SQD, IBV_QPS_SQD};
	struct gen_side *s = &g->s[pair][side];
	int st = s->sqd ? IBV_QPS_RTS : to[below(g, 9)];

	/* from SQE, in which its QP may be */
	if (g->p->cfg[pair].type == IBV_QPT_UC && s->broken && chance(g, 50))
		st = IBV_QPS_RTS;

	/* From INIT, RTR only where CONNECT left it on the way. */
	if (s->broken && st == IBV_QPS_RTR && !s->init)
		return;
	if (g->f->rxe && st == IBV_QPS_SQD)
		return;
	gen_step(g, STEP_STATE, pair, side)->arg = st;
	if (st == IBV_QPS_ERR || st == IBV_QPS_RESET)
		s->broken = true;
	if (st == IBV_QPS_RESET)
		s->init = false;
	if (st == IBV_QPS_SQD)
		signal_all(g, pair, side);
	if (st == IBV_QPS_RTS || st == IBV_QPS_SQD)
		s->sqd = st == IBV_QPS_SQD;
}

static void add_mortal(struct gen *g, int pair, int side)
{
	struct gen_side *s = &g->s[pair][side];

	if (g->f->rxe && g->p->cfg[pair].type == IBV_QPT_RC && s->sent)
		return;
	gen_step(g, s->mortal_dead ? STEP_REG : STEP_DEREG, pair, side);
	s->mortal_dead = !s->mortal_dead;
	s->broken = true; /* what was posted before may fail now */
}

static void connect_pair(struct gen *g, int pair)
{
	struct step *st = gen_step(g, STEP_CONNECT, pair, 0);
	int d;

	st->arg = g->f->tame || g->p->cfg[pair].type == IBV_QPT_UD ||
				  chance(g, 92)
			  ? IBV_QPS_RTS
			  : (chance(g, 50) ? IBV_QPS_RTR : IBV_QPS_INIT);
	for (d = 0; d < 2; d++) {
		struct gen_side *s = &g->s[pair][d];

		s->surplus = s->recvs = s->msgs = s->sent = 0;
		if (g->p->cfg[pair].type == IBV_QPT_UD)
			s->rcv = 0;
		s->sqd = s->broken = false;
		s->init = s->reset = false;
	}
	g->s[pair][1].init = st->arg == IBV_QPS_INIT;
	g->s[pair][1].broken = st->arg != IBV_QPS_RTS;
}

/* Every message that would wait for ever finds its receive. */
static void top_up(struct gen *g, int pair)
{
	int d;

	if (g->p->cfg[pair].type == IBV_QPT_UD)
		return;
	for (d = 0; d < 2; d++) {
		struct gen_side *s = &g->s[pair][d], *peer = &g->s[pair][!d];

		if (on_srq(g, pair, !d))
			continue;
		if (g->p->cfg[pair].rnr_retry == 7 || chance(g, 50))
			add_recvs(g, pair, !d,
				  s->msgs - peer->surplus - peer->recvs);
	}
}

static void epoch_end(struct gen *g)
{
	int i, d;

	for (i = 0; i < g->p->pairs; i++)
		top_up(g, i);
	if (g->srq)
		gen_srq_top_up(g);
	gen_step(g, STEP_SYNC, 0, 0);
	if (g->srq)
		gen_srq_epoch_end(g);
	for (i = 0; i < g->p->pairs; i++)
		for (d = 0; d < 2; d++) {
			struct gen_side *s = &g->s[i][d];

			s->surplus += s->recvs;
			s->recvs = 0;
			if (g->s[i][!d].sqd) /* its messages may still wait */
				continue;
			s->surplus -= g->s[i][!d].msgs;
			if (s->surplus < 0)
				s->surplus = 0;
		}
	for (i = 0; i < g->p->pairs; i++)
		for (d = 0; d < 2; d++) {
			struct gen_side *s = &g->s[i][d];

			if (s->sqd) /* what waits keeps its place */
				continue;
			s->sent = s->msgs = 0;
			s->inl = s->dst = 0;
			s->fetched = s->fenced = false;
		}
}

static void epoch(struct gen *g)
{
	int steps = 3 + (int)below(g, 12), i, pair, side;
	struct step *st;

	for (i = 0; i < g->p->pairs; i++)
		if ((g->f->tame || g->s[i][0].broken || g->s[i][1].broken) &&
		    chance(g, g->f->tame ? 20 : 75))
			connect_pair(g, i);
	for (i = 0; i < 2 * CQS; i++)
		if (chance(g, 25)) {
			st = gen_step(g, STEP_ARM, 0, i % 2);
			st->cq = (uint8_t)(i / 2);
			st->arg = chance(g, 50);
		}
	while (steps-- > 0) {
		pair = (int)below(g, (uint32_t)g->p->pairs);
		side = (int)below(g, 2);
		i = (int)below(g, 100);
		if (g->srq && chance(g, 15)) {
			gen_srq_step(g);
			continue;
		}
		if (g->p->cfg[pair].type == IBV_QPT_UD && (i < 75 || i >= 90))
			gen_ud(g, pair, side, i);
		else if (i < 50)
			add_sends(g, pair, side);
		else if (i < 75)
			add_recvs(g, pair, side, 1 + (int)below(g, 4));
		else if (i < 90) {
			st = gen_step(g, STEP_POLL, 0, side);
			st->cq = (uint8_t)below(g, CQS);
			st->arg = 1 + (int)below(g, 4);
		} else if (g->f->tame)
			continue;
		else if (i < 97)
			add_state(g, pair, side);
		else
			add_mortal(g, pair, side);
	}
	epoch_end(g);
}

static enum ibv_qp_type pick_type(struct gen *g)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC,
						 IBV_QPT_UC, IBV_QPT_UD};
	enum ibv_qp_type t;

	do
		t = types[below(g, 4)];
	while (g->f->types && !(g->f->types & 1u << t));
	return t;
}

static void config(struct gen *g, struct pair_cfg *c)
{
	int d;

	c->type = pick_type(g);
	c->mtu = (enum ibv_mtu)(IBV_MTU_256 + 2 * below(g, 3));
	if (c->type == IBV_QPT_RC && (g->f->tame || chance(g, 75)))
		c->rnr_retry = 7;
	else
		c->rnr_retry = 1; /* on UC nothing is waited for */
	for (d = 0; d < 2; d++) {
		struct qp_cfg *q = &c->qp[d];

		q->scq = (uint8_t)below(g, CQS);
		q->rcq = (uint8_t)below(g, CQS);
		q->depth_s = (uint8_t)(2 + below(g, LIST_DEPTH - 1));
		q->depth_r = (uint8_t)(2 + below(g, LIST_DEPTH - 1));
		q->sig_all = chance(g, 15);
		q->single = chance(g, 25);
		q->access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			    IBV_ACCESS_REMOTE_ATOMIC;
		if (c->type == IBV_QPT_UC) {
			q->access = g->f->tame || chance(g, 90)
					    ? IBV_ACCESS_REMOTE_WRITE
					    : 0;
			continue;
		}
		if (chance(g, 15))
			q->access &= ~IBV_ACCESS_REMOTE_ATOMIC;
		if (chance(g, 15))
			q->access &= chance(g, 50) ? ~IBV_ACCESS_REMOTE_READ
						   : ~IBV_ACCESS_REMOTE_WRITE;
	}
}

void program_make(struct program *p, uint64_t seed, const struct features *f)
{
	struct gen g = {.p = p, .f = f};
	int epochs, i;

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	prng_init(&g.r, seed);
	g.srq = gen_srq_due(&g);
	p->pairs = 1 + (int)below(&g, PAIRS);
	if (g.srq && p->pairs < PAIRS)
		p->pairs++;
	for (i = 0; i < p->pairs; i++)
		config(&g, &p->cfg[i]);
	if (g.srq)
		gen_srq_config(&g);
	for (i = 0; i < p->pairs; i++)
		connect_pair(&g, i);
	for (epochs = 2 + (int)below(&g, 5); epochs > 0; epochs--)
		if (p->n < STEPS - 80)
			epoch(&g);
}
