/* SPDX-License-Identifier: MIT */
/*
 * Where a node writes its record at a meta server: the test's own clock.
 * Incarnations are random, so no test of their size tells which process of a node
 * lives.
 */
#include "../cm.h"
#include "vqp/meta.h"

#include <errno.h>

#define S 1000000000ull

static uint8_t place[2][META_RECORD];
static struct meta_owner other;
static struct meta_node own, rival;

static int setup(void **state)
{
	memset(place, 0, sizeof(place));
	other = (struct meta_owner){0};
	own = (struct meta_node){.gid = {1}, .port = 7, .key = 11};
	own.incarnation = 5;
	rival = own;
	rival.key = 12;
	return 0;
}

static void there(unsigned i, const struct meta_node *n)
{
	meta_encode(n, place[i]);
}

static int look(uint64_t now_ns)
{
	return meta_place_own(place[0], place[1], &own, now_ns, &other);
}

static void test_own(void **state)
{
	struct meta_node third = own;

	third.port = 8;
	assert_int_equal(look(S), 0);
	there(0, &third);
	assert_int_equal(look(S), 1);
	there(1, &own);
	assert_int_equal(look(2 * S), 1);
	there(1, &third);
	assert_int_equal(look(2 * S), -ENOSPC);
	place[1][20] ^= 1;
	assert_int_equal(look(2 * S), -EAGAIN);
}

/* The record of a process that has ended is overwritten, whatever its number. */
static void test_dead(void **state)
{
	static const uint64_t incarnation[] = {1, 5, 9, UINT64_MAX};

	for (unsigned i = 0; i < 4; i++) {
		setup(state);
		rival.incarnation = incarnation[i];
		there(1, &rival);
		assert_int_equal(look(S), -EINPROGRESS);
		assert_int_equal(look(S + META_BEATS_NS - 1), -EINPROGRESS);
		assert_int_equal(look(S + META_BEATS_NS), 1);
		there(1, &own);
		assert_int_equal(look(9 * S), 1);
		assert_int_equal(other.incarnation, 0);
	}
}

/* The one that lives keeps its name; when it stops this node takes it. */
static void test_lives(void **state)
{
	static const uint64_t incarnation[] = {1, 9};

	for (unsigned i = 0; i < 2; i++) {
		setup(state);
		rival.incarnation = incarnation[i];
		there(0, &rival);
		assert_int_equal(look(S), -EINPROGRESS);
		for (uint64_t s = 2; s < 9; s++) {
			rival.beat++;
			there(0, &rival);
			assert_int_equal(look(s * S), -EADDRINUSE);
		}
		assert_int_equal(look(9 * S), -EADDRINUSE);
		assert_int_equal(look(10 * S), 0);
		/* another process writes a record that stands still */
		rival.incarnation = 77;
		there(0, &rival);
		assert_int_equal(look(11 * S), -EINPROGRESS);
		rival.incarnation = 78;
		there(0, &rival);
		assert_int_equal(look(12 * S), -EADDRINUSE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_own, setup),
		cmocka_unit_test_setup(test_dead, setup),
		cmocka_unit_test_setup(test_lives, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
