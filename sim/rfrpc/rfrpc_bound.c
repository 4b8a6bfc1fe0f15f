/* SPDX-License-Identifier: MIT */
/*
 * rfrpc_bound.c - batches that keep a latency bound (RF-RPC, section 4.2 and
 * figure 13's auto-batch), under load that changes: the tuner beside batches of
 * fixed sizes.
 *
 * Each run has a seed of its own. After each step the number of callers that
 * make calls is drawn anew. A bound is held in a run if at most 5 % of all calls
 * took longer, those right after a step too. The fixed sizes meet the same
 * steps; the best of them is the fastest that holds the bound.
 */
#include "sim/rfrpc/rfrpc.h"

#include <math.h>

#define NODES 2u
#define THREADS 4u
#define SERVERS 1u
#define BOUND_NS 12000u
#define HELD 0.95
#define WINDOW 64u /* more than the tuner lets a caller have */
#define STEP_NS 5000000u
#define STEPS 4u
#define WARM_NS 5000000u
#define SEEDS 20u

static const unsigned fixed[] = {1, 2, 4, 8, 16, 32};

#define N_SIZES (sizeof(fixed) / sizeof(fixed[0]))

struct sums {
	double held_min, over_min, over;
	unsigned runs, best_found;
};

static void columns(struct report *rep)
{
	static const char *const cols[] = {"seed",	"held",	    "mops",
					   "p50_us",	"p99_us",   "best_size",
					   "best_mops", "over_best"};

	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

/* size 0: the tuner's. */
static int point(struct figure *f, unsigned size, struct rpc_bed_result *r)
{
	f->conf.whole = size != 0;
	f->conf.window = size ? size : WINDOW;
	f->conf.batch = size;
	f->conf.tuned = !size;
	return rfrpc_point(f, RFRPC_FETCH, r);
}

/* The fastest of the sizes that hold the bound; 0: none does. */
static int best_fixed(struct figure *f, unsigned *size, double *mops)
{
	struct rpc_bed_result r;
	int rc = 0;

	*size = 0;
	*mops = 0;
	for (unsigned i = 0; i < N_SIZES && !rc; i++) {
		rc = point(f, fixed[i], &r);
		if (rc || r.held < HELD || r.mops < *mops)
			continue;
		*size = fixed[i];
		*mops = r.mops;
	}
	return rc;
}

static int one_seed(struct figure *f, struct sums *s)
{
	struct rpc_bed_result r;
	unsigned size;
	double best, over;
	int rc = point(f, 0, &r);

	if (!rc)
		rc = best_fixed(f, &size, &best);
	if (rc)
		return rc;
	over = size ? r.mops / best : NAN;
	report_line(f->rep, "",
		    (double[]){(double)f->conf.seed, r.held, r.mops,
			       r.p50_ns / 1000, r.p99_ns / 1000, size, best,
			       over});
	if (!s->runs++ || r.held < s->held_min)
		s->held_min = r.held;
	if (!size)
		return 0;
	if (!s->best_found++ || over < s->over_min)
		s->over_min = over;
	s->over += over;
	return 0;
}

static int rfrpc_bound(const struct scenario_conf *sc, struct report *rep)
{
	unsigned seeds = sc->ops ? (unsigned)sc->ops : SEEDS;
	struct sums s = {0};
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, NODES, THREADS);

	columns(rep);
	f.conf.ops = 0;
	f.conf.servers = SERVERS;
	f.conf.bound_ns = BOUND_NS;
	f.conf.step_ns = STEP_NS;
	f.conf.warm_ns = WARM_NS;
	f.conf.run_ns = STEPS * STEP_NS;
	for (unsigned i = 0; i < seeds && !rc; i++) {
		f.conf.seed = sc->seed + i;
		rc = one_seed(&f, &s);
	}
	if (rc)
		return rc;
	report_row(rep, "seeds", s.runs);
	report_row(rep, "bound_us", BOUND_NS / 1000.0);
	report_row(rep, "held_min", s.held_min);
	report_row(rep, "seeds_with_a_fixed_size", s.best_found);
	report_row(rep, "tuned_over_best_fixed_min", s.over_min);
	if (s.best_found)
		report_row(rep, "tuned_over_best_fixed_mean",
			   s.over / s.best_found);
	return 0;
}

const struct scenario scenario_rfrpc_bound = {
	.name = "rfrpc-bound",
	.what = "batches that keep a latency bound as load changes (RF-RPC 4.2)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_OPS,
	.run = rfrpc_bound,
};
