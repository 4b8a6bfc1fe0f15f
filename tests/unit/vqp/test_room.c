/* SPDX-License-Identifier: MIT */
/* Shares: what the first, and the last, of many users get. */
#include "../cm.h"
#include "vqp/room.h"

/* What a user gets that takes all it gets. */
static uint32_t take(uint32_t *free, uint32_t all, uint32_t least)
{
	uint32_t used = 0;

	while (room_allows(used, 1, *free, all, least)) {
		used++;
		--*free;
	}
	return used;
}

static void test_greedy(void **state)
{
	static const struct {
		uint32_t all, least, k1, k2, k4, k8, many;
	} t[] = {
		{960, 16, 360, 180, 45, 16, 19},      /* slots */
		{16384, 64, 6144, 3072, 768, 64, 70}, /* vqps of messages */
		{1023, 4, 384, 192, 48, 4, 68},	      /* memories */
		{224, 4, 84, 42, 11, 4, 18},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint32_t free = t[i].all, got[128] = {0}, n;

		for (n = 0; n < 128; n++) {
			got[n] = take(&free, t[i].all, t[i].least);
			if (got[n] < t[i].least)
				break;
		}
		print_message("%u: %u %u %u %u, %u users\n", t[i].all, got[0],
			      got[1], got[3], got[7], n);
		assert_int_equal(got[0], t[i].k1);
		assert_int_equal(got[1], t[i].k2);
		assert_int_equal(got[3], t[i].k4);
		assert_int_equal(got[7], t[i].k8);
		assert_in_range(n, t[i].many, 128);
		assert_in_range(free, 0, t[i].least - 1);
	}
}

/* A list that is too long by one, and the last that is free. */
static void test_edges(void **state)
{
	(void)state;
	assert_true(room_allows(0, 16, 16, 960, 16));
	assert_false(room_allows(0, 16, 15, 960, 16));
	assert_false(room_allows(0, 17, 256, 960, 16));
	assert_true(room_allows(0, 17, 257, 960, 16));
	assert_false(room_allows(1, 16, 256, 960, 16));
	assert_false(room_allows(16, 1, 0, 960, 16));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_greedy),
		cmocka_unit_test(test_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
