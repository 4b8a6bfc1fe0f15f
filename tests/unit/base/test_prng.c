/* SPDX-License-Identifier: MIT */
/*
 * test_prng.c - the published sequence, and that bounded draws are even.
 */
#include <string.h>

#include "base/prng.h"
#include "unit/cm.h"

/* The first outputs of the authors' splitmix64 for seed 0, and of their
 * xoshiro256** from the state 1, 2, 3, 4. */
static void test_published(void **state)
{
	struct prng r = {{1, 2, 3, 4}};

	(void)state;
	assert_true(prng_mix(0) == 0xe220a8397b1dcdafull);
	assert_true(prng_u64(&r) == 11520);
	assert_true(prng_u64(&r) == 0);
	assert_true(prng_u64(&r) == 1509978240);
	assert_true(prng_u64(&r) == 1215971899390074240ull);
}

static void test_seeds(void **state)
{
	struct prng a, b, c;

	(void)state;
	prng_init(&a, 5);
	prng_init(&b, 5);
	prng_init(&c, 6);
	assert_true(prng_u64(&a) == prng_u64(&b));
	assert_true(prng_u64(&a) != prng_u64(&c));
}

static void test_below(void **state)
{
	int counts[6] = {0}, i;
	struct prng r;

	(void)state;
	prng_init(&r, 1);
	for (i = 0; i < 60000; i++)
		counts[prng_below(&r, 6)]++;
	for (i = 0; i < 6; i++)
		assert_in_range(counts[i], 9600, 10400);
	assert_true(prng_below(&r, 1) == 0);
	/* Two thirds of the range: a biased draw favours the lower half. */
	counts[0] = 0;
	for (i = 0; i < 60000; i++)
		counts[0] += prng_below(&r, 3ull << 62) < 3ull << 61;
	assert_in_range(counts[0], 29400, 30600);
}

static void test_double(void **state)
{
	double v, sum = 0;
	struct prng r;
	int i;

	(void)state;
	prng_init(&r, 1);
	for (i = 0; i < 10000; i++) {
		v = prng_double(&r);
		assert_true(v >= 0.0 && v < 1.0);
		sum += v;
	}
	assert_true(sum > 4850 && sum < 5150);
}

static void test_fill(void **state)
{
	unsigned char buf[16];
	struct prng r;

	(void)state;
	memset(buf, 0, sizeof(buf));
	prng_init(&r, 1);
	prng_fill(&r, buf, 13);
	assert_int_equal(buf[13] | buf[14] | buf[15], 0);
	assert_true(buf[8] | buf[9] | buf[10] | buf[11] | buf[12]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published), cmocka_unit_test(test_seeds),
		cmocka_unit_test(test_below),	  cmocka_unit_test(test_double),
		cmocka_unit_test(test_fill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
