/* SPDX-License-Identifier: MIT */
/*
 * table.h - the point index of one partition: an open-addressed hash table of
 * pointers to records.
 *
 * A bucket is one cache line: 7 tags of 8 bits, a count of entries that found
 * it full and went on, and 7 pointers. A look-up reads one line of the table
 * and, but for one false tag in 36 buckets, only the record it wants. There are
 * no tombstones: removing counts down along the entry's own path, so a table
 * never decays. (Layout after the F14 tables: Bronson and Shi, 2019.)
 *
 * Thread rule: the partition's thread only.
 */
#ifndef KV_STORE_TABLE_H
#define KV_STORE_TABLE_H

#include "kv/store/alloc.h"
#include "kv/store/record.h"

#define KV_BUCKET_SLOTS 7

struct kv_bucket {
	uint8_t tag[KV_BUCKET_SLOTS]; /* 0: empty */
	uint8_t passed; /* entries that went on from here; 255 is for good */
	struct kv_record *rec[KV_BUCKET_SLOTS];
};

_Static_assert(sizeof(struct kv_bucket) == 64, "a bucket is one cache line");

struct kv_table {
	const struct kv_alloc *alloc;
	struct kv_bucket *buckets;
	uint64_t mask; /* number of buckets - 1 */
	uint64_t count;
};

/* -ENOMEM. */
int kv_table_init(struct kv_table *t, const struct kv_alloc *alloc);
/* Records are not freed. */
void kv_table_fini(struct kv_table *t);

/* The record of this key or NULL. */
struct kv_record *kv_table_find(const struct kv_table *t, uint64_t hash,
				const void *key, size_t len);
/* Makes room for one more; the table may double. -ENOMEM: unchanged. */
int kv_table_reserve(struct kv_table *t);
/* After kv_table_reserve(); the key is not there. Cannot fail. */
void kv_table_insert(struct kv_table *t, struct kv_record *rec);
/* old is there; neu has the same key. */
void kv_table_replace(struct kv_table *t, struct kv_record *old,
		      struct kv_record *neu);
/* rec is there. */
void kv_table_remove(struct kv_table *t, struct kv_record *rec);

#endif
