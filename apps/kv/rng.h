/* SPDX-License-Identifier: MIT */
/*
 * rng.h - the workloads' random numbers: xoshiro256++ (Blackman and Vigna),
 * seeded by splitmix64, so that one seed gives one sequence of operations.
 * Fit for statistics, not for secrets.
 */
#ifndef KV_RNG_H
#define KV_RNG_H

#include <stdint.h>

struct kv_rng {
	uint64_t s[4];
};

static inline void kv_rng_init(struct kv_rng *r, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = seed += 0x9e3779b97f4a7c15ull;

		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		r->s[i] = z ^ z >> 31;
	}
}

static inline uint64_t kv_rng_rotl(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

static inline uint64_t kv_rng_next(struct kv_rng *r)
{
	uint64_t *s = r->s;
	uint64_t out = kv_rng_rotl(s[0] + s[3], 23) + s[0];
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = kv_rng_rotl(s[3], 45);
	return out;
}

/* Evenly from 0 to n - 1; n is at least 1. The bias is below n / 2^64. */
static inline uint64_t kv_rng_below(struct kv_rng *r, uint64_t n)
{
	return (uint64_t)((unsigned __int128)kv_rng_next(r) * n >> 64);
}

/* Evenly in [0, 1). */
static inline double kv_rng_double(struct kv_rng *r)
{
	return (double)(kv_rng_next(r) >> 11) * 0x1.0p-53;
}

#endif
