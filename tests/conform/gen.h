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
	bool sqd, broken, mortal_dead, init;
};

struct gen {
	struct program *p;
	struct prng r;
	const struct features *f;
	struct gen_side s[PAIRS][2];
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

#endif
