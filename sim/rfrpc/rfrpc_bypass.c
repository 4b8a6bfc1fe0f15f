/* SPDX-License-Identifier: MIT */
/*
 * rfrpc_bypass.c - RF-RPC's figure 2, requests of so many READs each, and section
 * 5.2: Pilaf's GETs beside fetched calls, few PUTs and many.
 *
 * Figure 2 has 21 clients: three threads on each of seven nodes.
 */
#include "sim/rfrpc/bypass.h"

#define READS_MAX 8u
#define FIG2_THREADS 3u
#define SERVERS 4u

static int fig2(struct figure *f, double *first, double *last)
{
	struct bypass_result r = {0};
	int rc = 0;

	f->conf.threads = FIG2_THREADS;
	for (unsigned n = 1; n <= READS_MAX && !rc; n++) {
		rc = bypass_point(f, n, &r);
		if (rc)
			break;
		report_line(f->rep, "READs",
			    (double[]){n, r.mops, r.mean_us, r.reads, r.torn});
		if (n == 1)
			*first = r.mops;
	}
	*last = r.mops;
	f->conf.threads = RFRPC_CALLERS;
	return rc;
}

/* PUTs of a hundred. */
static int beside(struct figure *f, unsigned put_pct, struct bypass_result *b,
		  struct rpc_bed_result *r)
{
	int rc;

	f->conf.put_pct = put_pct;
	rc = bypass_point(f, 0, b);
	if (rc)
		return rc;
	report_line(f->rep, "bypass",
		    (double[]){put_pct, b->mops, b->mean_us, b->reads,
			       b->torn});
	rc = rfrpc_point(f, RFRPC_FETCH, r);
	if (!rc)
		report_line(f->rep, rfrpc_names[RFRPC_FETCH],
			    (double[]){put_pct, r->mops, r->mean_ns / 1000,
				       r->reads, 0});
	return rc;
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"reads_or_puts_%", "mops", "mean_us",
					   "reads", "torn"};

	rep->table.n_cols = 5;
	for (unsigned c = 0; c < 5; c++)
		rep->table.cols[c] = cols[c];
}

static int rfrpc_bypass(const struct scenario_conf *sc, struct report *rep)
{
	struct bypass_result few = {0}, many = {0};
	struct rpc_bed_result few_f = {0}, many_f = {0};
	double first = 0, last = 0;
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, RFRPC_CALLERS);

	columns(rep);
	f.conf.servers = sc->threads ? sc->threads : SERVERS;
	if (!rc)
		rc = fig2(&f, &first, &last);
	if (!rc)
		rc = beside(&f, 5, &few, &few_f);
	if (!rc)
		rc = beside(&f, 50, &many, &many_f);
	if (rc)
		return rc;
	report_row(rep, "mops_1_read", first);
	report_row(rep, "mops_8_reads", last);
	FIGURE_CLAIM(&f, "reads_a_get", few.reads, 1, 3.2);
	FIGURE_CLAIM(&f, "bypass_mops", few.mops, 1, 3.5);
	FIGURE_CLAIM(&f, "fetch_over_bypass", few_f.mops, few.mops, 1.57);
	FIGURE_CLAIM(&f, "fetch_over_bypass_50_puts", many_f.mops, many.mops,
		     4);
	return 0;
}

const struct scenario scenario_rfrpc_bypass = {
	.name = "rfrpc-bypass",
	.what = "GETs by READs alone, beside fetched calls (RF-RPC fig. 2, 5.2)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_SIZES,
	.run = rfrpc_bypass,
};
