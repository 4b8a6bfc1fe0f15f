/* SPDX-License-Identifier: MIT */
/*
 * test_tuner.c - the size of batches that keeps a bound of latency: each
 * decision of equation 3, by a clock of its own.
 */
#include "unit/cm.h"
#include "rpc/client/tuner.h"

#define BOUND 10000u

static struct tuner t;
static uint64_t now;

static void begin(unsigned tolerance)
{
	now = 1000000;
	tuner_init(&t, BOUND, tolerance, 16);
	assert_int_equal(t.size, 1);
}

/* n calls, of which the first `late` take longer than the bound. */
static void calls(unsigned n, unsigned late)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t begun = now;

		now += i < late ? BOUND + 1 : BOUND;
		tuner_ended(&t, begun, now);
	}
}

static void windows(unsigned n)
{
	calls(n * TUNER_WINDOW, 0);
}

/* One more after each window, to the largest. */
static void test_grows(void **state)
{
	begin(5);
	calls(TUNER_WINDOW - 1, 0);
	assert_int_equal(t.size, 1);
	calls(1, 0);
	assert_int_equal(t.size, 2);
	windows(14);
	assert_int_equal(t.size, 16);
	windows(3);
	assert_int_equal(t.size, 16);
	assert_int_equal(t.late_all, 0);
	assert_int_equal(t.seen_all, 18 * TUNER_WINDOW);
}

/* 5 % of 64 are 3: with 3 late it stays, with 4 it falls, at once. A tenth of
 * that is none: with one late it does not grow. */
static void test_decides(void **state)
{
	begin(0);
	windows(4);
	assert_int_equal(t.size, 5);
	calls(TUNER_WINDOW, 1);
	assert_int_equal(t.size, 5);
	calls(TUNER_WINDOW, 3);
	assert_int_equal(t.size, 5);
	calls(3, 3);
	assert_int_equal(t.size, 5);
	calls(1, 1);
	assert_int_equal(t.size, 4);
	assert_int_equal(t.late_all, 8);
	calls(8, 8);
	assert_int_equal(t.size, 2);
	/* 30 % of 64 are 19; a tenth of that is 1. */
	begin(30);
	windows(4);
	calls(TUNER_WINDOW, 19);
	assert_int_equal(t.size, 5);
	calls(TUNER_WINDOW, 1);
	assert_int_equal(t.size, 6);
	calls(20, 20);
	assert_int_equal(t.size, 5);
}

/* A call just at the bound is in time. */
static void test_bound(void **state)
{
	begin(1);
	tuner_ended(&t, now, now + BOUND);
	assert_int_equal(t.late_all, 0);
	tuner_ended(&t, now, now + BOUND + 1);
	assert_int_equal(t.late_all, 1);
}

/* Size 1 stays, and its windows are counted. */
static void test_unmet(void **state)
{
	begin(5);
	calls(40, 40);
	assert_int_equal(t.size, 1);
	assert_int_equal(t.unmet, 10);
	assert_int_equal(t.late_all, 40);
	windows(1);
	assert_int_equal(t.size, 2);
}

/* Calls that were made before the size changed say nothing about it. */
static void test_under_way(void **state)
{
	uint64_t before;

	begin(5);
	windows(7);
	assert_int_equal(t.size, 8);
	before = now - 1;
	calls(4, 4);
	assert_int_equal(t.size, 7);
	for (unsigned i = 0; i < 20; i++)
		tuner_ended(&t, before, now + BOUND);
	assert_int_equal(t.size, 7);
	assert_int_equal(t.late_all, 24);
	calls(4, 4);
	assert_int_equal(t.size, 6);
}

/* At 9 calls are late, at 8 they are not: it tries less and less often. */
static void test_pauses(void **state)
{
	unsigned trials = 0, late = 0, all = 0;

	begin(5);
	for (unsigned i = 0; i < 100 * TUNER_WINDOW; i++) {
		unsigned was = t.size;

		calls(1, t.size > 8);
		all++;
		late += was > 8;
		trials += t.size > was && t.size == 9;
		assert_true(t.size <= 9);
	}
	assert_in_range(trials, 5, 8);
	assert_int_equal(late, 4 * trials - (t.size == 9 ? 4 - t.late : 0));
	assert_true(100 * late < all);
	/* 9 will do now: at the next trial it grows as before. */
	windows(TUNER_PAUSE_MAX + 3);
	assert_true(t.size > 9);
	windows(8);
	assert_int_equal(t.size, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_decides),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_unmet),
		cmocka_unit_test(test_under_way),
		cmocka_unit_test(test_pauses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
