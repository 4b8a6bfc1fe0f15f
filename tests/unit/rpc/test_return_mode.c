/* SPDX-License-Identifier: MIT */
/*
 * test_return_mode.c - fetched or replied: each decision, by a clock of its own.
 */
#include "unit/cm.h"
#include "rpc/return_mode.h"

#define STEP 100000u /* ns between two answers */

static struct return_mode m;
static uint64_t now;

static void start(void)
{
	now = 5000;
	return_mode_init(&m, now);
}

/* Answers come until the interval is over: calls for each; how many switches. */
static unsigned interval(unsigned calls, bool starved)
{
	uint64_t end = m.since_ns + m.interval_ns, before = m.switches;
	unsigned changed = 0;

	while (now < end) {
		assert_int_equal(changed, 0); /* only at the end */
		now += STEP;
		return_mode_answered(&m, calls, starved);
		changed += return_mode_decide(&m, now);
	}
	assert_int_equal(m.switches - before, changed);
	assert_int_equal(m.since_ns, now);
	return changed;
}

/* Without the server's word it replies, however long. */
static void test_replies(void **state)
{
	start();
	assert_false(m.fetch);
	for (int i = 0; i < 50; i++) /* more calls, or fewer */
		assert_int_equal(interval(10 + i % 7, false), 0);
	assert_false(m.fetch);
	assert_int_equal(m.interval_ns, RETURN_MODE_INTERVAL_NS);
}

/* The word switches, once, and its end switches back. */
static void test_word(void **state)
{
	start();
	assert_int_equal(interval(10, true), 1);
	assert_true(m.fetch);
	for (int i = 0; i < 10; i++)
		assert_int_equal(interval(12, true), 0);
	assert_int_equal(m.interval_ns, RETURN_MODE_INTERVAL_NS);
	assert_int_equal(interval(12, false), 1);
	assert_false(m.fetch);
	assert_int_equal(interval(13, false), 0);
	assert_int_equal(m.interval_ns, RETURN_MODE_INTERVAL_NS);
}

/* A switch that loses calls is taken back; the next try comes after twice the
 * time, at most 1,024 times the first; one that pays resets that. */
static void test_does_not_pay(void **state)
{
	uint64_t want = RETURN_MODE_INTERVAL_NS;

	start();
	for (int i = 0; i < 14; i++) {
		assert_int_equal(m.interval_ns, want);
		assert_int_equal(interval(100, true), 1);
		assert_true(m.fetch);
		assert_int_equal(interval(95, true), 1);
		assert_false(m.fetch);
		if (want < RETURN_MODE_INTERVAL_MAX_NS)
			want *= 2;
	}
	assert_int_equal(want, RETURN_MODE_INTERVAL_MAX_NS);
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(105, true), 0);
	assert_true(m.fetch);
	assert_int_equal(m.interval_ns, RETURN_MODE_INTERVAL_NS);
}

/* Calls a second, not calls: the end of an interval may come late. */
static void test_late_end(void **state)
{
	start();
	assert_int_equal(interval(100, true), 1);
	now += RETURN_MODE_INTERVAL_NS * 3 / 2;
	return_mode_answered(&m, 120 * (RETURN_MODE_INTERVAL_NS / STEP), true);
	assert_true(return_mode_decide(&m, now));
	assert_false(m.fetch);
}

/* So is one back to replies: fetching relieves the server, which then does not
 * lack time any more. */
static void test_relieved(void **state)
{
	start();
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(120, false), 1);
	assert_false(m.fetch);
	assert_int_equal(interval(100, true), 1);
	assert_true(m.fetch);
	assert_int_equal(m.interval_ns, 2 * RETURN_MODE_INTERVAL_NS);
}

/* Answers that take more READs than R: replied, though the server wants to be
 * spared, and tried again later. Of replies it says nothing. */
static void test_slow(void **state)
{
	start();
	return_mode_slow(&m);
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(120, true), 0);
	return_mode_slow(&m);
	assert_int_equal(interval(120, true), 1);
	assert_false(m.fetch);
	assert_int_equal(m.interval_ns, 2 * RETURN_MODE_INTERVAL_NS);
	assert_int_equal(interval(120, true), 1);
	assert_true(m.fetch);
	assert_int_equal(interval(120, true), 0);
}

/* A program that paused: its calls a second tell nothing. */
static void test_pause(void **state)
{
	start();
	assert_int_equal(interval(100, true), 1);
	now += (RETURN_MODE_PAUSE + 1) * RETURN_MODE_INTERVAL_NS;
	return_mode_answered(&m, 1, true);
	assert_false(return_mode_decide(&m, now));
	assert_true(m.fetch);
	assert_int_equal(interval(10, true), 0);
	assert_true(m.fetch);
	assert_int_equal(m.interval_ns, RETURN_MODE_INTERVAL_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replies),
		cmocka_unit_test(test_word),
		cmocka_unit_test(test_does_not_pay),
		cmocka_unit_test(test_late_end),
		cmocka_unit_test(test_relieved),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
