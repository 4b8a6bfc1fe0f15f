/* SPDX-License-Identifier: MIT */
/*
 * test_fetch_size.c - F, the bytes of the first READ of an answer: by hand, by
 * trying all, and as lengths change.
 */
#include "unit/cm.h"
#include "base/prng.h"
#include "rpc/client/calib.h"
#include "rpc/client/fetch_size.h"

#include <string.h>

/* RF-RPC's figure 1 in round numbers: 100 ns up to 256 bytes, 200 ns for
 * 1,024, then bandwidth. */
static const struct rpc_calib some = {
	.n_times = 1,
	.n_reads = 4,
	.times = {{0, 1, 1}},
	.reads = {{64, 10000000},
		  {256, 10000000},
		  {1024, 5000000},
		  {4096, 1250000}},
};

static struct fetch_costs times;
static uint16_t count[FETCH_SIZE_LINES + 1];

static void begin(const struct rpc_calib *c)
{
	fetch_costs_init(&times, c);
	memset(count, 0, sizeof(count));
}

static void test_times(void **state)
{
	begin(&some);
	assert_int_equal(times.least, 4);
	assert_int_equal(times.ns[1], 100);
	assert_int_equal(times.ns[4], 100);
	assert_int_equal(times.ns[10], 150); /* half way */
	assert_int_equal(times.ns[16], 200);
	assert_int_equal(times.ns[40], 500);
	assert_int_equal(times.ns[128], 1600); /* twice 4,096 */
}

/* a messages of 2 lines, b of 12: a READ of 12 takes 166.7 ns, one of 8 takes
 * 133.3. With F of 4 lines: 100 (a + b) + 133.3 b. With 12: 166.7 (a + b). */
static void test_by_hand(void **state)
{
	begin(&some);
	count[2] = 100;
	assert_int_equal(fetch_size_best(&times, count, 1024), 256);
	assert_int_equal(fetch_size_best(&times, count, 256), 256);
	count[12] = 100; /* 23,333 and 33,333 + 13,333: even */
	count[2] = 100;
	assert_int_equal(fetch_size_best(&times, count, 256), 256);
	assert_int_equal(fetch_size_best(&times, count, 768), 768);
	count[2] = 60; /* 29,333 and 26,667: a tenth */
	assert_int_equal(fetch_size_best(&times, count, 256), 768);
	count[2] = 140; /* 37,333 and 40,000 */
	assert_int_equal(fetch_size_best(&times, count, 768), 256);
	/* Beyond H too: one READ of 40 lines takes 500 ns, 4 and 36 take
	 * 100 + 450. */
	memset(count, 0, sizeof(count));
	count[40] = 7;
	assert_int_equal(fetch_size_best(&times, count, 256), 2560);
	/* One in a hundred of them: not for 400 ns each time. */
	count[2] = 700;
	assert_int_equal(fetch_size_best(&times, count, 2560), 256);
}

static double tried(uint32_t f)
{
	double sum = 0;

	for (uint32_t n = 1; n <= FETCH_SIZE_LINES; n++)
		for (uint16_t i = 0; i < count[n]; i++) {
			sum += rpc_calib_read_ns(&some, f * 64);
			if (n > f)
				sum += rpc_calib_read_ns(&some, (n - f) * 64);
		}
	return sum;
}

/* Of L and all lengths none is better. */
static void test_by_trying(void **state)
{
	uint32_t now, best, moved = 0;
	struct prng r;
	double least;

	prng_init(&r, 1);
	for (unsigned run = 0; run < 300; run++) {
		begin(&some);
		for (uint64_t i = 0; i <= prng_below(&r, 6); i++)
			count[1 + prng_below(&r, prng_below(&r, 2) ? 20 : 128)] +=
				(uint16_t)prng_below(&r, 100);
		count[1 + prng_below(&r, 20)]++;
		now = 64 * (uint32_t)(4 + prng_below(&r, 125));
		best = fetch_size_best(&times, count, now);
		least = tried(times.least);
		for (uint32_t f = times.least; f <= FETCH_SIZE_LINES; f++)
			if (count[f] && tried(f) < least)
				least = tried(f);
		if (best != now)
			assert_true(tried(best / 64) < least * 1.0001);
		else
			assert_true(least >= tried(now / 64) * .9499);
		moved += best != now;
	}
	assert_in_range(moved, 100, 299);
}

static unsigned add(struct fetch_size *f, uint32_t len, unsigned n)
{
	unsigned changes = 0;

	while (n--)
		changes += fetch_size_add(f, &times, len);
	return changes;
}

/* F follows within the last 1,024 messages, once for each change of lengths. */
static void test_follows(void **state)
{
	struct fetch_size f;

	begin(&some);
	fetch_size_init(&f, 256);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(add(&f, 150, FETCH_SIZE_SAMPLES), i != 0);
		assert_int_equal(f.len, 256);
		assert_int_equal(add(&f, 750, 512), 0);
		assert_int_equal(add(&f, 750, 512), 1);
		assert_int_equal(f.len, 768);
	}
	/* Those before the last 1,024 do not count. */
	assert_int_equal(f.count[12], FETCH_SIZE_SAMPLES);
	assert_int_equal(f.count[3], 0);
	add(&f, 8192, 1);
	add(&f, 100000, 1); /* several results */
	assert_int_equal(f.count[FETCH_SIZE_LINES], 2);
	add(&f, 40, 1);
	assert_int_equal(f.count[1], 1);
	assert_int_equal(f.count[12], FETCH_SIZE_SAMPLES - 3);
}

/* Two lengths by chance, so that two F are as good: it stays. */
static void test_stays(void **state)
{
	unsigned changes = 0;
	struct fetch_size f;
	struct prng r;

	prng_init(&r, 1);
	begin(&some);
	fetch_size_init(&f, 256);
	for (unsigned i = 0; i < 200000; i++)
		changes += add(&f, prng_below(&r, 2) ? 120 : 768, 1);
	assert_true(changes <= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_by_trying),
		cmocka_unit_test(test_follows),
		cmocka_unit_test(test_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
