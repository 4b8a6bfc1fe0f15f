/* SPDX-License-Identifier: MIT */
/*
 * test_return_mode.c - fetched or replied: each decision, by a clock of its own.
 */
#include "unit/cm.h"
#include "rpc/client/calib.h"
#include "rpc/client/return_mode.h"

#define STEP 100000u /* ns between two answers */

static struct return_mode m;
static uint64_t now;

static void start(const struct rpc_calib *calib)
{
	now = 5000;
	return_mode_init(&m, calib, now);
}

/* Answers come until the interval is over: calls for each; how many switches. */
static unsigned interval(unsigned calls, bool starved)
{
	uint64_t end = m.since_ns + RETURN_MODE_INTERVAL_NS;
	uint64_t before = m.switches;
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
	start(NULL);
	assert_false(m.fetch);
	return_mode_time(&m, 1);     /* tells nothing without a calibration */
	for (int i = 0; i < 50; i++) /* more calls, or fewer */
		assert_int_equal(interval(10 + i % 7, false), 0);
	assert_false(m.fetch);
}

/* The word switches, once, and its end switches back. */
static void test_word(void **state)
{
	start(NULL);
	assert_int_equal(interval(10, true), 1);
	assert_true(m.fetch);
	for (int i = 0; i < 10; i++)
		assert_int_equal(interval(12, true), 0);
	assert_int_equal(interval(12, false), 1);
	assert_false(m.fetch);
	assert_int_equal(interval(13, false), 0);
	assert_false(m.fetch);
}

/* A switch that loses calls is taken back after one interval; the next try
 * comes after a pause that doubles, to at most 1,024 intervals; one that pays
 * makes it short again. */
static void test_does_not_pay(void **state)
{
	start(NULL);
	for (unsigned pause = 1; pause <= RETURN_MODE_PAUSE_MAX; pause *= 2) {
		assert_int_equal(interval(100, true), 1);
		assert_true(m.fetch);
		assert_int_equal(interval(95, true), 1);
		assert_false(m.fetch);
		for (unsigned i = 0; i < pause; i++)
			assert_int_equal(interval(100, true), 0);
	}
	assert_int_equal(m.next_pause, RETURN_MODE_PAUSE_MAX);
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(105, true), 0);
	assert_true(m.fetch);
	assert_int_equal(m.next_pause, 1);
}

/* Calls a second, not calls: the end of an interval may come late. */
static void test_late_end(void **state)
{
	start(NULL);
	assert_int_equal(interval(100, true), 1);
	now += RETURN_MODE_INTERVAL_NS * 3 / 2;
	return_mode_answered(&m, 120 * (RETURN_MODE_INTERVAL_NS / STEP), true);
	assert_true(return_mode_decide(&m, now));
	assert_false(m.fetch);
}

/* Fetching relieves the server, which then does not lack time any more: a
 * switch back is judged, too. */
static void test_relieved(void **state)
{
	start(NULL);
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(120, false), 1);
	assert_false(m.fetch);
	assert_int_equal(interval(100, true), 1);
	assert_true(m.fetch);
	assert_int_equal(m.pause, 1);
	assert_int_equal(m.next_pause, 2);
	/* and tried again after the pause */
	assert_int_equal(interval(120, false), 0);
	assert_int_equal(interval(120, false), 1);
	assert_false(m.fetch);
}

/* Answers that take more READs than R: replied, though the server wants to be
 * spared, and tried again later. Of replies it says nothing. */
static void test_slow(void **state)
{
	start(NULL);
	return_mode_slow(&m);
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(120, true), 0);
	return_mode_slow(&m);
	assert_int_equal(interval(120, true), 1);
	assert_false(m.fetch);
	assert_int_equal(interval(120, true), 0);
	assert_int_equal(interval(120, true), 1);
	assert_true(m.fetch);
	assert_int_equal(interval(120, true), 0);
}

/* A program that stood still: its calls a second tell nothing. */
static void test_still(void **state)
{
	start(NULL);
	assert_int_equal(interval(100, true), 1);
	now += (RETURN_MODE_STILL + 1) * RETURN_MODE_INTERVAL_NS;
	return_mode_answered(&m, 1, true);
	assert_false(return_mode_decide(&m, now));
	assert_true(m.fetch);
	assert_int_equal(interval(10, true), 0);
	assert_true(m.fetch);
}

/* The calibration, at the response time that the server told last: short ones
 * are fetched, though no processor lacks time. */
static void test_calibration(void **state)
{
	static const struct rpc_calib calib = {
		.n_times = 2,
		.times = {{256 * 10, 100, 150}, {256 * 30, 100, 50}},
	};

	start(&calib);
	assert_int_equal(interval(100, false), 0); /* no time was told */
	return_mode_time(&m, 19);
	assert_int_equal(interval(100, false), 1);
	assert_true(m.fetch);
	assert_int_equal(interval(110, false), 0);
	return_mode_time(&m, 21);
	assert_int_equal(interval(110, false), 1);
	assert_false(m.fetch);
	assert_int_equal(interval(120, false), 0);
	/* it is tried; what comes of it decides */
	return_mode_time(&m, 1);
	assert_int_equal(interval(120, false), 1);
	assert_int_equal(interval(110, false), 1);
	assert_false(m.fetch);
	/* the word goes beyond it */
	return_mode_time(&m, 40);
	assert_int_equal(interval(110, true), 0);
	assert_int_equal(interval(110, true), 1);
	assert_true(m.fetch);
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
		cmocka_unit_test(test_still),
		cmocka_unit_test(test_calibration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
