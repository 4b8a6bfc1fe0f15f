/* SPDX-License-Identifier: MIT */
/*
 * tuner.h - how many calls a batch has, so that they keep a bound of latency
 * (RF-RPC, section 4.2, equation 3; docs/design/rf-rpc.md).
 *
 * The oldest call of each batch is measured, from the moment when it was made.
 * After TUNER_WINDOW of them the size falls by one if more than the tolerance
 * came late, and grows by one if less than a tenth of it did. So many late ones
 * may decide before the window ends. A larger size that came late at once is
 * tried again after a pause that doubles: else each trial would make calls
 * late. Size 1 is kept though calls are late, and counted.
 *
 * Pure: times come in, the size goes out. Thread rule: the thread that makes the
 * calls.
 */
#ifndef SKEIN_RPC_CLIENT_TUNER_H
#define SKEIN_RPC_CLIENT_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#define TUNER_WINDOW 64u
#define TUNER_PAUSE_MAX 64u /* windows */
#define TUNER_TOLERANCE 5u  /* percent, unless the user says otherwise */
#define TUNER_TOLERANCE_MAX 50u

struct tuner {
	uint64_t bound_ns;
	unsigned tolerance; /* percent */
	unsigned size, size_max;
	unsigned seen, late;	    /* in this window */
	bool grew;		    /* the window is the first at this size */
	unsigned pause, next_pause; /* windows before it grows again */
	uint64_t since_ns;	    /* calls made before had another size */
	/* all calls measured; windows at size 1 in which too many were late */
	uint64_t seen_all, late_all, unmet;
};

/* tolerance: percent, 0: TUNER_TOLERANCE. */
void tuner_init(struct tuner *t, uint64_t bound_ns, unsigned tolerance,
		unsigned size_max);
/* The oldest call of a batch, made at begun_ns, has ended. */
void tuner_ended(struct tuner *t, uint64_t begun_ns, uint64_t now_ns);

#endif
