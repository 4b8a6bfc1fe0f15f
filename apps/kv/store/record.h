/* SPDX-License-Identifier: MIT */
/*
 * record.h - one key and its value, in one allocation.
 *
 *	[link h-1] ... [link 0] [struct kv_record] [key, padded to 8] [value]
 *
 * The links of the ordered index stand before the record, link 0 beside its
 * head, so that inserting a record is one allocation which either happens or
 * does not, and a point read touches no line of the links. Owned by the
 * store.
 */
#ifndef KV_STORE_RECORD_H
#define KV_STORE_RECORD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define KV_KEY_MAX 1024u
#define KV_VAL_MAX (1u << 20)

struct kv_record {
	uint64_t hash;
	uint32_t val_len;
	uint32_t val_room; /* at least val_len */
	uint16_t key_len;
	uint8_t height; /* of links, at least 1 */
	uint8_t reserved[5];
	uint8_t bytes[];
};

static inline const uint8_t *kv_record_key(const struct kv_record *r)
{
	return r->bytes;
}

static inline size_t kv_record_pad(size_t key_len)
{
	return (key_len + 7) & ~(size_t)7;
}

static inline uint8_t *kv_record_val(const struct kv_record *r)
{
	return (uint8_t *)r->bytes + kv_record_pad(r->key_len);
}

/* Order of keys: bytewise, a prefix before what it begins. */
static inline int kv_key_cmp(const void *a, size_t a_len, const void *b,
			     size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;
	int c = n ? memcmp(a, b, n) : 0;

	if (c)
		return c;
	return a_len < b_len ? -1 : a_len > b_len;
}

#endif
