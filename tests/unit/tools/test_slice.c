/* SPDX-License-Identifier: MIT */
/*
 * test_slice.c - which slices are dropped, and what the medians are.
 */
#include "perf/slice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define N(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

static struct slice_probe line(double ns)
{
	return (struct slice_probe){ns, 2 * ns, NAN};
}

static struct slice_probe aux(double line_ns, double aux_ns)
{
	return (struct slice_probe){line_ns, 2 * line_ns, aux_ns};
}

static struct slice op(uint64_t ops, double elapsed, double p50, double p99)
{
	return (struct slice){.ops = ops,
			      .elapsed_ns = elapsed,
			      .ns_per_op = elapsed / (double)ops,
			      .p50_ns = p50,
			      .p99_ns = p99};
}

static void close_to(double got, double want)
{
	assert_true(fabs(got - want) < 1e-9 * fabs(want) + 1e-12);
}

static void test_median(void **state)
{
	double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
	double holes[] = {NAN, 2, NAN, 6, 4}, none[] = {NAN, NAN};

	close_to(slice_median(odd, N(odd)), 3);
	close_to(slice_median(even, N(even)), 2.5);
	close_to(slice_median(one, 1), 7);
	close_to(slice_median(holes, N(holes)), 4);
	assert_true(isnan(slice_median(none, N(none))));
	assert_true(isnan(slice_median(one, 0)));
}

static void test_mode(void **state)
{
	assert_string_equal(slice_mode(110), "near");
	assert_string_equal(slice_mode(249.9), "near");
	assert_string_equal(slice_mode(250), "far");
	assert_string_equal(slice_mode(500), "far");
	assert_null(slice_mode(NAN));
}

/* 20 % apart is still the same machine, more is not; either order. */
static void test_drop_at_drift(void **state)
{
	struct slice_probe p[] = {line(100), line(120), line(100),
				  line(121), line(100), line(100)};
	struct slice s[5] = {{0}};

	assert_int_equal(slices_judge(s, 5, p, SLICE_YARD_LINE), 3);
	assert_true(s[0].kept);
	assert_true(s[1].kept);
	assert_false(s[2].kept);
	assert_false(s[3].kept);
	assert_true(s[4].kept);
}

static void test_unprobed_is_dropped(void **state)
{
	struct slice_probe p[] = {line(100), line(NAN), line(100)};
	struct slice s[2] = {{0}};

	assert_int_equal(slices_judge(s, 2, p, SLICE_YARD_LINE), 0);
	assert_int_equal(slices_judge(s, 2, p, SLICE_YARD_AUX), 0);
	assert_int_equal(slices_judge(s, 2, p, SLICE_YARD_NONE), 2);
}

/* Each yard looks at its own probe only. */
static void test_yard_chooses_probe(void **state)
{
	struct slice_probe p[] = {aux(100, 1000), aux(500, 1010),
				  aux(500, 2000)};
	struct slice s[2] = {{0}};

	assert_int_equal(slices_judge(s, 2, p, SLICE_YARD_AUX), 1);
	assert_true(s[0].kept);
	assert_int_equal(slices_judge(s, 2, p, SLICE_YARD_LINE), 1);
	assert_true(s[1].kept);
}

/* The machine goes from near to far: the slice in between says nothing, and
 * the ratio is the same on either side although the times are not. */
static void test_ratio_outlives_mode_change(void **state)
{
	struct slice_probe p[] = {line(100), line(110), line(500), line(500)};
	struct slice s[] = {op(1000, 126000, 126, 210), op(1000, 9e5, 900, 999),
			    op(1000, 600000, 600, 1000)};
	struct slice_figures f;

	slices_judge(s, 3, p, SLICE_YARD_LINE);
	assert_int_equal(slices_figures(s, 3, p, &f), 0);
	assert_int_equal(f.kept, 2);
	assert_int_equal(f.dropped, 1);
	close_to(f.p50_ratio, 1.2);
	close_to(f.p99_ratio, 2.0);
	close_to(f.ns_per_op_ratio, 1.2);
	close_to(f.line_ns, (105 + 500) / 2.0);
	close_to(f.line_p99_ns, (210 + 1000) / 2.0);
	assert_true(isnan(f.aux_ns));
	assert_true(isnan(f.aux_p50_ratio));
}

static void test_median_of_ratios(void **state)
{
	struct slice_probe p[] = {aux(100, 1000), aux(100, 1000),
				  aux(100, 1000), aux(100, 1000)};
	struct slice s[] = {op(10, 2000, 150, 300), op(10, 90000, 9000, 9000),
			    op(10, 4000, 170, 320)};
	struct slice_figures f;

	slices_judge(s, 3, p, SLICE_YARD_AUX);
	assert_int_equal(slices_figures(s, 3, p, &f), 0);
	close_to(f.p50_ratio, 1.7);
	close_to(f.p99_ratio, 3.2);
	close_to(f.ns_per_op, 400);
	close_to(f.ns_per_op_ratio, 4);
	close_to(f.aux_p50_ratio, 0.17);
	close_to(f.aux_ns_ratio, 0.4);
}

static void test_nothing_kept(void **state)
{
	struct slice_probe p[] = {line(100), line(500)};
	struct slice s[] = {op(10, 1000, 100, 100)};
	struct slice_figures f;

	slices_judge(s, 1, p, SLICE_YARD_LINE);
	assert_int_equal(slices_figures(s, 1, p, &f), 0);
	assert_int_equal(f.kept, 0);
	assert_int_equal(f.dropped, 1);
	assert_true(isnan(f.p50_ratio));
	assert_true(isnan(f.line_ns));
	assert_int_equal(slices_figures(s, 0, p, &f), 0);
	assert_int_equal(f.dropped, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_mode),
		cmocka_unit_test(test_drop_at_drift),
		cmocka_unit_test(test_unprobed_is_dropped),
		cmocka_unit_test(test_yard_chooses_probe),
		cmocka_unit_test(test_ratio_outlives_mode_change),
		cmocka_unit_test(test_median_of_ratios),
		cmocka_unit_test(test_nothing_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
