/* SPDX-License-Identifier: MIT */
/*
 * test_cong.c - the window that the QPs to one host share: how it grows, what
 * cuts it, and how often.
 */
#include "unit/cm.h"

#include "dev/soft/link/cong.h"

#define A 1000u
#define B 0xfffffcu /* wraps */

struct bed {
	struct cong c;
	struct cong_part a, b;
};

static void bed_init(struct bed *e, uint32_t window)
{
	*e = (struct bed){0};
	cong_init(&e->c, CONG_MAX);
	cong_join(&e->a, &e->c, A);
	cong_join(&e->b, &e->c, B);
	if (window)
		e->c.window = window;
}

/* Twice as much each round trip, up to the most. */
static void test_slow_start(void **state)
{
	struct bed e;

	bed_init(&e, 0);
	assert_int_equal(cong_share(&e.a), CONG_FIRST);
	for (uint32_t w = CONG_FIRST; w < CONG_MAX; w *= 2) {
		assert_int_equal(e.c.window, w);
		cong_acked(&e.a, w);
	}
	assert_int_equal(e.c.window, CONG_MAX);
	cong_init(&e.c, 5);
	assert_int_equal(e.c.window, 5);
	cong_acked(&e.a, 100);
	assert_int_equal(e.c.window, 5);
}

/* Half, then one packet more a round trip. */
static void test_half(void **state)
{
	struct bed e;

	bed_init(&e, 40);
	cong_sent(&e.a, A);
	assert_true(cong_gap(&e.a, A));
	assert_int_equal(e.c.window, 20);
	cong_acked(&e.a, 19);
	assert_int_equal(e.c.window, 20);
	cong_acked(&e.a, 1);
	assert_int_equal(e.c.window, 21);
	cong_acked(&e.a, 21);
	assert_int_equal(e.c.window, 22);
	/* two at least */
	e.c.window = 3;
	cong_sent(&e.a, A);
	assert_true(cong_gap(&e.a, A));
	assert_int_equal(e.c.window, 2);
}

/* Once for all that was on its way, of this QP and of the others; what is sent
 * after the cut is another matter. */
static void test_once(void **state)
{
	struct bed e;

	bed_init(&e, 40);
	cong_sent(&e.a, A);
	cong_sent(&e.a, A + 1);
	cong_sent(&e.b, B);
	cong_sent(&e.b, B + 1);
	assert_true(cong_gap(&e.a, A));
	assert_false(cong_gap(&e.a, A + 1));
	assert_false(cong_gap(&e.b, B));
	assert_int_equal(e.c.window, 20);
	cong_sent(&e.b, (B + 6) & 0xffffff);
	assert_false(cong_gap(&e.b, B + 1));
	assert_true(cong_gap(&e.b, (B + 6) & 0xffffff));
	assert_int_equal(e.c.window, 10);
	/* sent again after the cut: a new sign */
	cong_sent(&e.a, A);
	assert_true(cong_gap(&e.a, A));
	assert_int_equal(e.c.window, 5);
}

/* A mark counts again when all that was sent before the cut has arrived. */
static void test_mark(void **state)
{
	struct bed e;

	bed_init(&e, 40);
	cong_sent(&e.a, A);
	cong_sent(&e.a, A + 9);
	assert_true(cong_mark(&e.a, A));
	assert_int_equal(e.c.window, 20);
	assert_false(cong_mark(&e.a, A));
	cong_sent(&e.a, A + 10);
	assert_false(cong_mark(&e.a, A + 9));
	assert_true(cong_mark(&e.a, A + 10));
	assert_int_equal(e.c.window, 10);
}

static void test_timeout(void **state)
{
	struct bed e;

	bed_init(&e, 40);
	cong_sent(&e.a, A);
	cong_sent(&e.b, B);
	cong_timer(&e.a);
	cong_timer(&e.b);
	assert_true(cong_timeout(&e.a, A));
	assert_int_equal(e.c.window, 1);
	assert_int_equal(e.c.threshold, 20);
	/* the same silence */
	assert_true(cong_timeout(&e.b, B));
	assert_int_equal(e.c.window, 1);
	assert_int_equal(e.c.threshold, 20);
	cong_acked(&e.a, 1);
	cong_acked(&e.a, 2);
	assert_int_equal(e.c.window, 4);
}

/* One peer is silent, the host is not. */
static void test_dead_peer(void **state)
{
	struct bed e;

	bed_init(&e, 40);
	cong_sent(&e.a, A);
	cong_sent(&e.b, B);
	cong_timer(&e.a);
	cong_acked(&e.b, 1);
	assert_false(cong_timeout(&e.a, A));
	assert_int_equal(e.c.window, 41);
}

/* Equal shares among those that have packets on their way, one at least. */
static void test_share(void **state)
{
	struct bed e;
	struct cong_part p[50] = {{0}}, alone = {0};

	bed_init(&e, 40);
	cong_sent(&e.a, A);
	cong_sent(&e.a, A + 1);
	assert_int_equal(cong_share(&e.a), 40);
	assert_int_equal(cong_share(&e.b), 20);
	cong_sent(&e.b, B);
	assert_int_equal(cong_share(&e.a), 20);
	cong_idle(&e.b);
	cong_idle(&e.b);
	assert_int_equal(cong_share(&e.a), 40);
	for (int i = 0; i < 50; i++) {
		cong_join(&p[i], &e.c, 0);
		cong_sent(&p[i], 0);
	}
	assert_int_equal(cong_share(&e.a), 1);
	/* a carrier with a window of its own */
	cong_join(&alone, NULL, 0);
	cong_sent(&alone, 0);
	cong_acked(&alone, 1);
	cong_timer(&alone);
	assert_false(cong_gap(&alone, 0));
	assert_false(cong_timeout(&alone, 0));
	assert_int_equal(cong_share(&alone), UINT32_MAX);
	cong_idle(&alone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_start),
		cmocka_unit_test(test_half),
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_mark),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_dead_peer),
		cmocka_unit_test(test_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
