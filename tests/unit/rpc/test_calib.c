/* SPDX-License-Identifier: MIT */
/*
 * test_calib.c - a device's calibration: what it says, and its text.
 */
#include "unit/cm.h"
#include "rpc/client/calib.h"

#include <errno.h>
#include <string.h>

static const struct rpc_calib some = {
	.n_times = 3,
	.n_reads = 2,
	.times = {{0, 1000, 1500}, {2560, 900, 1000}, {25600, 300, 200}},
	.reads = {{64, 5000}, {1024, 2500}},
};

static char text[RPC_CALIB_TEXT_MAX];

static size_t encode(const struct rpc_calib *c)
{
	size_t len =
		rpc_calib_encode(c, "soft skein0, -, 1", text, sizeof(text));

	assert_true(len > 0);
	assert_int_equal(strlen(text), len);
	return len;
}

/* Between the points 10 and 100 units fetched falls from 100 above replied to
 * 100 below: they meet at 55. */
static void test_says(void **state)
{
	static const struct rpc_calib never = {.n_times = 1,
					       .times = {{1000, 5, 5}}};

	assert_true(rpc_calib_fetch(&some, 1));
	assert_true(rpc_calib_fetch(&some, 10));
	assert_true(rpc_calib_fetch(&some, 54));
	assert_false(rpc_calib_fetch(&some, 56));
	assert_false(rpc_calib_fetch(&some, 100));
	assert_false(rpc_calib_fetch(&some, UINT16_MAX));
	assert_false(rpc_calib_fetch(&never, 1));
	assert_false(rpc_calib_fetch(&never, 50));
}

/* 1.5 times at 0, 1.11 at 2560 ns, 0.67 at 25600. */
static void test_crossover(void **state)
{
	struct rpc_calib c = some;

	assert_in_range(rpc_calib_crossover_ns(&c), 3080, 3140);
	c.times[2].fetched = 330; /* just a tenth, at the last point */
	c.times[2].replied = 300;
	assert_int_equal(rpc_calib_crossover_ns(&c), 25600);
	for (unsigned i = 0; i < 3; i++)
		c.times[i].fetched = c.times[i].replied * 109 / 100;
	assert_int_equal(rpc_calib_crossover_ns(&c), 0);
}

/* The paper's figure 1 in words: as fast up to 256 bytes, and from 1,024 on
 * bandwidth. */
static void test_range(void **state)
{
	struct rpc_calib c = {
		.n_times = 1,
		.n_reads = 6,
		.times = {{0, 1, 1}},
		.reads = {{64, 1000},
			  {128, 1010},
			  {256, 950},
			  {512, 700},
			  {1024, 500},
			  {2048, 255}},
	};
	uint32_t least, most;

	rpc_calib_range(&c, &least, &most);
	assert_int_equal(least, 256);
	assert_int_equal(most, 1024);
	for (unsigned i = 0; i < 6; i++) /* all the same: no bandwidth in it */
		c.reads[i].rate = 1000;
	rpc_calib_range(&c, &least, &most);
	assert_int_equal(least, 2048);
	assert_int_equal(most, 2048);
	for (unsigned i = 0; i < 6; i++) /* all bandwidth */
		c.reads[i].rate = 64000 / c.reads[i].bytes;
	rpc_calib_range(&c, &least, &most);
	assert_int_equal(least, 64);
	assert_int_equal(most, 64);
	c.n_reads = 0;
	rpc_calib_range(&c, &least, &most);
	assert_int_equal(least | most, 0);
}

static void test_text(void **state)
{
	struct rpc_calib got;
	const char *why;
	size_t len = encode(&some);

	assert_int_equal(rpc_calib_decode(text, len, "soft skein0, -, 1", &got,
					  &why),
			 0);
	assert_memory_equal(&got, &some, sizeof(got));
}

static void refused(size_t len, const char *key, const char *because)
{
	struct rpc_calib got;
	const char *why = NULL;

	assert_int_equal(rpc_calib_decode(text, len, key, &got, &why), -EINVAL);
	assert_string_equal(why, because);
}

/* Another device, firmware or version; each byte changed, each length cut. */
static void test_refused(void **state)
{
	size_t len = encode(&some);

	refused(len, "soft skein0, -, 2",
		"measured on another device, firmware or version");
	for (size_t i = 0; i < len; i++) {
		text[i] ^= 4;
		refused(len, "soft skein0, -, 1", "damaged");
		text[i] ^= 4;
		refused(i, "soft skein0, -, 1", "damaged");
	}
}

/* The sum is right, and what it says makes no sense. */
static void test_senseless(void **state)
{
	struct rpc_calib bad[7] = {some, some, some, some, some, some, some};

	bad[0].times[1].ns = 0; /* not rising */
	bad[1].times[2].fetched = 0;
	bad[2].times[0].replied = 0;
	bad[3].reads[1].bytes = 64;
	bad[4].reads[0].rate = 0;
	bad[5].n_times = 0;
	bad[6].reads[0].bytes = 0;
	for (unsigned i = 0; i < 7; i++)
		refused(encode(&bad[i]), "soft skein0, -, 1", "damaged");
}

static void test_room(void **state)
{
	size_t len = encode(&some);

	assert_int_equal(rpc_calib_encode(&some, "soft skein0, -, 1", text,
					  len + 1),
			 len);
	for (size_t i = 0; i <= len; i++)
		assert_int_equal(rpc_calib_encode(&some, "soft skein0, -, 1",
						  text, i),
				 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_says),
		cmocka_unit_test(test_crossover),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_senseless),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
