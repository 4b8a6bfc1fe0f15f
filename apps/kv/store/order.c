/* SPDX-License-Identifier: MIT */
/*
 * order.c - the skip list; see order.h.
 *
 * `links` below is the address just after a tower, be it a record's or the
 * head's: link i is links[-1 - i].
 */
#include "kv/store/order.h"

#include "base/assert.h"

static struct kv_record **head_of(const struct kv_order *o)
{
	return (struct kv_record **)o->head + KV_ORDER_HEIGHT;
}

void kv_order_init(struct kv_order *o, uint64_t seed)
{
	memset(o, 0, sizeof(*o));
	o->rng = seed | 1;
}

unsigned kv_order_height(struct kv_order *o)
{
	unsigned zeros;

	/* xorshift64*: two zero bits for each level further up */
	o->rng ^= o->rng >> 12;
	o->rng ^= o->rng << 25;
	o->rng ^= o->rng >> 27;
	zeros = (unsigned)__builtin_clzll((o->rng * 0x2545f4914f6cdd1dull) | 1);
	zeros = zeros / 2 + 1;
	return zeros < KV_ORDER_HEIGHT ? zeros : KV_ORDER_HEIGHT;
}

/* For each level the last tower before the key; returns the record after it on
 * level 0. before may be NULL. */
static struct kv_record *find(const struct kv_order *o, const void *key,
			      size_t len, struct kv_record ***before)
{
	struct kv_record **links = head_of(o);
	struct kv_record *known = NULL, *r = NULL;

	for (int i = KV_ORDER_HEIGHT - 1; i >= 0; i--) {
		/* known was found not below the key one level up */
		while ((r = links[-1 - i]) && r != known &&
		       kv_key_cmp(kv_record_key(r), r->key_len, key, len) < 0)
			links = (struct kv_record **)(void *)r;
		known = r;
		if (before)
			before[i] = links;
	}
	return r;
}

void kv_order_insert(struct kv_order *o, struct kv_record *rec)
{
	struct kv_record **before[KV_ORDER_HEIGHT];

	skein_assert(rec->height >= 1 && rec->height <= KV_ORDER_HEIGHT);
	find(o, kv_record_key(rec), rec->key_len, before);
	for (unsigned i = 0; i < rec->height; i++) {
		struct kv_record **at = &before[i][-1 - (int)i];

		*kv_order_link(rec, i) = *at;
		*at = rec;
	}
}

void kv_order_replace(struct kv_order *o, struct kv_record *old,
		      struct kv_record *neu)
{
	struct kv_record **before[KV_ORDER_HEIGHT];

	skein_assert(old->height == neu->height);
	find(o, kv_record_key(old), old->key_len, before);
	for (unsigned i = 0; i < old->height; i++) {
		*kv_order_link(neu, i) = *kv_order_link(old, i);
		before[i][-1 - (int)i] = neu;
	}
}

void kv_order_remove(struct kv_order *o, struct kv_record *rec)
{
	struct kv_record **before[KV_ORDER_HEIGHT];

	find(o, kv_record_key(rec), rec->key_len, before);
	for (unsigned i = 0; i < rec->height; i++) {
		skein_assert(before[i][-1 - (int)i] == rec);
		before[i][-1 - (int)i] = *kv_order_link(rec, i);
	}
}

struct kv_record *kv_order_seek(const struct kv_order *o, const void *key,
				size_t len)
{
	return find(o, key, len, NULL);
}
