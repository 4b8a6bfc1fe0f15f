/* SPDX-License-Identifier: MIT */
/*
 * pow2.h - sizes of tables: powers of two, so that a position is masked, or
 * grown by doubling.
 */
#ifndef SKEIN_BASE_POW2_H
#define SKEIN_BASE_POW2_H

#include <stdint.h>

/* first, doubled until it is at least n. first > 0; n is at most 2^63. */
static inline uint64_t doubled_to(uint64_t first, uint64_t n)
{
	while (first < n)
		first *= 2;
	return first;
}

static inline uint32_t pow2_at_least(uint32_t n)
{
	return (uint32_t)doubled_to(1, n);
}

#endif
