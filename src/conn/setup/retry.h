/* SPDX-License-Identifier: MIT */
/*
 * retry.h - when to try again: doubling pauses from 10 ms to 1 s.
 *
 * Pure: the time is passed in.
 */
#ifndef SKEIN_CONN_SETUP_RETRY_H
#define SKEIN_CONN_SETUP_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#define RETRY_PAUSE_MIN_NS (10 * 1000 * 1000ull)
#define RETRY_PAUSE_MAX_NS (1000 * 1000 * 1000ull)
#define RETRY_UNLIMITED UINT32_MAX

struct retry {
	uint32_t left;
	uint64_t pause_ns; /* the next one */
	uint64_t deadline_ns;
};

void retry_init(struct retry *r, uint32_t retries, uint64_t deadline_ns);
/* Is this a failure that may go away by itself? */
bool retry_helps(int err);
/* After a failure at now_ns: true, and *at_ns is the time to try again; false
 * when there is no more try. hint_ns: the least pause that the peer has asked
 * for, or 0. A busy peer that has asked for a pause is tried until the
 * deadline, even without retries left. */
bool retry_next(struct retry *r, int err, uint64_t now_ns, uint64_t hint_ns,
		uint64_t *at_ns);

#endif
