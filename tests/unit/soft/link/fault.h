/* SPDX-License-Identifier: MIT */
/*
 * fault.h - a bad wire, from a seed: what becomes of each packet that goes one
 * way. The engine's tests (world.h) and the relay between TUN devices
 * (tests/e2e/wire.c) have the same.
 *
 * Pure: the same seed and the same packets at the same times give the same
 * fates. Each packet draws as many random numbers, whatever the faults are: so
 * a fault more leaves the others where they were.
 */
#ifndef SKEIN_TESTS_LINK_FAULT_H
#define SKEIN_TESTS_LINK_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_kind {
	FAULT_LOST,
	FAULT_TWICE,
	FAULT_LATE,    /* those behind it come first */
	FAULT_FLIPPED, /* a bit of it */
	FAULT_SHORT,   /* its end is missing */
	FAULT_MARKED,  /* as a switch marks it, of congestion */
	FAULT_CUT,     /* the wire was away */
	FAULT_FULL,    /* the queue was */
	FAULT_KINDS
};

struct fault {
	unsigned of_1000[FAULT_CUT + 1]; /* packets; of a cut: that one begins */
	uint64_t late_ns;		 /* at most */
	uint64_t cut_ns;		 /* a cut, at most */
	uint64_t delay_ns;		 /* each packet */
	uint64_t rate;			 /* bytes a second; 0: no limit */
	uint64_t queue;			 /* bytes that may wait for it */
	uint64_t packets, counts[FAULT_KINDS];
	/* its own */
	uint64_t rng, cut_until, free_at, last_at;
};

struct fate {
	bool gone;
	bool marked;
	uint64_t at;
	uint64_t again_at; /* 0: not twice; the second one is whole */
	size_t len;
	size_t flip; /* 0: none, else 1 + the bit */
};

extern const char *const fault_names[FAULT_KINDS];

/* Zero but for what its user has set: a wire without a fault, if nothing. */
void fault_init(struct fault *f, uint64_t seed);
/* A packet of len bytes is sent. */
void fault_next(struct fault *f, uint64_t now, size_t len, struct fate *out);
bool fault_is_bad(const struct fault *f);

#endif
