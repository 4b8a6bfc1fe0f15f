/* SPDX-License-Identifier: MIT */
/*
 * gen.h - what the parts of the generator share: gen.c, and gen_ud.c, which
 * makes the steps of UD QPs.
 */
#ifndef SKEIN_TESTS_CONFORM_GEN_H
#define SKEIN_TESTS_CONFORM_GEN_H

#include "base/prng.h"
#include "program.h"

struct gen_side {
	int surplus;	       /* receives that wait, at most */
	int recvs, msgs, sent; /* in this epoch */
	uint32_t inl, dst, rcv;
	bool fetched; /* an unfenced READ or atomic may be under way */
	bool fenced;  /* a fenced request may be */
	bool sqd, broken, mortal_dead, init, reset;
};

/* A shared receive queue. */
struct gen_srq {
	int low;   /* receives that wait, at least */
	int recvs; /* of this epoch, and messages to its QPs */
	int msgs;
	uint32_t at; /* in its lane: places are taken once */
};

struct gen {
	struct program *p;
	struct prng r;
	const struct features *f;
	struct gen_side s[PAIRS][2];
	struct gen_srq q[2];
	bool srq; /* this program has some */
};

static inline uint32_t below(struct gen *g, uint32_t n)
{
	return (uint32_t)prng_below(&g->r, n);
}

static inline bool chance(struct gen *g, uint32_t percent)
{
	return below(g, 100) < percent;
}

struct step *gen_step(struct gen *g, int kind, int pair, int side);
/* Cuts len into up to SGES pieces from one area or, if area is 0, from at on;
 * each with a kind of MR that is good for these rights. */
void gen_cut(struct gen *g, const struct gen_side *owner, struct wr *w,
	     uint32_t len, uint32_t at, uint32_t area, int access);

/* gen_ud.c: one step of a UD QP; what: 0 to 99, of which kind. */
void gen_ud(struct gen *g, int pair, int side, int what);

/* gen_srq.c: of a program with shared receive queues */
bool gen_srq_due(const struct gen *g);
void gen_srq_config(struct gen *g);
/* Receives to a side's SRQ. */
void gen_srq_recvs(struct gen *g, int side, int n);
/* A receive to a QP that has an SRQ: refused. */
void gen_srq_wrong_recv(struct gen *g, int pair, int side);
/* May one more message go to a QP of this side? */
bool gen_srq_may(const struct gen *g, int side);
/* Receives that the messages so far may lack. */
int gen_srq_need(const struct gen *g, int side);
void gen_srq_step(struct gen *g);
/* Before the SYNC; behind it. */
void gen_srq_top_up(struct gen *g);
void gen_srq_epoch_end(struct gen *g);

static inline bool on_srq(const struct gen *g, int pair, int side)
{
	return g->p->cfg[pair].qp[side].srq;
}

#endif
