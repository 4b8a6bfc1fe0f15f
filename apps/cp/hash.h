/* SPDX-License-Identifier: MIT */
/*
 * hash.h - XXH3 of blocks and files, by the widest vectors that the processor
 * has: a library that several processors share hashes with the least of them
 * unless it is asked for more, which is another header, and not everywhere.
 *
 * Thread rule: one thread a state.
 */
#ifndef CP_HASH_H
#define CP_HASH_H

#include <stddef.h>
#include <stdint.h>
#ifdef CP_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

/* Bytes that are hashed together with whatever else is done to them: while the
 * first pass has them in a core's own cache, the second costs little. */
#define CP_HASH_PIECE (128u << 10)

static inline uint64_t cp_hash_piece(uint64_t len)
{
	return len < CP_HASH_PIECE ? len : CP_HASH_PIECE;
}

/* A block's hash: XXH3, 64 bits, never 0. */
uint64_t cp_block_hash(const void *data, size_t len);
/* The same of all that x has been updated with. */
uint64_t cp_block_hash_end(const XXH3_state_t *x);

#endif
