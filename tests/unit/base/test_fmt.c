/* SPDX-License-Identifier: MIT */
/*
 * test_fmt.c - the unit changes where the digits would overflow.
 */
#include "base/fmt.h"
#include "unit/cm.h"

#define BYTES(v, want) assert_string_equal(fmt_bytes(buf, sizeof(buf), v), want)
#define COUNT(v, want) assert_string_equal(fmt_count(buf, sizeof(buf), v), want)
#define TIME(v, want) assert_string_equal(fmt_ns(buf, sizeof(buf), v), want)

static void test_all(void **state)
{
	char buf[FMT_LEN];

	(void)state;
	BYTES(0, "0 B");
	BYTES(1023, "1023 B");
	BYTES(1024, "1.00 KiB");
	BYTES(1536, "1.50 KiB");
	BYTES(100 * 1024, "100 KiB");
	BYTES(1048575, "1.00 MiB");
	BYTES(UINT64_MAX, "16.0 EiB");
	COUNT(0, "0");
	COUNT(0.25, "0.25");
	COUNT(999, "999");
	COUNT(999.7, "1.00 k");
	COUNT(22.04e6, "22.0 M");
	COUNT(999.6e3, "1.00 M");
	TIME(850, "850 ns");
	TIME(1200, "1.20 us");
	TIME(15000000, "15.0 ms");
	TIME(2500000000ull, "2.50 s");
	TIME(UINT64_MAX, "18446744074 s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
