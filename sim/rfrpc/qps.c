/* SPDX-License-Identifier: MIT */
/*
 * qps.c - RF-RPC's figures 11 and 12: 42 callers, served by 14 threads with three
 * queue pairs each, or by 42 threads with one each, on 16 cores; and keys that
 * are skewed.
 *
 * With three or one queue pair a thread, a caller has one connection, and what it
 * asks for is there. The paper does not say how a skewed key finds its partition
 * over one. So uniform and zipfian keys are compared where each caller has a
 * connection to each of the 14 threads, as in `skein kv`: 588 queue pairs.
 */
#include "sim/rfrpc/rfrpc.h"

#define THREADS 6u /* of each of seven nodes */
#define CORES 16u
#define FEW 0
#define MANY 1

static const unsigned servers[] = {14, 42};
static const enum rfrpc_way ways[] = {RFRPC_FETCH, RFRPC_REPLY_WAIT_INLINE};
static const char *const names[][RFRPC_WAYS] = {
	[RPC_BED_OWN_SHARD] = {[RFRPC_FETCH] = "fetch",
			       [RFRPC_REPLY_WAIT_INLINE] =
				       "reply-wait, inline"},
	[RPC_BED_UNIFORM] = {[RFRPC_FETCH] = "fetch, uniform",
			     [RFRPC_REPLY_WAIT_INLINE] =
				     "reply-wait, inline, uniform"},
	[RPC_BED_ZIPFIAN] = {[RFRPC_FETCH] = "fetch, zipfian",
			     [RFRPC_REPLY_WAIT_INLINE] =
				     "reply-wait, inline, zipfian"},
};

/* Millions of calls a second, by keys, threads of the server's, and way. */
typedef double grid[3][2][RFRPC_WAYS];

static int point(struct figure *f, enum rpc_bed_keys keys, unsigned i,
		 enum rfrpc_way way, grid mops)
{
	struct rpc_bed_result r;
	int rc;

	f->conf.servers = servers[i];
	rfrpc_keys(f, keys);
	rc = rfrpc_point(f, way, &r);
	if (rc)
		return rc;
	mops[keys][i][way] = r.mops;
	report_line(f->rep, names[keys][way],
		    (double[]){servers[i], r.mops, r.p50_ns / 1000,
			       r.p99_ns / 1000, r.reads, r.qps, r.most,
			       r.fewest});
	return 0;
}

static void claims(struct figure *f, grid mops)
{
	double(*one)[RFRPC_WAYS] = mops[RPC_BED_OWN_SHARD];
	double(*uni)[RFRPC_WAYS] = mops[RPC_BED_UNIFORM];
	double(*zipf)[RFRPC_WAYS] = mops[RPC_BED_ZIPFIAN];

	FIGURE_CLAIM(f, "fetch_14_mops", one[FEW][RFRPC_FETCH], 1, 4.73);
	FIGURE_CLAIM(f, "fetch_14_over_42", one[FEW][RFRPC_FETCH],
		     one[MANY][RFRPC_FETCH], 1.51);
	/* As if results were replied: no paper. */
	FIGURE_CLAIM(f, "reply_wait_14_over_42",
		     one[FEW][RFRPC_REPLY_WAIT_INLINE],
		     one[MANY][RFRPC_REPLY_WAIT_INLINE], 0);
	FIGURE_CLAIM(f, "zipfian_over_uniform_14", zipf[FEW][RFRPC_FETCH],
		     uni[FEW][RFRPC_FETCH], 1);
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"servers", "mops",  "p50_us",
					   "p99_us",  "reads", "qps",
					   "most",    "fewest"};

	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

static int rfrpc_qps(const struct scenario_conf *sc, struct report *rep)
{
	grid mops = {0};
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, THREADS);

	columns(rep);
	f.conf.server_cores = CORES;
	for (unsigned keys = 0; keys < 3; keys++)
		for (unsigned i = 0; i < (keys ? 1 : 2); i++)
			for (unsigned w = 0; w < 2 && !rc; w++)
				rc = point(&f, keys, i, ways[w], mops);
	if (!rc)
		claims(&f, mops);
	return rc;
}

const struct scenario scenario_rfrpc_qps = {
	.name = "rfrpc-qps",
	.what = "one or three queue pairs a thread, skew (RF-RPC fig. 11, 12)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_OPS,
	.run = rfrpc_qps,
};
