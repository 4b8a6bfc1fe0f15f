/* SPDX-License-Identifier: MIT */
/*
 * test_gather.c - which targets a copy begins with, and when, under a clock of
 * the test's own.
 */
#include "cp/sender/gather.h"

#include "unit/cm.h"

#include <errno.h>
#include <skein/error.h>

#define S 1000000000ull
#define MS 1000000ull

static struct cp_candidate v[8];
static struct cp_gather g;

/* n targets, tried from 100 s on; a greeting has 2 s, all have 10 s. */
static void begin(enum cp_wait_for wait_for, size_t n)
{
	cp_gather_init(&g, wait_for, v, n, 100 * S, 2 * S, 10 * S);
}

static void expect(uint64_t at_ms, enum cp_gathered what)
{
	assert_int_equal(cp_gather_decide(&g, 100 * S + at_ms * MS), what);
}

static void fails(size_t i, int err, uint64_t at_ms)
{
	cp_gather_failed(&g, i, err, 100 * S + at_ms * MS);
}

static void test_all_answer(void **state)
{
	for (int w = CP_WAIT_ANY; w <= CP_WAIT_ALL; w++) {
		begin((enum cp_wait_for)w, 3);
		expect(0, CP_GATHER_WAIT);
		cp_gather_ready(&g, 0);
		cp_gather_ready(&g, 2);
		expect(10, CP_GATHER_WAIT);
		cp_gather_ready(&g, 1);
		expect(10, CP_GATHER_BEGIN);
	}
}

/* The default: a refusal, no route, and a peer that is not Skein hold up
 * nobody. */
static void test_refused(void **state)
{
	static const int errs[] = {-ECONNREFUSED, -EHOSTUNREACH,
				   -ENETUNREACH,  -ECONNRESET,
				   -EPROTO,	  -SKEIN_EVERSION,
				   -SKEIN_EAUTH};

	for (size_t i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		begin(CP_WAIT_ANY, 2);
		cp_gather_ready(&g, 0);
		fails(1, errs[i], 3);
		assert_int_equal(v[1].there, CP_THERE_NO);
		assert_int_equal(v[1].err, errs[i]);
		expect(3, CP_GATHER_BEGIN);
	}
	begin(CP_WAIT_ANY, 1);
	fails(0, -ECONNREFUSED, 3);
	expect(3, CP_GATHER_FAIL);
}

/* A silent one is waited for until the greeting's time, and no longer. */
static void test_silent(void **state)
{
	begin(CP_WAIT_ANY, 3);
	cp_gather_ready(&g, 1);
	expect(1999, CP_GATHER_WAIT);
	assert_true(cp_gather_next(&g, 101 * S) == 102 * S);
	expect(2000, CP_GATHER_BEGIN);
	/* alone it holds up nobody */
	begin(CP_WAIT_ANY, 3);
	expect(2000, CP_GATHER_WAIT);
	assert_true(cp_gather_next(&g, 102 * S) == 110 * S);
	cp_gather_ready(&g, 0);
	expect(7000, CP_GATHER_BEGIN);
	begin(CP_WAIT_ANY, 3);
	expect(9999, CP_GATHER_WAIT);
	expect(10000, CP_GATHER_FAIL);
}

static void test_most(void **state)
{
	begin(CP_WAIT_MOST, 4);
	assert_int_equal(cp_gather_need(&g), 3);
	cp_gather_ready(&g, 0);
	cp_gather_ready(&g, 1);
	expect(5000, CP_GATHER_WAIT);
	cp_gather_ready(&g, 2);
	expect(1000, CP_GATHER_WAIT);
	expect(5000, CP_GATHER_BEGIN);
	begin(CP_WAIT_MOST, 4);
	cp_gather_ready(&g, 0);
	cp_gather_ready(&g, 1);
	expect(10000, CP_GATHER_FAIL);
	/* two that will never come, of four: it is known at once */
	begin(CP_WAIT_MOST, 4);
	fails(0, -EPROTO, 1);
	expect(1, CP_GATHER_WAIT);
	fails(1, -EPROTO, 1);
	expect(1, CP_GATHER_FAIL);
}

static void test_all(void **state)
{
	begin(CP_WAIT_ALL, 2);
	cp_gather_ready(&g, 0);
	expect(9999, CP_GATHER_WAIT);
	expect(10000, CP_GATHER_FAIL);
	/* it may be about to start: it is tried again */
	begin(CP_WAIT_ALL, 2);
	cp_gather_ready(&g, 0);
	fails(1, -ECONNREFUSED, 0);
	assert_int_equal(v[1].there, CP_THERE_PAUSE);
	expect(0, CP_GATHER_WAIT);
	assert_true(cp_gather_next(&g, 100 * S) == 100 * S + 50 * MS);
	cp_gather_again(&g, 1);
	fails(1, -ECONNREFUSED, 50);
	assert_true(v[1].again_ns == 100 * S + 150 * MS);
	cp_gather_again(&g, 1);
	cp_gather_ready(&g, 1);
	expect(151, CP_GATHER_BEGIN);
	/* another version will not go away */
	begin(CP_WAIT_ALL, 2);
	fails(1, -SKEIN_EVERSION, 0);
	expect(0, CP_GATHER_FAIL);
}

/* Skein is there, and has enough to do: that is no absence. */
static void test_busy(void **state)
{
	begin(CP_WAIT_ANY, 2);
	cp_gather_ready(&g, 0);
	fails(1, -SKEIN_EBUSY, 10);
	assert_int_equal(v[1].there, CP_THERE_PAUSE);
	expect(10, CP_GATHER_WAIT);
	for (int i = 0; i < 20; i++) {
		cp_gather_again(&g, 1);
		fails(1, -SKEIN_EBUSY, 10);
	}
	assert_true(v[1].again_ns == 101 * S + 10 * MS);
	expect(2000, CP_GATHER_BEGIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_answer),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_most),
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
