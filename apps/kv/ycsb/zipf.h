/* SPDX-License-Identifier: MIT */
/*
 * zipf.h - zipfian numbers by the method of Gray et al., "Quickly generating
 * billion-record synthetic databases" (SIGMOD 1994), as YCSB uses it: number i
 * (from 0) comes with probability 1 / ((i + 1)^theta * zeta(n, theta)), exact
 * for 0 and 1, by an integral for the rest.
 *
 * Thread rule: one thread; threads may copy a computed one.
 */
#ifndef KV_YCSB_ZIPF_H
#define KV_YCSB_ZIPF_H

#include <stdint.h>

#include "base/prng.h"

#define KV_ZIPF_THETA 0.99

struct kv_zipf {
	uint64_t n;
	double theta;
	double zetan; /* sum of 1 / i^theta for i from 1 to n */
	double zeta2;
	double alpha;
	double eta;
	double half_pow; /* 1 + 0.5^theta */
};

/* Told how far a long sum has come; may be NULL. */
typedef void kv_zipf_progress(void *arg, uint64_t done, uint64_t total);

/* Adds the terms from + 1 to n to sum, which is zeta(from). */
double kv_zeta(uint64_t from, uint64_t n, double theta, double sum,
	       kv_zipf_progress *progress, void *arg);

/* n >= 1 numbers, theta in (0, 1). zetan 0: it is computed, which takes some
 * 20 ns for each number. */
void kv_zipf_init(struct kv_zipf *z, uint64_t n, double theta, double zetan,
		  kv_zipf_progress *progress, void *arg);
/* More numbers: adds what is new to the sum. */
void kv_zipf_grow(struct kv_zipf *z, uint64_t n);
uint64_t kv_zipf_next(const struct kv_zipf *z, struct prng *rng);

#endif
