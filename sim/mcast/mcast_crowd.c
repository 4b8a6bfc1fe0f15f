/* SPDX-License-Identifier: MIT */
/* mcast_crowd.c - see mcast_crowd.h. */
#include "sim/mcast/mcast_crowd.h"

#include "conn/ctx.h"
#include "dev/sim/link.h"

int crowd_world(const struct scenario_conf *conf, struct sim_world **w)
{
	struct sim_conf wc = {.seed = conf->seed,
			      .log = conf->log,
			      .log_arg = conf->log_arg,
			      .log_level = ENV_LOG_INFO,
			      .check = true,
			      .tracer = conf->tracer};
	int rc = sim_world_new(&wc, w);

	if (!rc)
		scenario_nic(*w, conf);
	return rc;
}

int crowd_ctx(struct sim_proc *proc, struct skein_ctx **ctx)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .background = 1};
	struct skein_listener *listener;
	int rc = ctx_open_env(sim_proc_env(proc), &attr, ctx);

	if (rc)
		return rc;
	rc = skein_listener_open(*ctx, CROWD_PORT, NULL, &listener);
	if (rc)
		skein_ctx_close(*ctx);
	return rc;
}

enum skein_mcast_algorithm crowd_algorithm(struct prng *prng)
{
	static const enum skein_mcast_algorithm some[] = {SKEIN_MCAST_PIPELINE,
							  SKEIN_MCAST_PIPELINE,
							  SKEIN_MCAST_TREE,
							  SKEIN_MCAST_CHAIN};

	return some[prng_below(prng, 4)];
}

void crowd_judge_end(struct report *rep, uint32_t i, struct sim_proc *proc,
		     bool ended)
{
	if (!ended)
		report_fail(rep, "member %u never ends", i);
	else if (sim_proc_bytes(proc) || sim_proc_fds(proc))
		report_fail(rep, "member %u left %zu bytes", i,
			    sim_proc_bytes(proc));
}

void crowd_judge_nic(struct report *rep, uint32_t i, struct sim_node *node)
{
	struct sim_nic_counts counts;

	sim_nic_counts(node, &counts);
	if (counts.rnr_naks)
		report_fail(rep, "member %u was not ready", i);
}
