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

/* Intervals without a switch. */
static void pause(unsigned intervals, unsigned calls, bool starved)
{
	for (unsigned i = 0; i < intervals; i++)
		assert_int_equal(interval(calls, starved), 0);
}

/* The first blind trial, which is lost. */
static void blind_lost(unsigned calls)
{
	pause(1, calls, false);
	assert_int_equal(interval(calls, false), 1);
	assert_true(m.fetch);
	assert_int_equal(interval(calls - calls / 10, false), 1);
	assert_false(m.fetch);
}

/* The word switches, once, and its end switches back. */
static void test_word(void **state)
{
	start(NULL);
	assert_int_equal(interval(10, true), 1);
	assert_true(m.fetch);
	pause(10, 12, true);
	assert_int_equal(interval(12, false), 1);
	assert_false(m.fetch);
	pause(2, 13, false);
	assert_false(m.fetch);
}

/* Without a word the other mode is tried, and dropped if it does not gain a
 * twentieth: after 64 intervals, 128, at most 1,024. */
static void test_blind(void **state)
{
	start(NULL);
	return_mode_time(&m, 1); /* tells nothing without a calibration */
	blind_lost(1000);
	for (unsigned n = 64; n <= RETURN_MODE_PAUSE_MAX; n *= 2) {
		pause(n, 1000, false);
		assert_int_equal(interval(1000, false), 1);
		assert_true(m.fetch);
		assert_int_equal(interval(1049, false), 1);
		assert_false(m.fetch);
	}
	pause(RETURN_MODE_PAUSE_MAX, 1000, false);
	assert_int_equal(interval(1000, false), 1);
	assert_int_equal(interval(1050, false), 0);
	assert_true(m.fetch);
	assert_int_equal(m.blind.next, 64);
}

/* A hint that a blind trial has shown to be wrong is tried after a pause. */
static void test_blind_pays(void **state)
{
	start(NULL);
	pause(1, 100, false);
	assert_int_equal(interval(100, false), 1);
	assert_true(m.fetch);
	assert_int_equal(interval(200, false), 0);
	for (unsigned n = 1; n <= 4; n *= 2) {
		pause(n, 200, false);
		assert_int_equal(interval(200, false), 1);
		assert_false(m.fetch);
		assert_int_equal(interval(199, false), 1);
		assert_true(m.fetch);
	}
	pause(8, 200, false);
	assert_int_equal(interval(200, false), 1);
	assert_int_equal(interval(200, false), 0);
	assert_false(m.fetch);
	pause(64, 200, false);
	assert_int_equal(interval(200, false), 1);
}

/* The server's word does not wait for a blind trial's pause. */
static void test_word_in_pause(void **state)
{
	start(NULL);
	blind_lost(100);
	pause(10, 100, false);
	assert_int_equal(interval(100, true), 1);
	assert_true(m.fetch);
}

/* A hinted trial that loses calls is lost; the next one comes after a pause
 * that doubles, to at most 1,024 intervals; one that pays makes it short
 * again. */
static void test_does_not_pay(void **state)
{
	start(NULL);
	for (unsigned n = 1; n <= RETURN_MODE_PAUSE_MAX; n *= 2) {
		assert_int_equal(interval(100, true), 1);
		assert_true(m.fetch);
		assert_int_equal(interval(99, true), 1);
		assert_false(m.fetch);
		pause(n, 100, true);
	}
	assert_int_equal(m.hinted.next, RETURN_MODE_PAUSE_MAX);
	assert_int_equal(interval(100, true), 1);
	assert_int_equal(interval(100, true), 0);
	assert_true(m.fetch);
	assert_int_equal(m.hinted.next, 1);
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

/* Fetching relieves the server, which then does not lack time any more: that is
 * no reason to reply at once, and replies are tried after pauses that double. */
static void test_relieved(void **state)
{
	start(NULL);
	assert_int_equal(interval(100, true), 1);
	pause(1, 120, false); /* it pays */
	for (unsigned n = 1; n <= 8; n *= 2) {
		pause(n, 120, false);
		assert_true(m.fetch);
		assert_int_equal(interval(120, false), 1);
		assert_int_equal(interval(100, true), 1);
	}
	assert_true(m.fetch);
}

/* Answers that take more READs than R: replied, though the server wants to be
 * spared, and tried again later. Of replies it says nothing. */
static void test_slow(void **state)
{
	start(NULL);
	return_mode_slow(&m);
	assert_int_equal(interval(100, true), 1);
	pause(2, 120, true);
	return_mode_slow(&m);
	assert_int_equal(interval(120, true), 1);
	assert_false(m.fetch);
	pause(1, 120, true);
	assert_int_equal(interval(120, true), 1);
	assert_true(m.fetch);
	return_mode_slow(&m); /* in a trial, too */
	assert_int_equal(interval(200, true), 1);
	assert_false(m.fetch);
	pause(2, 120, true);
	assert_int_equal(interval(120, true), 1);
}

/* A program that stood still: its calls a second tell nothing. */
static void test_still(void **state)
{
	start(NULL);
	blind_lost(100);
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
	pause(1, 100, false); /* no time was told */
	return_mode_time(&m, 19);
	assert_int_equal(interval(100, false), 1);
	assert_true(m.fetch);
	pause(2, 110, false);
	return_mode_time(&m, 21);
	assert_int_equal(interval(110, false), 1);
	assert_false(m.fetch);
	pause(1, 120, false);
	/* it is tried; what comes of it decides */
	return_mode_time(&m, 1);
	assert_int_equal(interval(120, false), 1);
	assert_int_equal(interval(110, false), 1);
	assert_false(m.fetch);
	/* the word goes beyond it */
	return_mode_time(&m, 40);
	pause(1, 110, true);
	assert_int_equal(interval(110, true), 1);
	assert_true(m.fetch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_word),
		cmocka_unit_test(test_blind),
		cmocka_unit_test(test_blind_pays),
		cmocka_unit_test(test_word_in_pause),
		cmocka_unit_test(test_does_not_pay),
		cmocka_unit_test(test_late_end),
		cmocka_unit_test(test_relieved),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_still),
		cmocka_unit_test(test_calibration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
