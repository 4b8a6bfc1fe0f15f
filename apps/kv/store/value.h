/* SPDX-License-Identifier: MIT */
/*
 * value.h - values that prove themselves: the client builds them, the store
 * treats them as bytes, and every read is verified.
 *
 * A value is `count` fields of `len` bytes. A field is an 8-byte XXH3 of its
 * other bytes, seeded by the hash of the record's key and the field's number:
 * a byte of another record, of another field, or of half an update does not
 * pass. Pure.
 */
#ifndef KV_STORE_VALUE_H
#define KV_STORE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"

#define KV_FIELD_LEN_MIN 16u

/* Random bytes with their checksum. */
void kv_field_fill(void *field, size_t len, uint64_t key_hash, unsigned number,
		   struct prng *rng);
bool kv_field_ok(const void *field, size_t len, uint64_t key_hash,
		 unsigned number);

void kv_value_fill(void *val, unsigned count, size_t len, uint64_t key_hash,
		   struct prng *rng);
/* Is val_len right and every field? */
bool kv_value_ok(const void *val, size_t val_len, unsigned count, size_t len,
		 uint64_t key_hash);

#endif
