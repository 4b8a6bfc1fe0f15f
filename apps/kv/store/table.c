/* SPDX-License-Identifier: MIT */
/*
 * table.c - the point index; see table.h for the layout.
 *
 * Invariant: an entry lies in the first bucket of its path (home, home + 1,
 * ...) that had room when it was inserted, and every bucket before that counts
 * it in `passed`. So a look-up may stop at the first bucket that nobody passed.
 */
#include "kv/store/table.h"

#include "base/assert.h"
#include "kv/store/hash.h"

#include <errno.h>
#include <stdbool.h>

#define BUCKETS_MIN 64
#define LSB 0x0101010101010101ull
#define MSB 0x8080808080808080ull
/* the 7 tags, without `passed` */
#define TAGS 0x00ffffffffffffffull

/* A high bit in each byte of x that equals tag. A byte above a true match may
 * be marked falsely: the caller compares keys anyway. */
static inline uint64_t match(uint64_t x, uint8_t tag)
{
	x ^= LSB * tag;
	return (x - LSB) & ~x & MSB & TAGS;
}

static inline uint64_t tags_of(const struct kv_bucket *b)
{
	uint64_t x;

	/* byte 0 is slot 0 only where the low byte comes first */
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "order");
	memcpy(&x, b, sizeof(x)); /* and `passed` */
	return x;
}

static struct kv_bucket *buckets_new(const struct kv_alloc *alloc, uint64_t n)
{
	struct kv_bucket *b = alloc->get(alloc->arg, 64, n * sizeof(*b));

	if (b)
		memset(b, 0, n * sizeof(*b));
	return b;
}

int kv_table_init(struct kv_table *t, const struct kv_alloc *alloc)
{
	struct kv_bucket *b = buckets_new(alloc, BUCKETS_MIN);

	if (!b)
		return -ENOMEM;
	*t = (struct kv_table){
		.alloc = alloc, .buckets = b, .mask = BUCKETS_MIN - 1};
	return 0;
}

void kv_table_fini(struct kv_table *t)
{
	t->alloc->put(t->alloc->arg, t->buckets);
	t->buckets = NULL;
}

struct kv_record *kv_table_find(const struct kv_table *t, uint64_t hash,
				const void *key, size_t len)
{
	uint8_t tag = kv_hash_tag(hash);

	for (uint64_t i = hash, n = 0; n <= t->mask; i++, n++) {
		const struct kv_bucket *b = &t->buckets[i & t->mask];
		uint64_t m = match(tags_of(b), tag);

		for (; m; m &= m - 1) {
			struct kv_record *r = b->rec[__builtin_ctzll(m) / 8];

			/* it is nearly always the one, and where its value
			 * begins is not known before its head has come */
			for (unsigned l = 1; l <= 8; l++)
				__builtin_prefetch((const char *)r + l * 64);
			if (r && r->hash == hash && r->key_len == len &&
			    !memcmp(kv_record_key(r), key, len))
				return r;
		}
		if (!b->passed)
			return NULL;
	}
	return NULL;
}

/* Puts rec into the first bucket of its path with room. */
static void place(struct kv_bucket *buckets, uint64_t mask,
		  struct kv_record *rec)
{
	for (uint64_t i = rec->hash;; i++) {
		struct kv_bucket *b = &buckets[i & mask];
		uint64_t m = match(tags_of(b), 0);

		if (m) {
			unsigned slot = (unsigned)__builtin_ctzll(m) / 8;

			b->tag[slot] = kv_hash_tag(rec->hash);
			b->rec[slot] = rec;
			return;
		}
		if (b->passed < UINT8_MAX)
			b->passed++;
	}
}

int kv_table_reserve(struct kv_table *t)
{
	uint64_t n = t->mask + 1;
	struct kv_bucket *b;

	/* 6 of 7 slots taken: beyond that, paths grow long */
	if (t->count < n * (KV_BUCKET_SLOTS - 1))
		return 0;
	b = buckets_new(t->alloc, 2 * n);
	if (!b)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		for (unsigned s = 0; s < KV_BUCKET_SLOTS; s++)
			if (t->buckets[i].rec[s])
				place(b, 2 * n - 1, t->buckets[i].rec[s]);
	t->alloc->put(t->alloc->arg, t->buckets);
	t->buckets = b;
	t->mask = 2 * n - 1;
	return 0;
}

void kv_table_insert(struct kv_table *t, struct kv_record *rec)
{
	skein_assert(t->count < (t->mask + 1) * KV_BUCKET_SLOTS);
	place(t->buckets, t->mask, rec);
	t->count++;
}

/* The bucket and slot of rec, which is there. */
static struct kv_bucket *where(const struct kv_table *t,
			       const struct kv_record *rec, unsigned *slot)
{
	for (uint64_t i = rec->hash, n = 0; n <= t->mask; i++, n++) {
		struct kv_bucket *b = &t->buckets[i & t->mask];

		for (unsigned s = 0; s < KV_BUCKET_SLOTS; s++) {
			if (b->rec[s] != rec)
				continue;
			*slot = s;
			return b;
		}
	}
	skein_assert(!"a record of the table is in the table");
	return NULL;
}

void kv_table_replace(struct kv_table *t, struct kv_record *old,
		      struct kv_record *neu)
{
	unsigned slot = 0;
	struct kv_bucket *b = where(t, old, &slot);

	b->rec[slot] = neu;
}

void kv_table_remove(struct kv_table *t, struct kv_record *rec)
{
	unsigned slot = 0;
	struct kv_bucket *b = where(t, rec, &slot), *p;

	for (uint64_t i = rec->hash;; i++) {
		p = &t->buckets[i & t->mask];
		if (p == b)
			break;
		/* a full counter has lost count: it stays */
		if (p->passed < UINT8_MAX)
			p->passed--;
	}
	b->tag[slot] = 0;
	b->rec[slot] = NULL;
	t->count--;
}
