/* SPDX-License-Identifier: MIT */
/*
 * slice.c - keeps the slices during which the machine held still, and takes
 * medians of ratios over them.
 */
#include "perf/slice.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double slice_median(double *v, unsigned n)
{
	unsigned i, m = 0;

	for (i = 0; i < n; i++)
		if (!isnan(v[i]))
			v[m++] = v[i];
	if (!m)
		return NAN;
	qsort(v, m, sizeof(*v), cmp_double);
	return m % 2 ? v[m / 2] : (v[m / 2 - 1] + v[m / 2]) / 2;
}

const char *slice_mode(double line_ns)
{
	if (isnan(line_ns))
		return NULL;
	return line_ns < SLICE_NEAR_NS ? "near" : "far";
}

static bool steady(double before, double after)
{
	/* written so that a NaN is unsteady */
	return fabs(before - after) <= SLICE_DRIFT_MAX * fmin(before, after);
}

unsigned slices_judge(struct slice *slices, unsigned n,
		      const struct slice_probe *probes, enum slice_yard yard)
{
	unsigned i, kept = 0;

	for (i = 0; i < n; i++) {
		const struct slice_probe *b = &probes[i], *a = &probes[i + 1];

		if (yard == SLICE_YARD_NONE)
			slices[i].kept = true;
		else if (yard == SLICE_YARD_LINE)
			slices[i].kept = steady(b->line_ns, a->line_ns);
		else
			slices[i].kept = steady(b->aux_ns, a->aux_ns);
		kept += slices[i].kept;
	}
	return kept;
}

/* The columns that medians are taken of. */
enum column {
	NS_PER_OP,
	LINE,
	LINE_P99,
	AUX,
	P50_RATIO,
	P99_RATIO,
	NS_RATIO,
	AUX_P50_RATIO,
	AUX_NS_RATIO,
	COLUMNS,
};

static void fill_row(const struct slice *s, const struct slice_probe *b,
		     double *v, unsigned stride)
{
	double line = (b[0].line_ns + b[1].line_ns) / 2;
	double aux = (b[0].aux_ns + b[1].aux_ns) / 2;
	double ns = s->ns_per_op;

	v[NS_PER_OP * stride] = ns;
	v[LINE * stride] = line;
	v[LINE_P99 * stride] = (b[0].line_p99_ns + b[1].line_p99_ns) / 2;
	v[AUX * stride] = aux;
	v[P50_RATIO * stride] = s->p50_ns / line;
	v[P99_RATIO * stride] = s->p99_ns / line;
	v[NS_RATIO * stride] = ns / line;
	v[AUX_P50_RATIO * stride] = s->p50_ns / aux;
	v[AUX_NS_RATIO * stride] = ns / aux;
}

int slices_figures(const struct slice *slices, unsigned n,
		   const struct slice_probe *probes, struct slice_figures *f)
{
	double *v;
	unsigned i, rows = 0;

	v = malloc(sizeof(*v) * COLUMNS * (n ? n : 1));
	if (!v)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		if (slices[i].kept)
			fill_row(&slices[i], &probes[i], v + rows++, n);
	f->kept = rows;
	f->dropped = n - rows;
	f->ns_per_op = slice_median(v + NS_PER_OP * n, rows);
	f->line_ns = slice_median(v + LINE * n, rows);
	f->line_p99_ns = slice_median(v + LINE_P99 * n, rows);
	f->aux_ns = slice_median(v + AUX * n, rows);
	f->p50_ratio = slice_median(v + P50_RATIO * n, rows);
	f->p99_ratio = slice_median(v + P99_RATIO * n, rows);
	f->ns_per_op_ratio = slice_median(v + NS_RATIO * n, rows);
	f->aux_p50_ratio = slice_median(v + AUX_P50_RATIO * n, rows);
	f->aux_ns_ratio = slice_median(v + AUX_NS_RATIO * n, rows);
	free(v);
	return 0;
}
