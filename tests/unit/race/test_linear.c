/* SPDX-License-Identifier: MIT */
/* The checker of several writers' histories: what a map may answer passes, what
 * it may not is seen. */
#include "unit/cm.h"
#include "sim/linear.h"

#include <errno.h>

#define N(ops) (sizeof(ops) / sizeof((ops)[0]))
#define GET(v, b, e)                       \
	{                                  \
		LINEAR_GET, v, false, b, e \
	}
#define PUT(v, b, e)                          \
	{                                     \
		LINEAR_INSERT, v, false, b, e \
	}
#define NEW(v, b, e)                          \
	{                                     \
		LINEAR_UPDATE, v, false, b, e \
	}
#define DEL(b, e)                             \
	{                                     \
		LINEAR_DELETE, 0, false, b, e \
	}

static void passes(const struct linear_op *ops, unsigned n)
{
	assert_int_equal(linear_check(ops, n), 0);
}

static void fails(const struct linear_op *ops, unsigned n)
{
	assert_int_equal(linear_check(ops, n), -EILSEQ);
}

static void test_one_after_another(void **state)
{
	const struct linear_op good[] = {GET(0, 1, 2),	PUT(7, 3, 4),
					 GET(7, 5, 6),	NEW(8, 7, 8),
					 GET(8, 9, 10), DEL(11, 12),
					 GET(0, 13, 14)};
	const struct linear_op stale[] = {PUT(7, 1, 2), NEW(8, 3, 4),
					  GET(7, 5, 6)};
	const struct linear_op gone[] = {PUT(7, 1, 2), GET(0, 3, 4)};
	const struct linear_op back[] = {PUT(7, 1, 2), DEL(3, 4), GET(7, 5, 6)};

	passes(good, N(good));
	fails(stale, N(stale));
	fails(gone, N(gone));
	fails(back, N(back));
}

static void test_at_once(void **state)
{
	/* Either of two writes may be the last: but all readers agree. */
	const struct linear_op either[] = {PUT(1, 1, 2), NEW(2, 3, 9),
					   NEW(3, 4, 8), GET(2, 10, 11)};
	const struct linear_op both[] = {PUT(1, 1, 2), NEW(2, 3, 9),
					 NEW(3, 4, 8), GET(2, 10, 11),
					 GET(3, 12, 13)};
	/* During a write one reader sees it; a later one must. */
	const struct linear_op seen[] = {PUT(1, 1, 2), NEW(2, 3, 20),
					 GET(2, 4, 5), GET(1, 6, 7)};

	passes(either, N(either));
	fails(both, N(both));
	fails(seen, N(seen));
}

static void test_two_inserts(void **state)
{
	const struct linear_op one[] = {PUT(1, 1, 5),
					{LINEAR_INSERT, 2, true, 2, 6}};
	const struct linear_op both[] = {PUT(1, 1, 5), PUT(2, 2, 6)};
	const struct linear_op none[] = {{LINEAR_INSERT, 1, true, 1, 5},
					 {LINEAR_INSERT, 2, true, 2, 6}};

	passes(one, N(one));
	fails(both, N(both));
	fails(none, N(none));
}

static void test_failed(void **state)
{
	const struct linear_op good[] = {{LINEAR_UPDATE, 1, true, 1, 2},
					 {LINEAR_DELETE, 0, true, 3, 4},
					 PUT(5, 5, 6)};
	const struct linear_op update[] = {PUT(5, 1, 2),
					   {LINEAR_UPDATE, 1, true, 3, 4}};
	const struct linear_op twice[] = {PUT(5, 1, 2), DEL(3, 6), DEL(4, 7)};

	passes(good, N(good));
	fails(update, N(update));
	fails(twice, N(twice));
}

static void test_unknown(void **state)
{
	const struct linear_op late[] = {PUT(1, 1, LINEAR_OPEN), GET(0, 2, 3),
					 GET(1, 4, 5)};
	const struct linear_op never[] = {PUT(1, 1, LINEAR_OPEN), GET(0, 2, 3)};
	const struct linear_op undone[] = {PUT(1, 1, LINEAR_OPEN), GET(1, 2, 3),
					   GET(0, 4, 5)};

	passes(late, N(late));
	passes(never, N(never));
	fails(undone, N(undone));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_after_another),
		cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_two_inserts),
		cmocka_unit_test(test_failed),
		cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
