/* SPDX-License-Identifier: MIT */
/*
 * batch.c - RF-RPC's figures 13 and 14: callers that make calls in batches,
 * one batch at a time, fetched and replied, by the size of a batch.
 *
 * The paper's setting: 16 threads of the server's, 35 callers. A batch of up to
 * 16 calls is one message (skein_rpc_call_batch()), a larger one several. The
 * paper's latencies are means.
 *
 * Figure 16, the same over 10 GbE: eight threads, 16 callers. Figure 15, with
 * skewed keys: a batch has calls of one partition, so each caller has a connection
 * to each thread, and skewed keys are compared with uniform ones.
 */
#include "sim/rfrpc/rfrpc.h"

#define SERVERS 16u
#define RUN_NS 400000u
#define PAPER_US 12.63 /* fetched batches of 24: 45.80 M calls a second */

static const unsigned sizes[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96};
static const enum rfrpc_way ways[] = {RFRPC_FETCH, RFRPC_REPLY,
				      RFRPC_REPLY_WAIT_INLINE};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define N_WAYS (sizeof(ways) / sizeof(ways[0]))

struct curve {
	double mops[N_SIZES], mean_us[N_SIZES], p50_us[N_SIZES];
};

static unsigned at(unsigned size)
{
	unsigned i = 0;

	while (sizes[i] != size)
		i++;
	return i;
}

static double peak(const struct curve *c)
{
	double most = 0;

	for (unsigned i = 0; i < N_SIZES; i++)
		most = c->mops[i] > most ? c->mops[i] : most;
	return most;
}

/* By lines between the points; 0 outside of them. */
static double mops_at_us(const struct curve *c, double us)
{
	for (unsigned i = 0; i + 1 < N_SIZES; i++) {
		double a = c->mean_us[i], b = c->mean_us[i + 1];

		if (a <= us && us < b)
			return c->mops[i] + (c->mops[i + 1] - c->mops[i]) *
						    (us - a) / (b - a);
	}
	return 0;
}

static void least_and_most(const double *a, const double *b, double *least,
			   double *most)
{
	*least = *most = a[0] / b[0];
	for (unsigned i = 1; i < N_SIZES; i++) {
		double r = a[i] / b[i];

		*least = r < *least ? r : *least;
		*most = r > *most ? r : *most;
	}
}

static void claims(struct figure *f, const struct curve *c)
{
	const struct curve *fetch = &c[RFRPC_FETCH];
	const struct curve *wait = &c[RFRPC_REPLY_WAIT_INLINE];
	unsigned four = at(4);
	double least, most;

	FIGURE_CLAIM(f, "batch4_over_1", fetch->mops[four], fetch->mops[0],
		     3.9);
	FIGURE_CLAIM(f, "batch4_p50_over_1", fetch->p50_us[four],
		     fetch->p50_us[0], 1.08);
	FIGURE_CLAIM(f, "batch4_us", fetch->mean_us[four], 1, 6.17);
	FIGURE_CLAIM(f, "peak_over_1", peak(fetch), fetch->mops[0], 11.3);
	FIGURE_CLAIM(f, "peak_mops", peak(fetch), 1, 62.7);
	FIGURE_CLAIM(f, "batch24_mops", fetch->mops[at(24)], 1, 45.8);
	FIGURE_CLAIM(f, "batch24_us", fetch->mean_us[at(24)], 1, PAPER_US);
	FIGURE_CLAIM(f, "reply_wait_mops_at_12.63_us",
		     mops_at_us(wait, PAPER_US), 1, 21.67);
	least_and_most(fetch->mops, wait->mops, &least, &most);
	report_row(f->rep, "fetch_over_reply_wait_min", least);
	report_row(f->rep, "fetch_over_reply_wait_max", most);
	least_and_most(wait->mean_us, fetch->mean_us, &least, &most);
	FIGURE_CLAIM(f, "reply_wait_us_over_fetch_min", least, 1, 1.18);
	FIGURE_CLAIM(f, "reply_wait_us_over_fetch_max", most, 1, 2);
}

static int point(struct figure *f, const char *name, enum rfrpc_way way,
		 unsigned i, struct curve *c)
{
	struct rpc_bed_result r;
	int rc;

	f->conf.window = f->conf.batch = sizes[i];
	rc = rfrpc_point(f, way, &r);
	if (rc)
		return rc;
	c->mops[i] = r.mops;
	c->mean_us[i] = r.mean_ns / 1000;
	c->p50_us[i] = r.p50_ns / 1000;
	report_line(f->rep, name,
		    (double[]){sizes[i], r.mops, r.mean_ns / 1000,
			       r.p50_ns / 1000, r.p99_ns / 1000, r.degree,
			       r.reads, r.posts});
	return 0;
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"batch",  "mops",   "mean_us",
					   "p50_us", "p99_us", "degree",
					   "reads",  "posts"};

	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

static int curves(struct figure *f, struct curve *c)
{
	int rc = 0;

	for (unsigned w = 0; w < N_WAYS && !rc; w++)
		for (unsigned i = 0; i < N_SIZES && !rc; i++)
			rc = point(f, rfrpc_names[ways[w]], ways[w], i,
				   &c[ways[w]]);
	return rc;
}

static int rfrpc_batch(const struct scenario_conf *sc, struct report *rep)
{
	struct curve c[RFRPC_WAYS] = {0};
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, RFRPC_CALLERS);

	columns(rep);
	f.conf.servers = sc->threads ? sc->threads : SERVERS;
	f.conf.run_ns = RUN_NS;
	f.conf.whole = true;
	if (!rc)
		rc = curves(&f, c);
	if (!rc)
		claims(&f, c);
	return rc;
}

/* --- figure 16 --------------------------------------------------------- */

static int rfrpc_roce(const struct scenario_conf *sc, struct report *rep)
{
	struct curve c[RFRPC_WAYS] = {0};
	const struct curve *fetch = &c[RFRPC_FETCH];
	const struct curve *wait = &c[RFRPC_REPLY_WAIT_INLINE];
	double least, most;
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, 2, 8);

	if (!rc && !sc->nic)
		rc = nic_model_find("connectx3-roce", &f.nic);
	columns(rep);
	f.conf.servers = 8;
	f.conf.run_ns = RUN_NS;
	f.conf.whole = true;
	if (!rc)
		rc = curves(&f, c);
	if (rc)
		return rc;
	/* The paper: more with batches until the cable is full, then longer
	 * latencies only; less than over InfiniBand. No numbers. */
	FIGURE_CLAIM(&f, "peak_mops", peak(fetch), 1, 0);
	FIGURE_CLAIM(&f, "peak_over_1", peak(fetch), fetch->mops[0], 0);
	FIGURE_CLAIM(&f, "batch96_over_32", fetch->mops[at(96)],
		     fetch->mops[at(32)], 0);
	least_and_most(fetch->mops, wait->mops, &least, &most);
	report_row(rep, "fetch_over_reply_wait_min", least);
	report_row(rep, "fetch_over_reply_wait_max", most);
	return 0;
}

/* --- figure 15 --------------------------------------------------------- */

/* Every third size. */
static int skew(struct figure *f, enum rfrpc_way way, const char *const *names,
		double *least, double *most)
{
	struct curve c[2] = {0};
	int rc = 0;

	*least = *most = 1;
	for (unsigned i = 0; i < N_SIZES && !rc; i += 3) {
		double r;

		for (unsigned k = 0; k < 2 && !rc; k++) {
			rfrpc_keys(f, k ? RPC_BED_ZIPFIAN : RPC_BED_UNIFORM);
			rc = point(f, names[k], way, i, &c[k]);
		}
		r = c[1].mops[i] / c[0].mops[i];
		*least = r < *least ? r : *least;
		*most = r > *most ? r : *most;
	}
	return rc;
}

static int rfrpc_skew(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const fetched[] = {"fetch, uniform",
					      "fetch, zipfian"};
	static const char *const waited[] = {"reply-wait, inline, uniform",
					     "reply-wait, inline, zipfian"};
	double fetch_min, fetch_max, wait_min, wait_max;
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, RFRPC_CALLERS);

	columns(rep);
	f.conf.servers = sc->threads ? sc->threads : SERVERS;
	f.conf.run_ns = RUN_NS;
	f.conf.whole = true;
	if (!rc)
		rc = skew(&f, RFRPC_FETCH, fetched, &fetch_min, &fetch_max);
	if (!rc)
		rc = skew(&f, RFRPC_REPLY_WAIT_INLINE, waited, &wait_min,
			  &wait_max);
	if (rc)
		return rc;
	/* The paper: "does not impact the results much". */
	FIGURE_CLAIM(&f, "fetch_zipfian_over_uniform_min", fetch_min, 1, 1);
	FIGURE_CLAIM(&f, "fetch_zipfian_over_uniform_max", fetch_max, 1, 1);
	FIGURE_CLAIM(&f, "wait_zipfian_over_uniform_min", wait_min, 1, 1);
	FIGURE_CLAIM(&f, "wait_zipfian_over_uniform_max", wait_max, 1, 1);
	return 0;
}

const struct scenario scenario_rfrpc_skew = {
	.name = "rfrpc-skew",
	.what = "calls in batches, with skewed keys (RF-RPC fig. 15)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_SIZES,
	.run = rfrpc_skew,
};

const struct scenario scenario_rfrpc_roce = {
	.name = "rfrpc-roce",
	.what = "calls in batches over 10 GbE (RF-RPC fig. 16)",
	.nic = "connectx3-roce",
	.costs = true,
	.sizes = SCENARIO_OPS,
	.run = rfrpc_roce,
};

const struct scenario scenario_rfrpc_batch = {
	.name = "rfrpc-batch",
	.what = "calls in batches, fetched or replied (RF-RPC fig. 13, 14)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_SIZES,
	.run = rfrpc_batch,
};
