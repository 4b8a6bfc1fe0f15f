/* SPDX-License-Identifier: MIT */
/*
 * hash.c - see hash.h. Compiled once: XXH3 inlined is large.
 */
#include "kv/store/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t kv_hash(const void *key, size_t len)
{
	return XXH3_64bits(key, len);
}
