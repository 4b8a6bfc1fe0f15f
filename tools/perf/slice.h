/* SPDX-License-Identifier: MIT */
/*
 * slice.h - figures that mean something on a machine that changes under them.
 *
 * Yardstick probes and slices of the operation alternate:
 *
 *	probe 0, slice 0, probe 1, slice 1, ... slice n-1, probe n
 *
 * A slice whose two neighbouring probes differ by more than 20 % ran while the
 * machine changed, and is dropped. Each kept slice is divided by the mean of
 * its two probes; the figure is the median over the kept slices.
 *
 * Pure: no clock, no I/O. docs/measurements/performance.md, "How Skein measures".
 */
#ifndef SKEIN_TOOLS_PERF_SLICE_H
#define SKEIN_TOOLS_PERF_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Two probes that differ by more than this part of the smaller one saw two
 * different machines. */
#define SLICE_DRIFT_MAX 0.20
/* A cache-line round trip below it is one between cores that share a cache. */
#define SLICE_NEAR_NS 250.0

/* What a probe measured; NaN where it was not taken. */
struct slice_probe {
	double line_ns;	    /* cache-line round trip, p50 */
	double line_p99_ns; /* the same, p99 */
	double aux_ns;	    /* the other yardstick: see enum slice_yard */
};

/* Which probe figure tells whether the machine changed. */
enum slice_yard {
	SLICE_YARD_NONE, /* no probe is possible: every slice counts */
	SLICE_YARD_LINE, /* cache-line round trip */
	SLICE_YARD_AUX,	 /* eventfd round trip, or memcpy: ns for one */
};

/* One slice of the operation. */
struct slice {
	uint64_t ops;
	double elapsed_ns;
	double ns_per_op; /* the typical one: not the mean */
	double p50_ns;
	double p99_ns;
	bool kept; /* slices_judge() sets it */
};

/* NaN where nothing was kept or nothing was probed. */
struct slice_figures {
	unsigned kept;
	unsigned dropped;
	double ns_per_op; /* median over the kept slices, as are all below */
	double line_ns;
	double line_p99_ns;
	double aux_ns;
	double p50_ratio;	/* p50 / line_ns */
	double p99_ratio;	/* p99 / line_ns */
	double ns_per_op_ratio; /* ns per operation / line_ns */
	double aux_p50_ratio;	/* p50 / aux_ns */
	double aux_ns_ratio;	/* ns per operation / aux_ns */
};

/* Marks the slices to keep; probes holds n + 1 probes. Returns how many. */
unsigned slices_judge(struct slice *slices, unsigned n,
		      const struct slice_probe *probes, enum slice_yard yard);

/* The figures over the slices marked by slices_judge(). 0 or -ENOMEM. */
int slices_figures(const struct slice *slices, unsigned n,
		   const struct slice_probe *probes, struct slice_figures *f);

/* Of v[0..n), which is sorted in place; NaNs are left out. The mean of the
 * middle two when their number is even; NaN when there is none. */
double slice_median(double *v, unsigned n);

/* "near", "far", or NULL when line_ns is NaN. */
const char *slice_mode(double line_ns);

#endif
