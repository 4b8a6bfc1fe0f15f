/* SPDX-License-Identifier: MIT */
/*
 * nodes.c - FLOCK's figure 4.7: many client processes, up to 16 on a
 * node. Each has one thread, or two threads that share a QP, or two threads
 * with a QP each. Beside them the same number of senders over UD.
 */
#include "sim/flock/flock_ud.h"

#define NODES 4u

static const unsigned proc_steps[] = {1, 2, 4, 8, 16};

#define N_STEPS (sizeof(proc_steps) / sizeof(proc_steps[0]))

struct four {
	struct rpc_bed_result ud, one, own, shared;
};

static int handles(struct figure *f, const char *label, unsigned threads,
		   unsigned share, struct rpc_bed_result *r)
{
	f->conf.threads = threads;
	f->conf.share = share;
	return flock_point(f, label, f->conf.nodes * f->conf.procs, r);
}

static int step(struct figure *f, unsigned procs, struct four *r)
{
	unsigned clients = f->conf.nodes * procs;
	int rc;

	f->conf.procs = procs;
	rc = flock_ud_point(f, clients, clients, &r->ud);
	if (!rc)
		rc = handles(f, "1 thread, 1 QP", 1, 1, &r->one);
	if (!rc)
		rc = handles(f, "2 threads, 2 QPs", 2, 1, &r->own);
	if (!rc)
		rc = handles(f, "2 threads, 1 QP", 2, 2, &r->shared);
	return rc;
}

static void claims(struct figure *f, const struct four *r)
{
	const struct four *last = &r[N_STEPS - 1];
	double q, least = 1e9, most = 0;

	/* FLOCK's range begins with two processes a node. */
	for (unsigned i = 1; i < N_STEPS; i++) {
		q = r[i].shared.mops / r[i].own.mops;
		least = q < least ? q : least;
		most = q > most ? q : most;
	}
	FIGURE_CLAIM(f, "mops_over_ud", last->one.mops, last->ud.mops, 1.74);
	FIGURE_CLAIM(f, "p50_over_ud", last->one.p50_ns, last->ud.p50_ns, 0.49);
	FIGURE_CLAIM(f, "p99_over_ud", last->one.p99_ns, last->ud.p99_ns, 0.75);
	FIGURE_CLAIM(f, "shared_qp_least", least, 1, 1.1);
	FIGURE_CLAIM(f, "shared_qp_most", most, 1, 1.3);
}

static int nodes(const struct scenario_conf *sc, struct report *rep)
{
	struct four r[N_STEPS] = {0};
	struct figure f;
	int rc = flock_begin(&f, sc, rep, NODES);

	f.conf.system = RPC_BED_LANES;
	f.conf.qps = 1;
	flock_columns(&f, "clients");
	for (unsigned i = 0; i < N_STEPS && !rc; i++)
		rc = step(&f, proc_steps[i], &r[i]);
	if (!rc)
		claims(&f, r);
	return rc;
}

const struct scenario scenario_flock_nodes = {
	.name = "flock-nodes",
	.what = "calls of many client processes (FLOCK fig. 4.7)",
	.costs = true,
	.sizes = SCENARIO_NODES,
	.run = nodes,
};
