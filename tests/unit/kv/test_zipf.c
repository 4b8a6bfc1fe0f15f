/* SPDX-License-Identifier: MIT */
/*
 * test_zipf.c - the zipfian generator against its own law, from a fixed seed.
 */
#include "kv/ycsb/zipf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define DRAWS 2000000
#define N 1000

static unsigned seen[N];

static double zeta(uint64_t n)
{
	return kv_zeta(0, n, KV_ZIPF_THETA, 0, NULL, NULL);
}

static void test_zeta(void **state)
{
	double a = zeta(1000), b, n = 1e10;

	assert_true(fabs(zeta(1) - 1) < 1e-12);
	assert_true(fabs(zeta(2) - (1 + pow(2, -0.99))) < 1e-12);
	/* in steps as at once */
	b = kv_zeta(300, 1000, KV_ZIPF_THETA, zeta(300), NULL, NULL);
	assert_true(fabs(a - b) < 1e-9);
	/* the constant that stands for 10^10 terms: Euler and Maclaurin give
	 * the terms past 1000 */
	a += (pow(n, 0.01) - pow(1000, 0.01)) / 0.01 +
	     (pow(n, -0.99) - pow(1000, -0.99)) / 2;
	assert_true(fabs(a - 26.46902820178302) < 1e-6);
}

static void test_law(void **state)
{
	double zetan = zeta(N), cum = 0, want = 0;
	struct kv_zipf z;
	struct prng rng;

	kv_zipf_init(&z, N, KV_ZIPF_THETA, 0, NULL, NULL);
	prng_init(&rng, 20201);
	for (unsigned i = 0; i < N; i++)
		seen[i] = 0;
	for (unsigned i = 0; i < DRAWS; i++) {
		uint64_t v = kv_zipf_next(&z, &rng);

		assert_true(v < N);
		seen[v]++;
	}
	/* 0 and 1 are exact: within 5 standard deviations */
	for (unsigned i = 0; i < 2; i++) {
		double p = pow(i + 1, -KV_ZIPF_THETA) / zetan;
		double sd = sqrt(DRAWS * p * (1 - p));

		assert_true(fabs(seen[i] - DRAWS * p) < 5 * sd);
	}
	/* the rest by an integral, which differs from the sum by little: the
	 * share of the first k stays within 0.02 */
	for (unsigned i = 0; i < N; i++) {
		cum += seen[i];
		want += pow(i + 1, -KV_ZIPF_THETA) / zetan;
		assert_true(fabs(cum / DRAWS - want) < 0.02);
	}
}

static void test_grow(void **state)
{
	struct kv_zipf grown, made;

	kv_zipf_init(&grown, 10, KV_ZIPF_THETA, 0, NULL, NULL);
	for (uint64_t n = 11; n <= 500; n += 7)
		kv_zipf_grow(&grown, n);
	kv_zipf_grow(&grown, 500);
	kv_zipf_grow(&grown, 100); /* never shrinks */
	kv_zipf_init(&made, 500, KV_ZIPF_THETA, 0, NULL, NULL);
	assert_int_equal(grown.n, 500);
	assert_true(fabs(grown.zetan - made.zetan) < 1e-9);
	assert_true(fabs(grown.eta - made.eta) < 1e-9);
}

static void count_calls(void *arg, uint64_t done, uint64_t total)
{
	assert_true(done <= total);
	++*(unsigned *)arg;
}

static void test_progress(void **state)
{
	unsigned calls = 0;

	kv_zeta(0, 200000, KV_ZIPF_THETA, 0, count_calls, &calls);
	assert_int_equal(calls, 3);
}

static void test_tiny(void **state)
{
	struct prng rng;
	struct kv_zipf z;

	prng_init(&rng, 9);
	for (uint64_t n = 1; n < 5; n++) {
		kv_zipf_init(&z, n, KV_ZIPF_THETA, 0, NULL, NULL);
		for (int i = 0; i < 1000; i++)
			assert_true(kv_zipf_next(&z, &rng) < n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeta), cmocka_unit_test(test_law),
		cmocka_unit_test(test_grow), cmocka_unit_test(test_progress),
		cmocka_unit_test(test_tiny),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
