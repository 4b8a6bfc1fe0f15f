/* SPDX-License-Identifier: MIT */
/*
 * posts.c - RF-RPC's figure 10: what fetched calls gain if their requests are
 * inline and have no completion, by the number of callers; calls alone and in
 * batches of 16.
 *
 * The paper does not say how many callers its gain of "nearly 30 %" has.
 */
#include "sim/rfrpc/rfrpc.h"

#define SERVERS 4u
#define BATCH 16u
#define WARM_NS 1000000u /* the first READs wait too long */

static const struct {
	const char *name;
	bool inlines_not, waits;
} kinds[] = {
	{"neither", true, true},
	{"inline", false, true},
	{"unsignalled", true, false},
	{"both", false, false},
};

#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const unsigned threads[] = {1, 5}; /* of each of seven nodes */

#define ALONE 0
#define IN_BATCH 1

/* Millions of calls a second: by threads, alone or in a batch, kinds. */
typedef double grid[2][2][N_KINDS];

static int point(struct figure *f, unsigned t, unsigned batch, unsigned kind,
		 double *mops)
{
	struct rpc_bed_result r;
	int rc;

	f->conf.threads = threads[t];
	f->conf.whole = batch == IN_BATCH;
	f->conf.window = f->conf.batch = batch == IN_BATCH ? BATCH : 1;
	f->conf.client_inlines_not = kinds[kind].inlines_not;
	f->conf.client_waits = kinds[kind].waits;
	rc = rfrpc_point(f, RFRPC_FETCH, &r);
	if (rc)
		return rc;
	*mops = r.mops;
	report_line(f->rep, kinds[kind].name,
		    (double[]){f->conf.nodes * threads[t], f->conf.window,
			       r.mops, r.mean_ns / 1000, r.p50_ns / 1000,
			       r.p99_ns / 1000});
	return 0;
}

static void claims(struct figure *f, grid m)
{
	const double *few = m[0][ALONE], *many = m[1][ALONE];

	FIGURE_CLAIM(f, "both_over_neither_7", few[3], few[0], 1.3);
	FIGURE_CLAIM(f, "both_over_neither_35", many[3], many[0], 1.3);
	/* The paper: less than "unsignalled" gains, without numbers. */
	FIGURE_CLAIM(f, "inline_over_neither_7", few[1], few[0], 0);
	FIGURE_CLAIM(f, "unsignalled_over_neither_7", few[2], few[0], 0);
	FIGURE_CLAIM(f, "batch16_unsignalled_over_neither_35",
		     m[1][IN_BATCH][2], m[1][IN_BATCH][0], 0);
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"callers", "batch",	"mops",
					   "mean_us", "p50_us", "p99_us"};

	rep->table.n_cols = 6;
	for (unsigned c = 0; c < 6; c++)
		rep->table.cols[c] = cols[c];
}

static int rfrpc_posts(const struct scenario_conf *sc, struct report *rep)
{
	grid mops = {0};
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, RFRPC_CALLERS);

	columns(rep);
	f.conf.servers = SERVERS;
	f.conf.warm_ns = WARM_NS;
	for (unsigned t = 0; t < 2; t++)
		for (unsigned b = 0; b < 2; b++)
			for (unsigned k = 0; k < N_KINDS && !rc; k++)
				rc = point(&f, t, b, k, &mops[t][b][k]);
	if (!rc)
		claims(&f, mops);
	return rc;
}

const struct scenario scenario_rfrpc_posts = {
	.name = "rfrpc-posts",
	.what = "requests inline and without completion (RF-RPC fig. 10)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_OPS,
	.run = rfrpc_posts,
};
