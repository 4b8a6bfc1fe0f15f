/* SPDX-License-Identifier: MIT */
/*
 * hash.c - see hash.h.
 */
#include "cp/hash.h"

static uint64_t not_0(uint64_t h)
{
	return h ? h : 1;
}

uint64_t cp_block_hash(const void *data, size_t len)
{
	return not_0(XXH3_64bits(data, len));
}

uint64_t cp_block_hash_end(const XXH3_state_t *x)
{
	return not_0(XXH3_64bits_digest(x));
}
