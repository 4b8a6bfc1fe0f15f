/* SPDX-License-Identifier: MIT */
/*
 * test_value.c - a value proves itself, and nothing else passes for it.
 */
#include "kv/store/value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum {
	FIELDS = 10,
	LEN = 100,
};

static uint8_t val[FIELDS * LEN];

static bool ok(uint64_t key_hash)
{
	return kv_value_ok(val, sizeof(val), FIELDS, LEN, key_hash);
}

static int setup(void **state)
{
	struct prng rng;

	prng_init(&rng, 1);
	kv_value_fill(val, FIELDS, LEN, 4711, &rng);
	return 0;
}

static void test_every_bit(void **state)
{
	assert_true(ok(4711));
	for (size_t i = 0; i < sizeof(val); i++) {
		val[i] ^= (uint8_t)(1 << i % 8);
		assert_false(ok(4711));
		val[i] ^= (uint8_t)(1 << i % 8);
	}
	assert_true(ok(4711));
}

static void test_other_key_or_size(void **state)
{
	assert_false(ok(4712));
	assert_false(kv_value_ok(val, sizeof(val) - 1, FIELDS, LEN, 4711));
	assert_false(kv_value_ok(val, 0, FIELDS, LEN, 4711));
}

static void test_fields(void **state)
{
	struct prng rng;
	uint8_t neu[LEN];

	prng_init(&rng, 2);
	kv_field_fill(neu, LEN, 4711, 3, &rng);
	/* a field in another's place is wrong, in its own right */
	memcpy(val + 4 * LEN, neu, LEN);
	assert_false(ok(4711));
	memcpy(val + 3 * LEN, neu, LEN);
	assert_true(kv_field_ok(val + 3 * LEN, LEN, 4711, 3));
	/* half an update is wrong */
	setup(NULL);
	memcpy(val + 3 * LEN, neu, LEN / 2);
	assert_false(ok(4711));
	memcpy(val + 3 * LEN, neu, LEN);
	assert_true(ok(4711));
}

static void test_odd_lengths(void **state)
{
	struct prng rng;
	uint8_t f[64];

	prng_init(&rng, 3);
	for (size_t len = KV_FIELD_LEN_MIN; len <= 40; len++) {
		memset(f, 0xee, sizeof(f));
		kv_field_fill(f, len, 1, 0, &rng);
		assert_int_equal(f[len], 0xee);
		assert_true(kv_field_ok(f, len, 1, 0));
		f[len - 1] ^= 1;
		assert_false(kv_field_ok(f, len, 1, 0));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_every_bit, setup),
		cmocka_unit_test_setup(test_other_key_or_size, setup),
		cmocka_unit_test_setup(test_fields, setup),
		cmocka_unit_test(test_odd_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
