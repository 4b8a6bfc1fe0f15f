/* SPDX-License-Identifier: MIT */
/*
 * prng.c - xoshiro256** seeded by splitmix64, as its authors recommend.
 */
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"

#define GOLDEN 0x9e3779b97f4a7c15ull

static uint64_t rotl(uint64_t v, int k)
{
	return v << k | v >> (64 - k);
}

uint64_t prng_mix(uint64_t v)
{
	v += GOLDEN;
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

void prng_init(struct prng *r, uint64_t seed)
{
	int i;

	for (i = 0; i < 4; i++, seed += GOLDEN)
		r->s[i] = prng_mix(seed);
}

uint64_t prng_u64(struct prng *r)
{
	uint64_t *s = r->s;
	uint64_t result = rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t prng_below(struct prng *r, uint64_t n)
{
	unsigned __int128 m;
	uint64_t low;

	skein_assert(n > 0);
	/* Lemire's method: the result is the high half of a product. The low
	 * half shows the few draws that would favour small numbers; these are
	 * drawn again. */
	m = (unsigned __int128)prng_u64(r) * n;
	low = (uint64_t)m;
	if (low < n) {
		uint64_t threshold = -n % n;

		while (low < threshold) {
			m = (unsigned __int128)prng_u64(r) * n;
			low = (uint64_t)m;
		}
	}
	return (uint64_t)(m >> 64);
}

double prng_double(struct prng *r)
{
	return (double)(prng_u64(r) >> 11) * 0x1.0p-53;
}

void prng_fill(struct prng *r, void *buf, size_t len)
{
	unsigned char *p = buf;
	uint64_t v;
	size_t n;

	for (; len; p += n, len -= n) {
		v = prng_u64(r);
		n = len < sizeof(v) ? len : sizeof(v);
		memcpy(p, &v, n);
	}
}
