/* SPDX-License-Identifier: MIT */
/*
 * flock.c - see flock.h; and FLOCK's figure 4.4: how threads share QPs.
 *
 * The paper's setting: 23 nodes call one server of 32 cores, 64 bytes either way,
 * eight calls outstanding. A client's node has 64 hardware threads (its
 * processors have two a core).
 */
#include "sim/flock/flock.h"

#define CORES 64u
#define LANES_MAX (RPC_BED_MAX_AQP / FLOCK_CLIENTS)
/* The paper does not say how often its schedulers run. Our interval is long
 * enough for a lane to ask for credits several times within it. */
#define SCHED_NS 250000u
#define BASELINE_WARM_NS 200000u
#define RUN_NS 300000u

/* --- what all have in common ------------------------------------------- */

int flock_begin(struct figure *f, const struct scenario_conf *sc,
		struct report *rep, unsigned nodes)
{
	int rc = figure_begin(f, sc, rep, "connectx5");

	f->conf = (struct rpc_bed_conf){
		.seed = sc->seed,
		.nic = &f->nic,
		.nodes = sc->nodes ? sc->nodes : nodes,
		.procs = 1,
		.threads = 1,
		.window = 8,
		.cores = CORES,
		.servers = FLOCK_SERVERS,
		.len = 64,
		.handler_ns = 20,
		.sched_ns = SCHED_NS,
		.warm_ns = 2 * SCHED_NS + BASELINE_WARM_NS,
		.run_ns = RUN_NS,
		.costs = sc->costs,
	};
	report_row(rep, "clients", f->conf.nodes);
	report_row(rep, "clients_paper", FLOCK_CLIENTS);
	return rc;
}

void flock_columns(struct figure *f, const char *x)
{
	static const char *const cols[] = {"window", "qps",    "mops",
					   "p50_us", "p99_us", "degree",
					   "answers"};

	f->rep->table.n_cols = 8;
	f->rep->table.cols[0] = x;
	for (unsigned c = 0; c < 7; c++)
		f->rep->table.cols[c + 1] = cols[c];
}

void flock_line(struct figure *f, const char *label, double x,
		const struct rpc_bed_result *r)
{
	report_line(f->rep, label,
		    (double[]){x, f->conf.window, r->qps, r->mops,
			       r->p50_ns / 1000, r->p99_ns / 1000, r->degree,
			       r->answers});
}

int flock_point(struct figure *f, const char *label, double x,
		struct rpc_bed_result *r)
{
	int rc = figure_point(f, r);

	if (!rc && label)
		flock_line(f, label, x, r);
	return rc;
}

int flock_baseline(struct figure *f, enum rpc_bed_system system,
		   const char *label, double x, struct rpc_bed_result *r)
{
	struct rpc_bed_conf was = f->conf;
	int rc;

	f->conf.system = system;
	f->conf.batch = 1;
	/* No scheduler has anything to do. */
	f->conf.warm_ns = BASELINE_WARM_NS;
	rc = flock_point(f, label, x, r);
	f->conf = was;
	return rc;
}

int flock_lanes(struct figure *f, const char *label, double x,
		struct rpc_bed_result *r)
{
	struct rpc_bed_conf *conf = &f->conf;

	conf->system = RPC_BED_LANES;
	conf->qps = conf->threads < LANES_MAX ? conf->threads : LANES_MAX;
	return flock_point(f, label, x, r);
}

/* --- figure 4.4 -------------------------------------------------------- */

#define NODES 4u

static const unsigned thread_steps[] = {1, 2, 4, 8, 16, 32, 48};

#define N_STEPS (sizeof(thread_steps) / sizeof(thread_steps[0]))

/* Results with this many threads: each thread has its own QP; threads share
 * lanes. */
static int sharing_step(struct figure *f, unsigned threads,
			struct rpc_bed_result *own,
			struct rpc_bed_result *lanes)
{
	struct rpc_bed_result r;
	int rc;

	f->conf.threads = threads;
	rc = flock_baseline(f, RPC_BED_PRIVATE, "no sharing", threads, own);
	/* With fewer threads all QPs are within RPC_BED_MAX_AQP, so no two
	 * threads share a QP. */
	for (unsigned share = 2; share <= 4 && threads > 8 && !rc; share += 2) {
		f->conf.share = share;
		rc = flock_baseline(f, RPC_BED_LOCKED,
				    share == 2 ? "lock, 2 threads"
					       : "lock, 4 threads",
				    threads, &r);
	}
	f->conf.share = 0;
	return rc ? rc : flock_lanes(f, "lanes", threads, lanes);
}

static int sharing(const struct scenario_conf *sc, struct report *rep)
{
	struct rpc_bed_result own[N_STEPS] = {0}, lanes[N_STEPS] = {0};
	struct figure f;
	int rc = flock_begin(&f, sc, rep, NODES);

	flock_columns(&f, "threads");
	for (unsigned i = 0; i < N_STEPS && !rc; i++)
		if (!sc->threads || thread_steps[i] == sc->threads)
			rc = sharing_step(&f, thread_steps[i], &own[i],
					  &lanes[i]);
	FIGURE_CLAIM(&f, "mops_ratio_32", lanes[5].mops, own[5].mops, 1.62);
	FIGURE_CLAIM(&f, "mops_ratio_48", lanes[6].mops, own[6].mops, 2.33);
	FIGURE_CLAIM(&f, "p99_ratio_32", lanes[5].p99_ns, own[5].p99_ns, 0.73);
	FIGURE_CLAIM(&f, "p99_ratio_48", lanes[6].p99_ns, own[6].p99_ns, 0.51);
	return rc;
}

const struct scenario scenario_flock_sharing = {
	.name = "flock-sharing",
	.what = "calls of many threads by how they share QPs (FLOCK fig. 4.4)",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_THREADS,
	.run = sharing,
};
