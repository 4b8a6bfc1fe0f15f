/* SPDX-License-Identifier: MIT */
/*
 * test_segment.c - runs of packets for one system call, and pieces that the
 * kernel has merged.
 */
#include "unit/cm.h"

#include "dev/soft/link/segment.h"

/* Equal ones, the last may be shorter; nothing behind it, nothing longer. */
static void test_add(void **state)
{
	struct segment_run r = {0};

	assert_true(segment_add(&r, 1040));
	assert_true(segment_add(&r, 1040));
	assert_false(segment_add(&r, 1044));
	assert_int_equal(r.n, 2);
	assert_true(segment_add(&r, 100));
	assert_int_equal(r.bytes, 2180);
	assert_int_equal(r.len, 1040);
	assert_false(segment_add(&r, 100));
	assert_false(segment_add(&r, 1040));
	assert_int_equal(r.n, 3);
}

static void test_bounds(void **state)
{
	struct segment_run r = {0};
	uint32_t n;

	for (n = 0; segment_add(&r, 20); n++)
		;
	assert_int_equal(n, SEGMENT_MAX);
	r = (struct segment_run){0};
	for (n = 0; segment_add(&r, 4140); n++)
		;
	assert_int_equal(n, SEGMENT_BYTES / 4140);
	assert_true(r.bytes <= SEGMENT_BYTES);
}

static unsigned count(uint8_t *buf, size_t len, int seg, size_t *last)
{
	struct segment_iter c;
	uint8_t *at, *want = buf;
	unsigned n;

	segment_iter(&c, buf, len, seg);
	for (n = 0; (at = segment_next(&c, last)); n++) {
		assert_ptr_equal(at, want);
		want += *last;
	}
	assert_ptr_equal(want, buf + len);
	return n;
}

static void test_cut(void **state)
{
	static uint8_t buf[5000];
	size_t last;

	assert_int_equal(count(buf, 3120, 1040, &last), 3);
	assert_int_equal(last, 1040);
	assert_int_equal(count(buf, 3140, 1040, &last), 4);
	assert_int_equal(last, 20);
	assert_int_equal(count(buf, 900, 1040, &last), 1);
	assert_int_equal(last, 900);
	/* nonsense: one packet */
	assert_int_equal(count(buf, 900, 0, &last), 1);
	assert_int_equal(count(buf, 900, -1040, &last), 1);
	assert_int_equal(count(buf, 900, 1 << 30, &last), 1);
	assert_int_equal(count(buf, 900, 1, &last), 900);
	assert_int_equal(count(buf, 0, 1040, &last), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
