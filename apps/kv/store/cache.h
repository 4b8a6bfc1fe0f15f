/* SPDX-License-Identifier: MIT */
/*
 * cache.h - one partition of a bounded cache, after RF-RPC's Jakiro (section
 * 5.1): buckets of eight slots, and the least recently used record goes when
 * its bucket or the memory is full.
 *
 * A new key in a full bucket takes the place of that bucket's least recently
 * used record, and of no other bucket's. At the memory bound the
 * partition's least recently used record goes. GET, PUT and UPDATE are uses.
 * The bound holds the table and the records; while a record is put, that
 * record is beside it.
 *
 * Thread rule: one thread owns a partition; there are no locks.
 */
#ifndef KV_STORE_CACHE_H
#define KV_STORE_CACHE_H

#include "kv/store/alloc.h"
#include "kv/store/record.h"

#define KV_CACHE_SLOTS 8u
/* of a partition: the largest record has room beside the table */
#define KV_CACHE_BYTES_MIN (2ull << 20)

struct kv_cache;

/* bytes_max: table and records, at least KV_CACHE_BYTES_MIN: -EINVAL. An eighth
 * of it at most is table. alloc may be NULL: kv_alloc_libc. -ENOMEM. */
int kv_cache_new(const struct kv_alloc *alloc, uint64_t bytes_max,
		 struct kv_cache **cache);
void kv_cache_free(struct kv_cache *c);

/* As the calls of store.h. A failed call changes nothing. */
const struct kv_record *kv_cache_get(struct kv_cache *c, uint64_t hash,
				     const void *key, size_t key_len);
/* -ENOMEM: malloc failed; the bound is never a reason. */
int kv_cache_put(struct kv_cache *c, uint64_t hash, const void *key,
		 size_t key_len, const void *val, size_t val_len);
int kv_cache_update(struct kv_cache *c, uint64_t hash, const void *key,
		    size_t key_len, size_t off, const void *bytes, size_t len);
int kv_cache_delete(struct kv_cache *c, uint64_t hash, const void *key,
		    size_t key_len);

uint64_t kv_cache_count(const struct kv_cache *c);
/* What table and records take. */
uint64_t kv_cache_bytes(const struct kv_cache *c);
/* Records that had to go, since the start. */
uint64_t kv_cache_evicted(const struct kv_cache *c);
/* A power of two. The bucket of a hash: its low bits. */
uint64_t kv_cache_buckets(const struct kv_cache *c);

#endif
