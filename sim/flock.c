/* SPDX-License-Identifier: MIT */
/*
 * flock.c - FLOCK's figures 4.4 and 4.5 to 4.7: many threads of 23 nodes call
 * one server of 32 cores, 64 bytes either way.
 *
 * The paper's settings (sections 4.1 to 4.4). A client's node has 64 hardware
 * threads (its processors have two a core). Nothing here was calibrated on these
 * figures: what comes out is a prediction.
 */
#include "sim/rpc_bed.h"
#include "sim/scenario.h"

#include <stdio.h>
#include <stdlib.h>

#define NODES 23u
#define SERVERS 32u
#define CORES 64u
#define MAX_AQP 256u

static const unsigned thread_steps[] = {1, 2, 4, 8, 16, 32, 48, 0};

static int base_conf(const struct scenario_conf *sc, struct nic_model *nic,
		     struct rpc_bed_conf *conf)
{
	int rc = 0;

	if (sc->nic)
		*nic = *sc->nic;
	else
		rc = nic_model_find("connectx5", nic);
	*conf = (struct rpc_bed_conf){
		.seed = sc->seed,
		.nic = nic,
		.nodes = sc->nodes ? sc->nodes : NODES,
		.procs = 1,
		.threads = 1,
		.share = 1,
		.batch = 1,
		.window = 8,
		.cores = CORES,
		.servers = SERVERS,
		.len = 64,
		.large_len = 64,
		.handler_ns = 20,
		.warm_ns = 200000,
		.run_ns = 300000,
	};
	return rc;
}

static int point(const struct rpc_bed_conf *conf, struct report *rep,
		 const char *label)
{
	struct rpc_bed_result r = {0};
	int rc = rpc_bed_run(conf, &r);

	if (rc)
		return rc;
	report_line(rep, label,
		    (double[]){conf->threads, conf->window, r.qps, r.mops,
			       r.p50_ns / 1000, r.p99_ns / 1000, r.degree,
			       r.answers});
	report_add(rep, r.hash, r.virtual_ns, r.events);
	return 0;
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"threads", "window", "qps",
					   "mops",    "p50_us", "p99_us",
					   "degree",  "answers"};

	rep->ok = true;
	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

/* Each process has a lane for each thread, as far as all processes' lanes are at
 * most MAX_AQP: what the server's scheduler would leave active. */
static int lanes(struct rpc_bed_conf *conf, struct report *rep,
		 const char *label)
{
	unsigned most = MAX_AQP / (NODES * conf->procs);

	conf->system = RPC_BED_LANES;
	conf->qps = conf->threads < most ? conf->threads : most;
	if (!conf->qps)
		conf->qps = 1;
	return point(conf, rep, label);
}

/* Figure 4.4: how threads share QPs. */
static int sharing(const struct scenario_conf *sc, struct report *rep)
{
	struct rpc_bed_conf conf;
	struct nic_model nic;
	int rc = base_conf(sc, &nic, &conf);

	columns(rep);
	for (unsigned i = 0; thread_steps[i] && !rc; i++) {
		if (sc->threads && thread_steps[i] != sc->threads)
			continue;
		conf.threads = thread_steps[i];
		conf.system = RPC_BED_PRIVATE;
		rc = point(&conf, rep, "no sharing");
		conf.system = RPC_BED_LOCKED;
		for (conf.share = 2; conf.share <= 4 && !rc; conf.share += 2)
			if (conf.threads > 8)
				rc = point(&conf, rep,
					   conf.share == 2 ? "lock, 2 threads"
							   : "lock, 4 threads");
		if (!rc)
			rc = lanes(&conf, rep, "lanes");
	}
	return rc;
}

const struct scenario scenario_flock_sharing = {
	.name = "flock-sharing",
	.what = "calls of many threads by how they share QPs (FLOCK fig. 4.4)",
	.run = sharing,
};
