/* SPDX-License-Identifier: MIT */
/*
 * test_meter.c - the line of progress.
 */
#include "cp/sender/meter.h"

#include <string.h>

#include "unit/cm.h"

#define MS 1000000ull

static void lines(void **state)
{
	struct cp_meter m = {0};
	struct cp_progress p = {.what = "preparing", .receivers = 3};
	char line[CP_METER_LINE];
	uint64_t now = 1000 * MS;

	assert_true(cp_meter_line(&m, now, &p, line));
	assert_string_equal(line, "preparing, 3 targets");
	/* not again within a tenth of a second */
	assert_false(cp_meter_line(&m, now + 99 * MS, &p, line));
	p = (struct cp_progress){
		.what = "sending",
		.total = 10ull << 30,
		.receivers = 3,
		.slowest = "node2:7450",
	};
	assert_true(cp_meter_line(&m, now += 100 * MS, &p, line));
	assert_string_equal(line, "  0 %  0 B of 10.0 GiB  slowest node2:7450");
	p.done = 1ull << 30;
	assert_true(cp_meter_line(&m, now += 500 * MS, &p, line));
	assert_string_equal(line, " 10 %  1.00 GiB of 10.0 GiB  2.00 GiB/s  "
				  "4 s left  slowest node2:7450");
	/* then nothing moves: the rate falls by half a time */
	assert_true(cp_meter_line(&m, now += 500 * MS, &p, line));
	assert_non_null(strstr(line, "1.00 GiB/s  9 s left"));
	p.total = 1ull << 44;
	assert_true(cp_meter_line(&m, now += 100 * MS, &p, line));
	assert_non_null(strstr(line, "4 h 33 min left"));
	p.total = 100ull << 30;
	assert_true(cp_meter_line(&m, now += 100 * MS, &p, line));
	assert_non_null(strstr(line, "1:39 left"));
	p.receivers = 1;
	assert_true(cp_meter_line(&m, now += 100 * MS, &p, line));
	assert_null(strstr(line, "slowest"));
	/* another round, from the beginning */
	p.done = 0;
	assert_true(cp_meter_line(&m, now += 100 * MS, &p, line));
	assert_int_equal(m.mark_done, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
