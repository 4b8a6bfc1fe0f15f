/* SPDX-License-Identifier: MIT */
/*
 * flock_ud.c - FLOCK's figures 4.1 to 4.3: calls over handles and over UD, with
 * one, four and eight outstanding a thread.
 *
 * The UD side is ud_rpc.c: it sends and receives as eRPC does, without eRPC's
 * handling of loss and congestion and without its sessions. So UD is faster
 * here than eRPC really is.
 */
#include "sim/flock/flock_ud.h"

#include "sim/flock/ud_rpc.h"

#define NODES 4u
#define WARM_NS 200000u

static const unsigned windows[] = {1, 4, 8};
static const unsigned thread_steps[] = {1, 2, 4, 8, 16, 32, 48};

#define N_WINDOWS (sizeof(windows) / sizeof(windows[0]))
#define N_STEPS (sizeof(thread_steps) / sizeof(thread_steps[0]))

int flock_ud_point(struct figure *f, unsigned senders, double x,
		   struct rpc_bed_result *r)
{
	struct ud_rpc_conf conf = {
		.seed = f->conf.seed,
		.nic = &f->nic,
		.nodes = f->conf.nodes,
		.senders = senders,
		.depth = f->conf.window,
		.cores = f->conf.servers,
		.len = f->conf.len,
		.handler_ns = f->conf.handler_ns,
		.warm_ns = WARM_NS,
		.run_ns = f->conf.run_ns,
		.charged = true,
		.costs = f->conf.costs,
	};
	struct ud_rpc_result ud = {0};
	int rc = ud_rpc_run(&conf, &ud);

	if (rc)
		return rc;
	*r = (struct rpc_bed_result){.mops = ud.mops,
				     .p50_ns = ud.p50_ns,
				     .p99_ns = ud.p99_ns,
				     .degree = 1,
				     .answers = 1,
				     .qps = conf.cores};
	report_add(f->rep, ud.hash, ud.virtual_ns, ud.events);
	flock_line(f, "UD", x, r);
	return 0;
}

struct pair {
	struct rpc_bed_result ud, lanes;
};

static int step(struct figure *f, unsigned window, unsigned threads,
		struct pair *p)
{
	int rc;

	f->conf.window = window;
	f->conf.threads = threads;
	rc = flock_ud_point(f, threads * f->conf.nodes, threads, &p->ud);
	return rc ? rc : flock_lanes(f, "lanes", threads, &p->lanes);
}

/* With one call outstanding FLOCK finds both alike for "up to four threads",
 * then FLOCK 1.25 to 3.4 times as fast. */
static void best_ratio(struct figure *f, const struct pair *one)
{
	double r, most = 0;

	for (unsigned i = 3; i < N_STEPS; i++) {
		r = one[i].ud.mops > 0 ? one[i].lanes.mops / one[i].ud.mops : 0;
		most = r > most ? r : most;
	}
	FIGURE_CLAIM(f, "mops_ratio_w1_most", most, 1, 3.4);
}

static void claims(struct figure *f, struct pair p[N_WINDOWS][N_STEPS])
{
	const struct pair *one = p[0], *eight = p[2];

	best_ratio(f, one);
	FIGURE_CLAIM(f, "mops_w1_32_over_16", one[5].lanes.mops,
		     one[4].lanes.mops, 1.25);
	FIGURE_CLAIM(f, "mops_w1_48_over_32", one[6].lanes.mops,
		     one[5].lanes.mops, 1.47);
	FIGURE_CLAIM(f, "ud_p50_ratio_w1_32", one[5].ud.p50_ns,
		     one[5].lanes.p50_ns, 2);
	FIGURE_CLAIM(f, "ud_p99_ratio_w1_32", one[5].ud.p99_ns,
		     one[5].lanes.p99_ns, 1.5);
	FIGURE_CLAIM(f, "ud_p50_ratio_w8_32", eight[5].ud.p50_ns,
		     eight[5].lanes.p50_ns, 2.9);
	FIGURE_CLAIM(f, "ud_p50_ratio_w8_48", eight[6].ud.p50_ns,
		     eight[6].lanes.p50_ns, 3.9);
}

static int flock_ud(const struct scenario_conf *sc, struct report *rep)
{
	struct pair p[N_WINDOWS][N_STEPS] = {0};
	struct figure f;
	int rc = flock_begin(&f, sc, rep, NODES);

	flock_columns(&f, "threads");
	for (unsigned w = 0; w < N_WINDOWS; w++)
		for (unsigned i = 0; i < N_STEPS && !rc; i++)
			if (!sc->threads || thread_steps[i] == sc->threads)
				rc = step(&f, windows[w], thread_steps[i],
					  &p[w][i]);
	claims(&f, p);
	return rc;
}

const struct scenario scenario_flock_ud = {
	.name = "flock-ud",
	.what = "calls over handles and over UD (FLOCK fig. 4.1 to 4.3)",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_THREADS,
	.run = flock_ud,
};
