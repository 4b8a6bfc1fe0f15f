/* SPDX-License-Identifier: MIT */
/* test_pace.c - the arrivals of an open loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kv/ycsb/pace.h"

#include <math.h>

static void test_even(void **state)
{
	struct kv_pace p[4];
	uint64_t due[400];

	/* four workers, 1 M a second: one each microsecond, in turns */
	for (unsigned i = 0; i < 4; i++)
		kv_pace_init(&p[i], 1e6, true, i, 4, 7, 1000000000000);
	for (unsigned i = 0; i < 400; i++) {
		due[i] = kv_pace_due(&p[i % 4]);
		kv_pace_next(&p[i % 4]);
		assert_int_equal(due[i], 1000000000000 + i * 1000ull);
	}
}

/* Exponential: mean and deviation are the same, and 1/e of the gaps exceed it. */
static void test_poisson(void **state)
{
	double sum = 0, squares = 0, gap, n = 200000;
	unsigned longer = 0;
	struct kv_pace p;
	uint64_t last;

	kv_pace_init(&p, 1e5, false, 0, 1, 1, 0);
	last = kv_pace_due(&p);
	for (unsigned i = 0; i < n; i++) {
		kv_pace_next(&p);
		gap = (double)(kv_pace_due(&p) - last);
		last = kv_pace_due(&p);
		sum += gap;
		squares += gap * gap;
		longer += gap > 10000;
	}
	assert_true(fabs(sum / n - 10000) < 100);
	assert_true(fabs(sqrt(squares / n - sum / n * sum / n) - 10000) < 200);
	assert_true(fabs(longer / n - exp(-1)) < 0.01);
}

static void test_same_seed(void **state)
{
	struct kv_pace a, b, c;
	unsigned differ = 0;

	kv_pace_init(&a, 1e5, false, 0, 2, 1, 0);
	kv_pace_init(&b, 1e5, false, 0, 2, 1, 0);
	kv_pace_init(&c, 1e5, false, 0, 2, 2, 0);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(kv_pace_due(&a), kv_pace_due(&b));
		differ += kv_pace_due(&a) != kv_pace_due(&c);
		kv_pace_next(&a);
		kv_pace_next(&b);
		kv_pace_next(&c);
	}
	assert_true(differ > 90);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_poisson),
		cmocka_unit_test(test_same_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
