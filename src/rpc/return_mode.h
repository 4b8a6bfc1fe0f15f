/* SPDX-License-Identifier: MIT */
/*
 * return_mode.h - whether results are better fetched or replied, decided from
 * what a caller sees (RF-RPC, sections 3.2 and 3.3; docs/design/rf-rpc.md).
 *
 * Fetching saves the server's processor time, so it is tried only when the
 * server says that its engine lacks that. There is at most one switch an
 * interval. At its end the rate of answered calls is compared with that of the
 * interval before: a switch that did not pay is taken back, and the next one
 * comes after twice the time. Answers that take more than R READs speak against
 * fetching too.
 *
 * Pure: counts and the time come in, the mode goes out.
 */
#ifndef SKEIN_RPC_RETURN_MODE_H
#define SKEIN_RPC_RETURN_MODE_H

#include <stdbool.h>
#include <stdint.h>

#define RETURN_MODE_INTERVAL_NS UINT64_C(10000000)
#define RETURN_MODE_INTERVAL_MAX_NS (1024 * RETURN_MODE_INTERVAL_NS)
/* So many intervals without a decision are a pause, not a busy machine. */
#define RETURN_MODE_PAUSE 8u

struct return_mode {
	bool fetch;   /* what is wanted */
	bool starved; /* the server's word, in the last answer */
	bool slow;    /* in this interval answers took more than R */
	bool judged;  /* the last interval's end was a switch */
	uint64_t calls, calls_before; /* answered, in this and the one before */
	uint64_t span_ns;	      /* how long that was */
	uint64_t since_ns, interval_ns;
	uint64_t switches;
};

static inline void return_mode_answered(struct return_mode *m, unsigned calls,
					bool starved)
{
	m->calls += calls;
	m->starved = starved;
}

static inline void return_mode_slow(struct return_mode *m)
{
	m->slow = true;
}

void return_mode_init(struct return_mode *m, uint64_t now_ns);
/* The interval may have ended: true when the mode is another one now. */
bool return_mode_decide(struct return_mode *m, uint64_t now_ns);

#endif
