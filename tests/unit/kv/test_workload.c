/* SPDX-License-Identifier: MIT */
/*
 * test_workload.c - the core workloads from a fixed seed: proportions, ranges,
 * popularity, and which keys may be asked for while others are inserted.
 */
#include "kv/ycsb/workload.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define DRAWS 200000

static struct ycsb_params params = {
	.records = 1000,
	.operations = DRAWS,
	.field_count = 10,
	.field_len = 100,
	.scan_max = 100,
	.seed = 7,
};

static struct ycsb_keys keys;

static void test_mixes(void **state)
{
	for (char c = 'a'; c <= 'f'; c++) {
		const struct ycsb_mix *mix = ycsb_mix_find(c);
		unsigned seen[YCSB_OPS] = {0};
		struct ycsb_request r;
		struct ycsb_gen g;
		double sum = 0;

		assert_non_null(mix);
		assert_ptr_equal(mix, ycsb_mix_find((char)(c - 32)));
		ycsb_keys_init(&keys, params.records);
		ycsb_gen_init(&g, mix, &params, &keys, 1);
		for (unsigned i = 0; i < DRAWS; i++) {
			ycsb_gen_next(&g, &r);
			seen[r.op]++;
			if (r.op == YCSB_INSERT)
				assert_int_equal(
					ycsb_keys_ack(&keys,
						      ycsb_keys_take(&keys)),
					0);
			else
				assert_true(r.number < keys.known);
		}
		for (unsigned op = 0; op < YCSB_OPS; op++) {
			double p = mix->part[op];
			double sd = sqrt(DRAWS * p * (1 - p));

			sum += p;
			assert_true(fabs(seen[op] - DRAWS * p) <= 5 * sd);
		}
		assert_true(fabs(sum - 1) < 1e-9);
		ycsb_keys_fini(&keys);
	}
	assert_null(ycsb_mix_find('g'));
}

static void test_scan_lengths(void **state)
{
	unsigned seen[101] = {0}, n = 0;
	struct ycsb_request r;
	struct ycsb_gen g;

	ycsb_keys_init(&keys, params.records);
	ycsb_gen_init(&g, ycsb_mix_find('e'), &params, &keys, 1);
	for (unsigned i = 0; i < DRAWS; i++) {
		ycsb_gen_next(&g, &r);
		if (r.op != YCSB_SCAN)
			continue;
		assert_in_range(r.count, 1, 100);
		seen[r.count]++;
		n++;
	}
	for (unsigned i = 1; i <= 100; i++)
		assert_true(fabs(seen[i] - n / 100.0) < 5 * sqrt(n / 100.0));
	ycsb_keys_fini(&keys);
}

static int down(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* Draws of C over 1000 records: how often each came. */
static void popularity(enum ycsb_dist dist, unsigned seen[1000])
{
	struct ycsb_params p = params;
	struct ycsb_request r;
	struct ycsb_gen g;

	p.dist = dist;
	memset(seen, 0, 1000 * sizeof(*seen));
	ycsb_keys_init(&keys, p.records);
	ycsb_gen_init(&g, ycsb_mix_find('c'), &p, &keys, 1);
	for (unsigned i = 0; i < DRAWS; i++) {
		ycsb_gen_next(&g, &r);
		seen[r.number]++;
	}
	ycsb_keys_fini(&keys);
}

static void test_popularity(void **state)
{
	unsigned seen[1000];

	popularity(YCSB_ZIPFIAN, seen);
	/* number 0 of 10^10 has 1 / zeta of all draws; others that hash onto
	 * the same record add a thousandth or so */
	assert_true(fabs((double)seen[ycsb_fnv(0) % 1000] / DRAWS -
			 1 / 26.469) < 0.004);
	assert_true(fabs((double)seen[ycsb_fnv(1) % 1000] / DRAWS -
			 pow(2, -0.99) / 26.469) < 0.004);
	qsort(seen, 1000, sizeof(seen[0]), down);
	assert_true(seen[0] > 4 * seen[20]);
	assert_true(seen[999] > 0);

	popularity(YCSB_UNIFORM, seen);
	for (unsigned i = 0; i < 1000; i++)
		assert_true(abs((int)seen[i] - DRAWS / 1000) <
			    6 * sqrt(DRAWS / 1000));

	popularity(YCSB_LATEST, seen);
	for (unsigned i = 0; i < 998; i++)
		assert_true(seen[999] > seen[i]);
}

static void test_same_seed(void **state)
{
	struct ycsb_request a, b, c;
	struct ycsb_gen ga, gb, gc;
	unsigned differ = 0;

	ycsb_keys_init(&keys, params.records);
	ycsb_gen_init(&ga, ycsb_mix_find('a'), &params, &keys, 1);
	ycsb_gen_init(&gb, ycsb_mix_find('a'), &params, &keys, 1);
	ycsb_gen_init(&gc, ycsb_mix_find('a'), &params, &keys, 2);
	for (unsigned i = 0; i < 1000; i++) {
		ycsb_gen_next(&ga, &a);
		ycsb_gen_next(&gb, &b);
		ycsb_gen_next(&gc, &c);
		assert_memory_equal(&a, &b, sizeof(a));
		differ += a.number != c.number;
	}
	assert_true(differ > 900);
	ycsb_keys_fini(&keys);
}

/* Acknowledgements in any order: known is what is surely there. */
static void test_acks(void **state)
{
	ycsb_keys_init(&keys, 10);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(ycsb_keys_take(&keys), 10 + i);
	assert_int_equal(ycsb_keys_ack(&keys, 11), 0);
	assert_int_equal(keys.known, 10);
	assert_int_equal(ycsb_keys_ack(&keys, 10), 0);
	assert_int_equal(keys.known, 12);
	assert_int_equal(ycsb_keys_ack(&keys, 13), 0);
	assert_int_equal(keys.known, 12);
	assert_int_equal(ycsb_keys_ack(&keys, 12 + YCSB_ACK_WINDOW),
			 -EOVERFLOW);
	ycsb_keys_settle(&keys);
	assert_int_equal(ycsb_keys_take(&keys), 12);
	assert_int_equal(ycsb_keys_ack(&keys, 12), 0);
	assert_int_equal(keys.known, 13);
	ycsb_keys_fini(&keys);
}

static void test_keys(void **state)
{
	char key[YCSB_KEY_MAX];
	size_t n = ycsb_key(false, 0, key);

	/* as YCSB itself names its first record */
	assert_int_equal(n, 23);
	assert_memory_equal(key, "user6284781860667377211", n);
	/* the same number */
	assert_int_equal(ycsb_key(true, 0, key), 16);
	assert_memory_equal(key, "573807cdd7e5c63b", 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixes),
		cmocka_unit_test(test_scan_lengths),
		cmocka_unit_test(test_popularity),
		cmocka_unit_test(test_same_seed),
		cmocka_unit_test(test_acks),
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
