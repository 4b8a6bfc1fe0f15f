/* SPDX-License-Identifier: MIT */
/*
 * rfrpc.c - see rfrpc.h; and RF-RPC's figure 7: calls of a key-value store, of
 * which 95 of a hundred GET 32 bytes by a key of 16.
 *
 * The store itself is a handler's time, HANDLER_NS: the paper does not say how
 * long Jakiro takes.
 */
#include "sim/rfrpc/bypass.h"

#define CORES 16u
#define KEY 16u
#define VALUE 32u
#define PUT_PCT 5u
#define HANDLER_NS 20u /* assumed, as for FLOCK's figures */
#define SCHED_NS 10000000u
#define WARM_NS 200000u
#define RUN_NS 1000000u

/* --- what all have in common ------------------------------------------- */

const char *const rfrpc_names[RFRPC_WAYS] = {
	[RFRPC_REPLY] = "reply",
	[RFRPC_FETCH] = "fetch",
	[RFRPC_AUTO] = "auto",
	[RFRPC_REPLY_WAIT] = "reply-wait",
	[RFRPC_REPLY_WAIT_INLINE] = "reply-wait, inline",
};

int rfrpc_begin(struct figure *f, const struct scenario_conf *sc,
		struct report *rep, unsigned nodes, unsigned threads)
{
	int rc = figure_begin(f, sc, rep, "connectx3");

	f->conf = (struct rpc_bed_conf){
		.seed = sc->seed,
		.nic = &f->nic,
		.system = RPC_BED_PRIVATE,
		.nodes = sc->nodes ? sc->nodes : nodes,
		.procs = 1,
		.threads = threads,
		.window = 1,
		.cores = CORES,
		.servers = 1,
		.len = KEY,
		.resp_len = VALUE,
		.put_pct = PUT_PCT,
		.put_len = KEY + VALUE,
		.handler_ns = HANDLER_NS,
		.in_step = true,
		.sched_ns = SCHED_NS,
		.warm_ns = WARM_NS,
		.run_ns = RUN_NS,
		.ops = sc->ops,
		.costs = sc->costs,
	};
	report_row(rep, "clients", f->conf.nodes);
	report_row(rep, "callers", f->conf.nodes * f->conf.threads);
	return rc;
}

void rfrpc_keys(struct figure *f, enum rpc_bed_keys keys)
{
	if (keys != RPC_BED_OWN_SHARD && f->conf.keys == RPC_BED_OWN_SHARD)
		scenario_hasten(&f->nic, 100);
	f->conf.keys = keys;
}

int rfrpc_point(struct figure *f, enum rfrpc_way way, struct rpc_bed_result *r)
{
	int rc;

	f->conf.return_mode = way == RFRPC_FETCH  ? SKEIN_RETURN_FETCH
			      : way == RFRPC_AUTO ? SKEIN_RETURN_AUTO
						  : SKEIN_RETURN_REPLY;
	f->conf.reply_wait = way >= RFRPC_REPLY_WAIT;
	f->conf.server_inlines_not = way == RFRPC_REPLY_WAIT;
	rc = figure_point(f, r);
	if (!rc)
		r->mops = r->answered_mops;
	return rc;
}

/* --- figure 7 ---------------------------------------------------------- */

static const unsigned servers[] = {1, 2, 4, 16};

#define N_SERVERS (sizeof(servers) / sizeof(servers[0]))
#define ONE 0 /* of servers[] */
#define FOUR 2

static void columns(struct report *rep)
{
	static const char *const cols[] = {"servers", "mops",	 "p50_us",
					   "p99_us",  "fetched", "reads",
					   "posts"};

	rep->table.n_cols = 7;
	for (unsigned c = 0; c < 7; c++)
		rep->table.cols[c] = cols[c];
}

static int point(struct figure *f, enum rfrpc_way way, struct rpc_bed_result *r)
{
	int rc = rfrpc_point(f, way, r);

	if (rc)
		return rc;
	report_line(f->rep, rfrpc_names[way],
		    (double[]){f->conf.servers, r->mops, r->p50_ns / 1000,
			       r->p99_ns / 1000, r->fetched, r->reads,
			       r->posts});
	return 0;
}

static int bypass(struct figure *f, struct bypass_result *r)
{
	int rc = bypass_point(f, 0, r);

	if (rc)
		return rc;
	report_line(f->rep, "bypass",
		    (double[]){f->conf.servers, r->mops, r->p50_us, r->p99_us,
			       0, r->reads, 0});
	return 0;
}

static void claims(struct figure *f, struct rpc_bed_result r[][RFRPC_WAYS],
		   const struct bypass_result *b)
{
	const struct rpc_bed_result *one = r[ONE], *four = r[FOUR];

	FIGURE_CLAIM(f, "fetch_over_reply_wait", four[RFRPC_FETCH].mops,
		     four[RFRPC_REPLY_WAIT].mops, 2.6);
	FIGURE_CLAIM(f, "fetch_over_reply_wait_inline", four[RFRPC_FETCH].mops,
		     four[RFRPC_REPLY_WAIT_INLINE].mops, 2.6);
	FIGURE_CLAIM(f, "fetch_over_reply", one[RFRPC_FETCH].mops,
		     one[RFRPC_REPLY].mops, 0);
	/* A WRITE, and the READs. */
	if (four[RFRPC_FETCH].reads > 0)
		FIGURE_CLAIM(f, "round_trips", 1 + four[RFRPC_FETCH].reads, 1,
			     2.005);
	FIGURE_CLAIM(f, "fetch_mops", four[RFRPC_FETCH].mops, 1, 5.5);
	FIGURE_CLAIM(f, "fetch_over_bypass", four[RFRPC_FETCH].mops,
		     b[FOUR].mops, 1.57);
	FIGURE_CLAIM(f, "bypass_reads_a_get", b[FOUR].reads, 1, 3.2);
	FIGURE_CLAIM(f, "reply_wait_mops", four[RFRPC_REPLY_WAIT].mops, 1, 2.1);
}

static int rfrpc_kv(const struct scenario_conf *sc, struct report *rep)
{
	static const enum rfrpc_way ways[] = {RFRPC_REPLY, RFRPC_FETCH,
					      RFRPC_REPLY_WAIT,
					      RFRPC_REPLY_WAIT_INLINE};
	struct rpc_bed_result r[N_SERVERS][RFRPC_WAYS] = {0};
	struct bypass_result b[N_SERVERS] = {0};
	struct figure f;
	int rc = rfrpc_begin(&f, sc, rep, RFRPC_CLIENTS, RFRPC_CALLERS);

	columns(rep);
	for (unsigned i = 0; i < N_SERVERS && !rc; i++) {
		f.conf.servers = servers[i];
		if (sc->threads && servers[i] != sc->threads)
			continue;
		for (unsigned w = 0; w < 4 && !rc; w++)
			rc = point(&f, ways[w], &r[i][ways[w]]);
		if (!rc)
			rc = bypass(&f, &b[i]);
	}
	claims(&f, r, b);
	return rc;
}

const struct scenario scenario_rfrpc_kv = {
	.name = "rfrpc-kv",
	.what = "GETs and PUTs, results fetched or replied (RF-RPC fig. 7)",
	.nic = "connectx3",
	.costs = true,
	.sizes = SCENARIO_SIZES,
	.run = rfrpc_kv,
};
