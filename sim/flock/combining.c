/* SPDX-License-Identifier: MIT */
/*
 * combining.c - FLOCK's figure 4.5: handles that combine requests and answers
 * into messages, beside the same handles with one request or answer in each
 * message. 32 threads a client.
 */
#include "sim/flock/flock.h"

#define NODES 4u
#define THREADS 32u

static const unsigned windows[] = {1, 4, 8};

#define N_WINDOWS (sizeof(windows) / sizeof(windows[0]))

static void columns(struct report *rep)
{
	static const char *const cols[] = {"window", "mops",   "p50_us",
					   "p99_us", "degree", "answers",
					   "nic_in", "nic_out"};

	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

static int point(struct figure *f, unsigned batch, struct rpc_bed_result *r)
{
	int rc;

	f->conf.batch = batch;
	rc = flock_lanes(f, NULL, 0, r);
	if (rc)
		return rc;
	report_line(f->rep, batch == 1 ? "one a message" : "combined",
		    (double[]){f->conf.window, r->mops, r->p50_ns / 1000,
			       r->p99_ns / 1000, r->degree, r->answers,
			       r->in_per_call, r->out_per_call});
	return 0;
}

static int combining(const struct scenario_conf *sc, struct report *rep)
{
	struct rpc_bed_result off[N_WINDOWS] = {0}, on[N_WINDOWS] = {0};
	struct figure f;
	int rc = flock_begin(&f, sc, rep, NODES);

	f.conf.threads = sc->threads ? sc->threads : THREADS;
	columns(rep);
	for (unsigned w = 0; w < N_WINDOWS && !rc; w++) {
		f.conf.window = windows[w];
		rc = point(&f, 1, &off[w]);
		if (!rc)
			rc = point(&f, 0, &on[w]);
	}
	FIGURE_CLAIM(&f, "mops_ratio_w1", on[0].mops, off[0].mops, 1.4);
	FIGURE_CLAIM(&f, "mops_ratio_w4", on[1].mops, off[1].mops, 1.7);
	FIGURE_CLAIM(&f, "mops_ratio_w8", on[2].mops, off[2].mops, 1.7);
	FIGURE_CLAIM(&f, "degree_w1", on[0].degree, 1, 1.56);
	FIGURE_CLAIM(&f, "degree_w4", on[1].degree, 1, 1.7);
	FIGURE_CLAIM(&f, "degree_w8", on[2].degree, 1, 2);
	return rc;
}

const struct scenario scenario_flock_combining = {
	.name = "flock-combining",
	.what = "handles with and without combining (FLOCK fig. 4.5)",
	.costs = true,
	.sizes = SCENARIO_NODES | SCENARIO_THREADS,
	.run = combining,
};
