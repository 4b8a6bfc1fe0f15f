/* SPDX-License-Identifier: MIT */
/*
 * prng.h - reproducible random numbers (xoshiro256**, Blackman and Vigna):
 * the same seed gives the same sequence on every machine. For workloads, tests
 * and simulation; secrets come from env_random(). No locks: one a thread.
 */
#ifndef SKEIN_BASE_PRNG_H
#define SKEIN_BASE_PRNG_H

#include <stddef.h>
#include <stdint.h>

struct prng {
	uint64_t s[4];
};

void prng_init(struct prng *r, uint64_t seed);
uint64_t prng_u64(struct prng *r);
/* Uniform in [0, n), without bias; n > 0. */
uint64_t prng_below(struct prng *r, uint64_t n);
/* Uniform in [0, 1), 53 bits. */
double prng_double(struct prng *r);
void prng_fill(struct prng *r, void *buf, size_t len);
/* One step of splitmix64: a good mixer of 64 bits. */
uint64_t prng_mix(uint64_t v);

#endif
