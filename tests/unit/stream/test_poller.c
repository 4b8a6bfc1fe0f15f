/* SPDX-License-Identifier: MIT */
/* test_poller.c - each way to wait, step by step, under a clock of the test. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "stream/poller.h"

#define START 1000000u

static struct poller p;
static struct poller_wait w;

static void begin(enum poller_mode mode)
{
	poller_init(&p, mode);
	w = (struct poller_wait){START, START};
}

static void assert_step(uint64_t after_ns, enum poller_step step)
{
	assert_int_equal(poller_step(&p, &w, START + after_ns), step);
}

static void test_names(void **state)
{
	enum poller_mode mode = POLLER_MODES;
	unsigned i;

	(void)state;
	for (i = 0; i < POLLER_MODES; i++) {
		const char *name = poller_mode_name((enum poller_mode)i);

		assert_int_equal(poller_mode_find(name, &mode), 0);
		assert_int_equal(mode, i);
	}
	assert_int_equal(poller_mode_find("spin", &mode), -EINVAL);
	assert_int_equal(mode, POLLER_MODES - 1);
}

static void test_bp(void **state)
{
	(void)state;
	begin(POLLER_BP);
	assert_step(0, POLLER_LOOK);
	assert_step(POLLER_KERNEL_NS - 1, POLLER_LOOK);
	assert_step(POLLER_KERNEL_NS, POLLER_ASK);
	/* It asked; the next time is as far away again. */
	w.asked_ns = START + POLLER_KERNEL_NS;
	assert_step(POLLER_KERNEL_NS + 1, POLLER_LOOK);
	assert_step(1000000000, POLLER_ASK);
	assert_int_equal(poller_until(&p, &w, START),
			 START + 2 * POLLER_KERNEL_NS);
}

static void test_bpts(void **state)
{
	(void)state;
	begin(POLLER_BPTS);
	assert_step(0, POLLER_ASK);
	w.asked_ns = START + 1;
	assert_step(1, POLLER_ASK);
	assert_step(1000000000, POLLER_ASK);
}

static void test_event(void **state)
{
	(void)state;
	begin(POLLER_EVENT);
	assert_step(0, POLLER_SLEEP);
	begin(POLLER_TCP);
	assert_step(0, POLLER_SLEEP);
}

static void test_bpev(void **state)
{
	(void)state;
	begin(POLLER_BPEV);
	atomic_store(&p.bp_timeout_ns, 30000);
	assert_step(0, POLLER_LOOK);
	assert_step(19999, POLLER_LOOK);
	assert_step(20000, POLLER_ASK);
	w.asked_ns = START + 20000;
	assert_int_equal(poller_until(&p, &w, START + 20000), START + 30000);
	assert_step(29999, POLLER_LOOK);
	assert_step(30000, POLLER_SLEEP);
}

/* While it waits, a thread follows the mode. */
static void test_switch(void **state)
{
	(void)state;
	begin(POLLER_BP);
	assert_step(19000, POLLER_LOOK);
	poller_set(&p, POLLER_EVENT);
	assert_step(19000, POLLER_SLEEP);
	poller_set(&p, POLLER_BPTS);
	assert_step(19000, POLLER_ASK);
	poller_set(&p, POLLER_BPEV);
	assert_step(19000, POLLER_LOOK);
	assert_step(POLLER_TIMEOUT_MAX_NS, POLLER_SLEEP);
	poller_set(&p, POLLER_ADAPTIVE);
	assert_step(19000, POLLER_LOOK);
}

static void waits(unsigned times, uint64_t took_ns)
{
	while (times--)
		poller_found(&p, &w, START + took_ns);
}

static void test_timeout(void **state)
{
	(void)state;
	begin(POLLER_BPEV);
	assert_int_equal(poller_timeout_ns(&p), POLLER_TIMEOUT_MAX_NS);
	/* A little above the round trip. */
	waits(100, 6800);
	assert_in_range(poller_timeout_ns(&p), 6801, 6800 * 3 / 2);
	waits(100, 100);
	assert_int_equal(poller_timeout_ns(&p), POLLER_TIMEOUT_MIN_NS);
	/* Not worth looking for. */
	waits(100, 300000);
	assert_int_equal(poller_timeout_ns(&p), POLLER_TIMEOUT_MIN_NS);
	/* And back; a single pause of a second changes little. */
	waits(100, 6800);
	waits(1, 1000000000);
	assert_in_range(poller_timeout_ns(&p), 6801, 6800 * 4);
	waits(20, 6800);
	assert_in_range(poller_timeout_ns(&p), 6801, 6800 * 3 / 2);
	atomic_store(&p.bp_timeout_ns, 5);
	assert_int_equal(poller_timeout_ns(&p), 5);
}

static void test_threads(void **state)
{
	(void)state;
	assert_int_equal(poller_threads(1), 0);
	assert_int_equal(poller_threads(3), 0);
	assert_int_equal(poller_threads(4), 1);
	assert_int_equal(poller_threads(40), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),	cmocka_unit_test(test_bp),
		cmocka_unit_test(test_bpts),	cmocka_unit_test(test_event),
		cmocka_unit_test(test_bpev),	cmocka_unit_test(test_switch),
		cmocka_unit_test(test_timeout), cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
