/* SPDX-License-Identifier: MIT */
/*
 * store.h - one partition of the key-value store: records in memory, a table
 * for point access and an ordered list for scans.
 *
 * A failed call changes nothing: no record is lost or half written when memory
 * is short.
 *
 * Thread rule: one thread owns a partition; there are no locks.
 */
#ifndef KV_STORE_STORE_H
#define KV_STORE_STORE_H

#include "kv/store/alloc.h"
#include "kv/store/record.h"

struct kv_store;

struct kv_store_attr {
	const struct kv_alloc *alloc; /* NULL: kv_alloc_libc */
	uint64_t bytes_max;	      /* of records; 0: as memory allows */
	uint64_t seed;		      /* of the ordered list's heights */
};

/* attr may be NULL. -ENOMEM. */
int kv_store_new(const struct kv_store_attr *attr, struct kv_store **store);
void kv_store_free(struct kv_store *s);

/* hash is kv_hash(key) everywhere below; keys have 1 to KV_KEY_MAX bytes,
 * values up to KV_VAL_MAX: the caller has checked. */

/* The record or NULL. Valid until the next change of the store. */
const struct kv_record *kv_store_get(const struct kv_store *s, uint64_t hash,
				     const void *key, size_t key_len);
/* Inserts, or overwrites the whole value. -ENOMEM, or -ENOSPC at bytes_max. */
int kv_store_put(struct kv_store *s, uint64_t hash, const void *key,
		 size_t key_len, const void *val, size_t val_len);
/* Overwrites len bytes of an existing value at off. -ENOENT, or -ERANGE when
 * they do not lie within it. */
int kv_store_update(struct kv_store *s, uint64_t hash, const void *key,
		    size_t key_len, size_t off, const void *bytes, size_t len);
/* -ENOENT. */
int kv_store_delete(struct kv_store *s, uint64_t hash, const void *key,
		    size_t key_len);

/* The first record at or after key, in order of keys, or NULL; the one after a
 * record. Valid until the next change of the store. */
const struct kv_record *kv_store_seek(const struct kv_store *s, const void *key,
				      size_t key_len);
const struct kv_record *kv_store_next(const struct kv_record *r);

uint64_t kv_store_count(const struct kv_store *s);
/* What the records take. */
uint64_t kv_store_bytes(const struct kv_store *s);

#endif
