/* SPDX-License-Identifier: MIT */
/*
 * order.h - the ordered index of one partition: a skip list (Pugh, 1990) with
 * a quarter of the records on each next level, whose links live in the records
 * themselves. Nothing here allocates, so nothing here fails.
 *
 * Thread rule: the partition's thread only.
 */
#ifndef KV_STORE_ORDER_H
#define KV_STORE_ORDER_H

#include "kv/store/record.h"

#define KV_ORDER_HEIGHT 16 /* enough for 4^16 records */

struct kv_order {
	/* as before a record: link i is head[KV_ORDER_HEIGHT - 1 - i] */
	struct kv_record *head[KV_ORDER_HEIGHT];
	uint64_t rng;
};

void kv_order_init(struct kv_order *o, uint64_t seed);
/* The number of links that the next record should have. */
unsigned kv_order_height(struct kv_order *o);

/* rec->height and its key are set; the key is not there. */
void kv_order_insert(struct kv_order *o, struct kv_record *rec);
/* neu has the key and height of old, which is there. */
void kv_order_replace(struct kv_order *o, struct kv_record *old,
		      struct kv_record *neu);
/* rec is there. */
void kv_order_remove(struct kv_order *o, struct kv_record *rec);

/* The first record whose key is not below this one, or NULL. */
struct kv_record *kv_order_seek(const struct kv_order *o, const void *key,
				size_t len);

/* Link i of a record. */
static inline struct kv_record **kv_order_link(struct kv_record *r, unsigned i)
{
	return (struct kv_record **)(void *)r - 1 - i;
}

/* The one after r, or NULL. */
static inline struct kv_record *kv_order_next(const struct kv_record *r)
{
	return *kv_order_link((struct kv_record *)r, 0);
}

#endif
