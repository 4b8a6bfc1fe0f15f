/* SPDX-License-Identifier: MIT */
/*
 * test_bytes.c - the cursors: layout, limits, and that they stay failed.
 */
#include <string.h>

#include "base/bytes.h"
#include "unit/cm.h"

static const uint8_t golden[] = {1,  3,	 2,  7,	 6,  5, 4, 15,
				 14, 13, 12, 11, 10, 9, 8, 'x'};

static void test_layout(void **state)
{
	uint8_t buf[sizeof(golden)];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	(void)state;
	bytes_put_u8(&out, 1);
	bytes_put_u16(&out, 0x0203);
	bytes_put_u32(&out, 0x04050607);
	bytes_put_u64(&out, 0x08090a0b0c0d0e0full);
	bytes_put_mem(&out, "x", 1);
	assert_false(out.failed);
	assert_int_equal(out.pos, sizeof(golden));
	assert_memory_equal(buf, golden, sizeof(golden));
}

static void test_read_back(void **state)
{
	struct bytes_in in = bytes_in(golden, sizeof(golden));

	(void)state;
	assert_int_equal(bytes_get_u8(&in), 1);
	assert_int_equal(bytes_get_u16(&in), 0x0203);
	assert_int_equal(bytes_get_u32(&in), 0x04050607);
	assert_true(bytes_get_u64(&in) == 0x08090a0b0c0d0e0full);
	assert_int_equal(bytes_left(&in), 1);
	assert_ptr_equal(bytes_get(&in, 1), golden + sizeof(golden) - 1);
	assert_ptr_equal(bytes_get(&in, 0), golden + sizeof(golden));
	assert_false(in.failed);
}

/* Every field, one byte too short: nothing is read, and it stays so. */
static void test_short_reads(void **state)
{
	struct bytes_in in = bytes_in(golden, 7);

	(void)state;
	assert_true(bytes_get_u64(&in) == 0);
	assert_true(in.failed);
	assert_int_equal(bytes_left(&in), 0);
	assert_int_equal(bytes_get_u8(&in), 0); /* would fit: too late */
	assert_null(bytes_get(&in, 0));
	in = bytes_in(golden, 4);
	assert_null(bytes_get(&in, SIZE_MAX));
	in = bytes_in(golden, 1);
	assert_int_equal(bytes_get_u16(&in), 0);
	in = bytes_in(golden, 3);
	assert_int_equal(bytes_get_u32(&in), 0);
	in = bytes_in(golden, 0);
	assert_int_equal(bytes_get_u8(&in), 0);
	assert_true(in.failed);
}

static void test_short_writes(void **state)
{
	struct bytes_out out;
	uint8_t buf[8];
	size_t len;

	(void)state;
	for (len = 0; len < 8; len++) {
		memset(buf, 0xee, sizeof(buf));
		out = bytes_out(buf, len);
		bytes_put_u64(&out, 1);
		assert_true(out.failed);
		bytes_put_u8(&out, 1); /* would fit: too late */
		assert_int_equal(out.pos, 0);
		assert_int_equal(buf[0], 0xee);
		assert_int_equal(buf[len], 0xee);
	}
	out = bytes_out(buf, 4);
	bytes_put_mem(&out, buf, SIZE_MAX);
	assert_true(out.failed);
	assert_null(bytes_put(&out, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_read_back),
		cmocka_unit_test(test_short_reads),
		cmocka_unit_test(test_short_writes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
