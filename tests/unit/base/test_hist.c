/* SPDX-License-Identifier: MIT */
/*
 * test_hist.c - percentiles against a sorted array; edges; merging.
 */
#include <stdlib.h>

#include "base/hist.h"
#include "base/prng.h"
#include "unit/cm.h"

#define N 20000

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void near_above(uint64_t got, uint64_t want)
{
	assert_true(got >= want);
	assert_true(got - want <= want / 128 + 1);
}

/* The p-th of a thousand, by the definition in the header. */
static uint64_t exact(const uint64_t *sorted, unsigned per_mille)
{
	return sorted[((uint64_t)N * per_mille + 999) / 1000 - 1];
}

static void test_against_sorted(void **state)
{
	static uint64_t v[N];
	static struct hist h;
	struct prng r;
	int i, shift;

	(void)state;
	for (shift = 24; shift < 60; shift += 7) {
		prng_init(&r, (uint64_t)shift);
		hist_init(&h);
		for (i = 0; i < N; i++) {
			v[i] = prng_u64(&r) >> shift >> prng_below(&r, 12);
			if (v[i] > HIST_MAX_NS)
				v[i] = HIST_MAX_NS;
			hist_record(&h, v[i]);
		}
		qsort(v, N, sizeof(v[0]), compare);
		near_above(hist_percentile(&h, 50), exact(v, 500));
		near_above(hist_percentile(&h, 99), exact(v, 990));
		near_above(hist_percentile(&h, 99.9), exact(v, 999));
		near_above(hist_percentile(&h, 0.1), exact(v, 1));
		assert_true(hist_percentile(&h, 0) == v[0]);
		assert_true(hist_percentile(&h, 100) == v[N - 1]);
	}
}

/* Small values are exact, and each power of two falls into its own bucket. */
static void test_every_scale(void **state)
{
	static struct hist h;
	uint64_t v;
	int bit;

	(void)state;
	for (v = 0; v < 256; v++) {
		hist_init(&h);
		hist_record(&h, v);
		hist_record(&h, v + 1000);
		assert_true(hist_percentile(&h, 50) == v);
	}
	for (bit = 8; bit < 40; bit++) {
		v = 1ull << bit;
		hist_init(&h);
		hist_record(&h, v - 1);
		hist_record(&h, v);
		hist_record(&h, 1ull << 40);
		assert_true(hist_percentile(&h, 33) == v - 1);
		near_above(hist_percentile(&h, 66), v);
	}
}

static void test_edges(void **state)
{
	static struct hist h;

	(void)state;
	hist_init(&h);
	assert_true(hist_percentile(&h, 50) == 0);
	assert_true(hist_mean(&h) == 0);
	hist_record(&h, UINT64_MAX);
	assert_true(h.max_ns == HIST_MAX_NS);
	assert_true(hist_percentile(&h, 50) == HIST_MAX_NS);
	hist_record_n(&h, 5, 0);
	assert_true(h.count == 1);
	assert_true(h.min_ns == HIST_MAX_NS);
}

static void test_merge(void **state)
{
	static struct hist a, b, both;
	struct prng r;
	uint64_t v;
	int i;

	(void)state;
	prng_init(&r, 7);
	hist_init(&a);
	hist_init(&b);
	hist_init(&both);
	for (i = 0; i < 1000; i++) {
		v = prng_below(&r, 1000000);
		hist_record(i % 3 ? &a : &b, v);
		hist_record(&both, v);
	}
	hist_merge(&a, &b);
	assert_memory_equal(&a, &both, sizeof(a));
}

static void test_corrected(void **state)
{
	static struct hist h;

	(void)state;
	hist_init(&h);
	/* One stall of 1000 where an operation was due every 100. */
	hist_record_corrected(&h, 1000, 100);
	assert_true(h.count == 10);
	assert_true(h.sum_ns == 5500);
	hist_record_corrected(&h, 50, 100);
	assert_true(h.count == 11);
	hist_record_corrected(&h, 50, 0);
	assert_true(h.count == 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_sorted),
		cmocka_unit_test(test_every_scale),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_merge),
		cmocka_unit_test(test_corrected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
