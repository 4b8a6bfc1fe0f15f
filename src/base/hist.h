/* SPDX-License-Identifier: MIT */
/*
 * hist.h - a histogram of nanoseconds after the HDR scheme.
 *
 * Buckets keep 8 significant bits: a percentile is at most 1/128 (0.8 %) above
 * the true value, from 0 to HIST_MAX_NS (higher values count as that). Fixed
 * memory (about 34 KiB), recording is a few instructions without a branch that
 * depends on the value. No locks: one a thread, then hist_merge().
 */
#ifndef SKEIN_BASE_HIST_H
#define SKEIN_BASE_HIST_H

#include <stdint.h>

#define HIST_BITS 7		       /* of precision, below the leading one */
#define HIST_MAX_NS ((1ull << 40) - 1) /* 18 minutes */
#define HIST_BUCKETS (((40 - HIST_BITS - 1) << HIST_BITS) + (2 << HIST_BITS))

struct hist {
	uint64_t count;
	uint64_t sum_ns; /* of the values as recorded */
	uint64_t min_ns, max_ns;
	uint64_t buckets[HIST_BUCKETS];
};

void hist_init(struct hist *h);
void hist_record(struct hist *h, uint64_t ns);
/* The same value n times. */
void hist_record_n(struct hist *h, uint64_t ns, uint64_t n);
/* Records ns. If ns is longer than the interval at which operations were meant
 * to start, also records the waits of the operations that could not start
 * meanwhile (coordinated omission). */
void hist_record_corrected(struct hist *h, uint64_t ns, uint64_t interval_ns);
void hist_merge(struct hist *into, const struct hist *from);
/* The smallest value that `percent` (0 to 100) of the values do not exceed,
 * rounded up to its bucket's end, within [min, max]. 0 when empty. */
uint64_t hist_percentile(const struct hist *h, double percent);
/* 0 when empty. */
uint64_t hist_mean(const struct hist *h);

#endif
