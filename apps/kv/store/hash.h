/* SPDX-License-Identifier: MIT */
/*
 * hash.h - the one hash of the key-value application: XXH3 of the key.
 *
 * Three independent parts of it are used: bits 40 to 55 name the shard, the
 * low 40 the bucket in the shard's table, the top 8 the tag in the bucket. So
 * keys of one shard still spread over all buckets and tags. docs/kv.md
 * "Partitions". Pure.
 */
#ifndef KV_STORE_HASH_H
#define KV_STORE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t kv_hash(const void *key, size_t len);

static inline unsigned kv_hash_shard(uint64_t hash, unsigned shards)
{
	return (unsigned)((hash >> 40 & 0xffff) * shards >> 16);
}

/* Never 0: that marks an empty slot. */
static inline uint8_t kv_hash_tag(uint64_t hash)
{
	uint8_t tag = (uint8_t)(hash >> 56);

	return tag ? tag : 1;
}

#endif
