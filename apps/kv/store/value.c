/* SPDX-License-Identifier: MIT */
/*
 * value.c - fields and their checksums; see value.h.
 */
#include "kv/store/value.h"

#include "base/assert.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t sum(const uint8_t *field, size_t len, uint64_t key_hash,
		    unsigned number)
{
	return XXH3_64bits_withSeed(field + 8, len - 8, key_hash + number);
}

void kv_field_fill(void *field, size_t len, uint64_t key_hash, unsigned number,
		   struct prng *rng)
{
	uint8_t *p = field;
	uint64_t v;
	size_t i;

	skein_assert(len >= KV_FIELD_LEN_MIN);
	for (i = 8; i + 8 <= len; i += 8) {
		v = prng_u64(rng);
		memcpy(p + i, &v, 8);
	}
	v = prng_u64(rng);
	memcpy(p + i, &v, len - i);
	v = sum(p, len, key_hash, number);
	memcpy(p, &v, 8);
}

bool kv_field_ok(const void *field, size_t len, uint64_t key_hash,
		 unsigned number)
{
	uint64_t v;

	memcpy(&v, field, 8);
	return v == sum(field, len, key_hash, number);
}

void kv_value_fill(void *val, unsigned count, size_t len, uint64_t key_hash,
		   struct prng *rng)
{
	for (unsigned i = 0; i < count; i++)
		kv_field_fill((uint8_t *)val + i * len, len, key_hash, i, rng);
}

bool kv_value_ok(const void *val, size_t val_len, unsigned count, size_t len,
		 uint64_t key_hash)
{
	if (val_len != count * len)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!kv_field_ok((const uint8_t *)val + i * len, len, key_hash,
				 i))
			return false;
	return true;
}
