/* SPDX-License-Identifier: MIT */
/*
 * pace.h - when operations of an open loop are due: at a given rate whatever the
 * server does, as independent users come (exponential gaps) or evenly. Pure.
 *
 * An operation's latency counts from when it was due, not from when it could be
 * sent: so a server that stalls is charged for all that came meanwhile
 * (Tene's coordinated omission).
 */
#ifndef KV_YCSB_PACE_H
#define KV_YCSB_PACE_H

#include "base/prng.h"

#include <stdbool.h>

struct kv_pace {
	struct prng rng;
	double gap_ns; /* on the average; 0: a closed loop */
	double due_ns; /* of the next one, from begin_ns on */
	uint64_t begin_ns;
	bool even;
};

/* Worker `number` of `workers` that make `rate` operations a second together;
 * 0: no pace. */
void kv_pace_init(struct kv_pace *p, double rate, bool even, unsigned number,
		  unsigned workers, uint64_t seed, uint64_t now_ns);
/* When the next operation is due. */
static inline uint64_t kv_pace_due(const struct kv_pace *p)
{
	return p->begin_ns + (uint64_t)p->due_ns;
}
/* It has been taken: on to the one after it. */
void kv_pace_next(struct kv_pace *p);

#endif
