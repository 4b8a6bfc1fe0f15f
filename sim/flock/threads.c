/* SPDX-License-Identifier: MIT */
/*
 * threads.c - FLOCK's figure 4.6: a tenth of 32 threads makes large
 * calls. With the sender's thread scheduler, threads share the lanes of one
 * handle. Without it two threads keep one QP for good, as in the paper: each
 * pair has a handle of one lane.
 *
 * The paper does not say which sizes: these are ours.
 */
#include "sim/flock/flock.h"

#define NODES 4u
#define THREADS 32u
#define LARGE_PCT 10u

static const uint32_t sizes[] = {64, 512, 1024, 2048, 4096, 8192};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The best ratio of the two. */
static int step(struct figure *f, uint32_t size, double *best)
{
	struct rpc_bed_result pairs = {0}, lanes = {0};
	int rc;

	f->conf.large_len = size;
	f->conf.system = RPC_BED_LANES;
	f->conf.share = 2;
	f->conf.qps = 1;
	rc = flock_point(f, "two threads a QP", size, &pairs);
	f->conf.share = 0;
	if (!rc)
		rc = flock_lanes(f, "scheduled", size, &lanes);
	if (!rc && lanes.mops > *best * pairs.mops)
		*best = lanes.mops / pairs.mops;
	return rc;
}

static int threads(const struct scenario_conf *sc, struct report *rep)
{
	struct figure f;
	double best = 0;
	int rc = flock_begin(&f, sc, rep, NODES);

	f.conf.threads = sc->threads ? sc->threads : THREADS;
	f.conf.large_pct = LARGE_PCT;
	flock_columns(&f, "large_bytes");
	for (unsigned i = 0; i < N_SIZES && !rc; i++)
		rc = step(&f, sizes[i], &best);
	FIGURE_CLAIM(&f, "mops_ratio_most", best, 1, 1.5);
	return rc;
}

const struct scenario scenario_flock_threads = {
	.name = "flock-threads",
	.what = "small and large calls, threads spread by size (FLOCK fig. 4.6)",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_THREADS,
	.run = threads,
};
