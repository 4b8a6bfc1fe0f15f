/* SPDX-License-Identifier: MIT */
/*
 * cache.c - one partition of a bounded cache; see cache.h.
 *
 * The slots of a bucket stand in the order of use, the latest first, empty ones
 * last. All records are on one list in the same order.
 */
#include "kv/store/cache.h"

#include "base/list.h"

#include <errno.h>
#include <stdbool.h>

#define SLOTS KV_CACHE_SLOTS

struct bucket {
	uint64_t hash[SLOTS];
	struct kv_record *rec[SLOTS]; /* NULL: empty */
};

struct kv_cache {
	const struct kv_alloc *alloc;
	struct bucket *buckets;
	uint64_t mask; /* number of buckets - 1 */
	uint64_t bytes, bytes_max;
	uint64_t count, evicted;
	struct list_node used; /* the latest first */
};

static size_t record_size(size_t key_len, size_t val_room)
{
	return sizeof(struct list_node) + sizeof(struct kv_record) +
	       kv_record_pad(key_len) + val_room;
}

/* A record's place on the list stands before it. */
static struct list_node *link_of(struct kv_record *r)
{
	return (struct list_node *)(void *)r - 1;
}

static struct kv_record *record_of(struct list_node *n)
{
	return (struct kv_record *)(void *)(n + 1);
}

int kv_cache_new(const struct kv_alloc *alloc, uint64_t bytes_max,
		 struct kv_cache **cache)
{
	struct kv_cache *c;
	uint64_t n = 1;
	size_t size;

	if (bytes_max < KV_CACHE_BYTES_MIN)
		return -EINVAL;
	if (!alloc)
		alloc = &kv_alloc_libc;
	c = alloc->get(alloc->arg, _Alignof(max_align_t), sizeof(*c));
	if (!c)
		return -ENOMEM;
	while (2 * n * sizeof(struct bucket) <= bytes_max / 8)
		n *= 2;
	size = n * sizeof(struct bucket);
	*c = (struct kv_cache){.alloc = alloc,
			       .mask = n - 1,
			       .bytes = size,
			       .bytes_max = bytes_max};
	list_init(&c->used);
	c->buckets = alloc->get(alloc->arg, 64, size);
	if (!c->buckets) {
		alloc->put(alloc->arg, c);
		return -ENOMEM;
	}
	memset(c->buckets, 0, size);
	*cache = c;
	return 0;
}

/* It is in no bucket any more. */
static void record_free(struct kv_cache *c, struct kv_record *r)
{
	list_del(link_of(r));
	c->bytes -= record_size(r->key_len, r->val_room);
	c->count--;
	c->alloc->put(c->alloc->arg, link_of(r));
}

void kv_cache_free(struct kv_cache *c)
{
	if (!c)
		return;
	while (!list_empty(&c->used))
		record_free(c, record_of(c->used.next));
	c->alloc->put(c->alloc->arg, c->buckets);
	c->alloc->put(c->alloc->arg, c);
}

static struct bucket *bucket_of(const struct kv_cache *c, uint64_t hash)
{
	return &c->buckets[hash & c->mask];
}

/* The slot of this key, or SLOTS. */
static unsigned find(const struct bucket *b, uint64_t hash, const void *key,
		     size_t len)
{
	unsigned i;

	for (i = 0; i < SLOTS && b->rec[i]; i++)
		if (b->hash[i] == hash && b->rec[i]->key_len == len &&
		    !memcmp(kv_record_key(b->rec[i]), key, len))
			return i;
	return SLOTS;
}

/* Those before slot i move back by one, and r comes first. */
static void slot_first(struct bucket *b, unsigned i, struct kv_record *r)
{
	memmove(&b->hash[1], &b->hash[0], i * sizeof(b->hash[0]));
	memmove(&b->rec[1], &b->rec[0], i * sizeof(struct kv_record *));
	b->hash[0] = r->hash;
	b->rec[0] = r;
}

static void slot_remove(struct bucket *b, unsigned i)
{
	unsigned after = SLOTS - 1 - i;

	memmove(&b->hash[i], &b->hash[i + 1], after * sizeof(b->hash[0]));
	memmove(&b->rec[i], &b->rec[i + 1], after * sizeof(struct kv_record *));
	b->rec[SLOTS - 1] = NULL;
}

/* The record of slot i is used. */
static struct kv_record *use(struct kv_cache *c, struct bucket *b, unsigned i)
{
	struct kv_record *r = b->rec[i];

	slot_first(b, i, r);
	list_del(link_of(r));
	list_add_head(&c->used, link_of(r));
	return r;
}

static void evict(struct kv_cache *c, struct kv_record *r)
{
	struct bucket *b = bucket_of(c, r->hash);
	unsigned i = 0;

	while (b->rec[i] != r)
		i++;
	slot_remove(b, i);
	record_free(c, r);
	c->evicted++;
}

/* A record that is nowhere yet. */
static struct kv_record *record_new(const struct kv_cache *c, uint64_t hash,
				    const void *key, size_t key_len,
				    const void *val, size_t val_len)
{
	size_t room = (val_len + 7) & ~(size_t)7;
	struct list_node *n;
	struct kv_record *r;

	n = c->alloc->get(c->alloc->arg, _Alignof(max_align_t),
			  record_size(key_len, room));
	if (!n)
		return NULL;
	r = record_of(n);
	*r = (struct kv_record){.hash = hash,
				.val_len = (uint32_t)val_len,
				.val_room = (uint32_t)room,
				.key_len = (uint16_t)key_len};
	memcpy(r->bytes, key, key_len);
	if (val_len)
		memcpy(kv_record_val(r), val, val_len);
	return r;
}

/* r takes its place; what has to go for it goes. */
static void record_add(struct kv_cache *c, struct bucket *b,
		       struct kv_record *r)
{
	size_t size = record_size(r->key_len, r->val_room);

	if (b->rec[SLOTS - 1])
		evict(c, b->rec[SLOTS - 1]);
	while (c->bytes + size > c->bytes_max)
		evict(c, record_of(c->used.prev));
	slot_first(b, SLOTS - 1, r);
	list_add_head(&c->used, link_of(r));
	c->bytes += size;
	c->count++;
}

const struct kv_record *kv_cache_get(struct kv_cache *c, uint64_t hash,
				     const void *key, size_t key_len)
{
	struct bucket *b = bucket_of(c, hash);
	unsigned i = find(b, hash, key, key_len);

	return i < SLOTS ? use(c, b, i) : NULL;
}

int kv_cache_put(struct kv_cache *c, uint64_t hash, const void *key,
		 size_t key_len, const void *val, size_t val_len)
{
	struct bucket *b = bucket_of(c, hash);
	unsigned i = find(b, hash, key, key_len);
	struct kv_record *r, *old = i < SLOTS ? b->rec[i] : NULL;

	if (old && old->val_room == ((val_len + 7) & ~(size_t)7)) {
		if (val_len)
			memcpy(kv_record_val(old), val, val_len);
		old->val_len = (uint32_t)val_len;
		use(c, b, i);
		return 0;
	}
	r = record_new(c, hash, key, key_len, val, val_len);
	if (!r)
		return -ENOMEM;
	if (old) {
		slot_remove(b, i);
		record_free(c, old);
	}
	record_add(c, b, r);
	return 0;
}

int kv_cache_update(struct kv_cache *c, uint64_t hash, const void *key,
		    size_t key_len, size_t off, const void *bytes, size_t len)
{
	struct bucket *b = bucket_of(c, hash);
	unsigned i = find(b, hash, key, key_len);
	struct kv_record *r;

	if (i == SLOTS)
		return -ENOENT;
	r = b->rec[i];
	if (off > r->val_len || len > r->val_len - off)
		return -ERANGE;
	if (len)
		memcpy(kv_record_val(r) + off, bytes, len);
	use(c, b, i);
	return 0;
}

int kv_cache_delete(struct kv_cache *c, uint64_t hash, const void *key,
		    size_t key_len)
{
	struct bucket *b = bucket_of(c, hash);
	unsigned i = find(b, hash, key, key_len);
	struct kv_record *r;

	if (i == SLOTS)
		return -ENOENT;
	r = b->rec[i];
	slot_remove(b, i);
	record_free(c, r);
	return 0;
}

uint64_t kv_cache_count(const struct kv_cache *c)
{
	return c->count;
}

uint64_t kv_cache_bytes(const struct kv_cache *c)
{
	return c->bytes;
}

uint64_t kv_cache_evicted(const struct kv_cache *c)
{
	return c->evicted;
}

uint64_t kv_cache_buckets(const struct kv_cache *c)
{
	return c->mask + 1;
}
