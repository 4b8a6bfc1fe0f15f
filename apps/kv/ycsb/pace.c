/* SPDX-License-Identifier: MIT */
/*
 * pace.c - see pace.h.
 */
#include "kv/ycsb/pace.h"

#include <math.h>

static double gap(struct kv_pace *p)
{
	/* 1 - u is in (0, 1]: its logarithm is finite */
	return p->even ? p->gap_ns
		       : -log(1.0 - prng_double(&p->rng)) * p->gap_ns;
}

void kv_pace_init(struct kv_pace *p, double rate, bool even, unsigned number,
		  unsigned workers, uint64_t seed, uint64_t now_ns)
{
	prng_init(&p->rng, seed);
	p->gap_ns = rate > 0 ? 1e9 * workers / rate : 0;
	p->even = even;
	p->begin_ns = now_ns;
	/* even workers take turns */
	p->due_ns = even ? p->gap_ns * number / workers : gap(p);
}

void kv_pace_next(struct kv_pace *p)
{
	p->due_ns += gap(p);
}
