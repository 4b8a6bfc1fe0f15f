/* SPDX-License-Identifier: MIT */
/*
 * test_watch.c - when the control thread leaves the sockets to a poller, and
 * when it comes back.
 */
#include "unit/cm.h"

#include "dev/soft/link/watch.h"

#define T 1000000000ull

static void test_leave(void **state)
{
	struct watch w = {0};

	assert_false(watch_leave(&w, T));
	w.polled_ns = T - WATCH_POLLED_NS - 1;
	assert_false(watch_leave(&w, T));
	assert_false(w.left);
	w.polled_ns = T - WATCH_POLLED_NS;
	assert_true(watch_leave(&w, T));
	assert_true(w.left);
	assert_true(w.look_ns == T + WATCH_LOOK_NS);
}

static void test_look(void **state)
{
	struct watch w = {.polled_ns = T};
	uint64_t now = T;

	assert_true(watch_leave(&w, T));
	/* still polled: left, and looked at again; packets are its */
	now = w.polled_ns = w.look_ns;
	assert_false(watch_look(&w, now, true));
	assert_true(w.left);
	assert_true(w.look_ns == now + WATCH_LOOK_NS);
	/* polled no more, and nothing waits: back, and may leave again */
	now = w.look_ns;
	assert_true(watch_look(&w, now, false));
	assert_false(w.left);
	w.polled_ns = now;
	assert_true(watch_leave(&w, now));
	/* polled no more, and packets wait: back for a while */
	now = w.look_ns;
	assert_true(watch_look(&w, now, true));
	w.polled_ns = now + WATCH_STAY_NS - 1;
	assert_false(watch_leave(&w, w.polled_ns));
	w.polled_ns++;
	assert_true(watch_leave(&w, w.polled_ns));
}

/* Leaves, and comes back at the first look: packets waited. */
static uint64_t stay(struct watch *w, uint64_t *now)
{
	w->polled_ns = *now;
	assert_true(watch_leave(w, *now));
	*now = w->look_ns;
	assert_true(watch_look(w, *now, true));
	*now = w->stay_ns;
	return w->stay_ns - w->look_ns;
}

static void test_stay(void **state)
{
	struct watch w = {0};
	uint64_t now = T, n = WATCH_STAY_NS;

	for (; n < WATCH_STAY_MAX_NS; n *= 2)
		assert_int_equal(stay(&w, &now), n);
	assert_int_equal(stay(&w, &now), WATCH_STAY_MAX_NS);
	assert_int_equal(stay(&w, &now), WATCH_STAY_MAX_NS);
	/* it polls again: each look that sees that halves */
	w.polled_ns = now;
	assert_true(watch_leave(&w, now));
	for (int i = 0; i < 3; i++) {
		now = w.polled_ns = w.look_ns;
		assert_false(watch_look(&w, now, true));
	}
	assert_int_equal(stay(&w, &now), WATCH_STAY_MAX_NS / 4);
	w.polled_ns = now;
	assert_true(watch_leave(&w, now));
	for (int i = 0; i < 30; i++) {
		now = w.polled_ns = w.look_ns;
		assert_false(watch_look(&w, now, false));
	}
	assert_int_equal(stay(&w, &now), WATCH_STAY_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leave),
		cmocka_unit_test(test_look),
		cmocka_unit_test(test_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
