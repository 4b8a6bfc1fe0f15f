/* SPDX-License-Identifier: MIT */
/* mcast_engine.c - see mcast_engine.h. */
#include "sim/mcast_engine.h"

#include "conn/ctx.h"
#include "dev/sim/link.h"
#include "env/sim/sim.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define HOLLOW_FROM 8192u /* records and what the handshake says are whole */
#define LIMIT_NS (600000 * MS)
/* Of the message before the one that is timed: rings are made with it. */
#define WARM_BLOCKS 64u

struct bed;

struct node {
	struct bed *bed;
	uint32_t rank;
	struct sim_node *sim;
	struct sim_proc *proc;
	struct skein_ctx *ctx;
	char name[24], address[32];
};

struct bed {
	const struct mcast_bed_conf *conf;
	struct mcast_bed_result *res;
	struct sim_world *w;
	struct node *nodes;
	const char **members;
	uint32_t open, unfinished, left;
	uint64_t begun;
	int rc;
};

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct node *n = arg;
	struct bed *bed = n->bed;
	uint64_t took;

	if (status) {
		bed->rc = -EIO;
		return;
	}
	if (n->rank == 0 || msg->seq == 0)
		return;
	/* Threads are ahead of the world, some more than others. */
	took = sim_thread_now(bed->w) - bed->begun;
	if (took > bed->res->ns)
		bed->res->ns = took;
	if (!bed->res->first_ns || took < bed->res->first_ns)
		bed->res->first_ns = took;
	bed->unfinished--;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *block)
{
	return 0; /* its bytes have not travelled */
}

static int up(struct node *n, struct skein_mcast **group)
{
	/* Cores are not what is measured: none sleeps. */
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .background = 1, .wait = SKEIN_WAIT_SPIN};
	static const enum skein_mcast_algorithm names[] = {
		[MCAST_SEQUENTIAL] = SKEIN_MCAST_SEQUENTIAL,
		[MCAST_CHAIN] = SKEIN_MCAST_CHAIN,
		[MCAST_TREE] = SKEIN_MCAST_TREE,
		[MCAST_PIPELINE] = SKEIN_MCAST_PIPELINE};
	struct skein_mcast_attr ga = {
		.size = sizeof(ga),
		.members = n->bed->members,
		.count = n->bed->conf->nodes,
		.rank = n->rank,
		.algorithm = names[n->bed->conf->algorithm],
		.flags = SKEIN_MCAST_NO_CHECKSUM,
		.block_size = n->bed->conf->block,
		.open_timeout_ns = LIMIT_NS,
		.member_timeout_ns = LIMIT_NS,
		.ops = {.block = on_block, .fill = on_block, .done = on_done},
		.arg = n};
	struct skein_listener *listener;
	int rc = ctx_open_env(sim_proc_env(n->proc), &attr, &n->ctx);

	if (!rc)
		rc = skein_listener_open(n->ctx, ":7000", NULL, &listener);
	return rc ? rc : skein_mcast_open(n->ctx, &ga, group);
}

/* A message that makes everybody take the memory that he needs, then the one
 * that counts. */
static int send_both(struct bed *bed, struct skein_mcast *group)
{
	uint64_t warm = (uint64_t)WARM_BLOCKS * bed->conf->block;
	int rc;

	/* A tree's members keep all of a message until they relay it. */
	if (warm > bed->conf->object || bed->conf->algorithm == MCAST_TREE)
		warm = bed->conf->object;
	rc = skein_mcast_send_stream(group, warm, NULL);
	if (!rc)
		rc = skein_mcast_flush(group, LIMIT_NS);
	bed->begun = sim_thread_now(bed->w);
	return rc ? rc
		  : skein_mcast_send_stream(group, bed->conf->object, NULL);
}

static int play(struct node *n, struct skein_mcast *group)
{
	struct skein_mcast_stats stats = {.size = sizeof(stats)};
	struct bed *bed = n->bed;

	if (skein_mcast_stats(group, &stats) == 0 &&
	    stats.neighbours > bed->res->peers_max)
		bed->res->peers_max = stats.neighbours;
	bed->open++;
	while (bed->open < bed->conf->nodes && !bed->rc)
		sim_sleep(bed->w, MS);
	if (n->rank == 0 && !bed->rc)
		bed->rc = send_both(bed, group);
	return skein_mcast_close(group, LIMIT_NS);
}

static void node_main(void *arg)
{
	struct node *n = arg;
	struct skein_mcast *group;
	int rc = up(n, &group);

	if (!rc)
		rc = play(n, group);
	if (n->ctx)
		skein_ctx_close(n->ctx);
	if (rc && !n->bed->rc)
		n->bed->rc = rc;
	if (--n->bed->left == 0)
		sim_stop(n->bed->w);
}

static int nodes_up(struct bed *bed)
{
	int rc = 0;

	for (uint32_t i = 0; i < bed->conf->nodes && !rc; i++) {
		struct node *n = &bed->nodes[i];

		n->bed = bed;
		n->rank = i;
		snprintf(n->name, sizeof(n->name), "n%u", i);
		snprintf(n->address, sizeof(n->address), "n%u:7000", i);
		bed->members[i] = n->address;
		rc = sim_node_new(bed->w, n->name, 4, &n->sim);
		if (!rc)
			rc = sim_proc_new(n->sim, "member", &n->proc);
	}
	for (uint32_t i = 0; i < bed->conf->nodes && !rc; i++)
		rc = sim_spawn(bed->nodes[i].proc, "member", node_main,
			       &bed->nodes[i]);
	return rc;
}

static int bed_run(struct bed *bed)
{
	struct sim_conf wc = {.seed = bed->conf->seed,
			      .tracer = bed->conf->tracer};
	struct sim_nic_counts c;
	int rc = sim_world_new(&wc, &bed->w);

	if (rc)
		return rc;
	sim_net_set_model(bed->w, bed->conf->nic);
	sim_net_set_hollow(bed->w, HOLLOW_FROM);
	rc = nodes_up(bed);
	if (rc)
		return rc;
	sim_run(bed->w, LIMIT_NS);
	for (uint32_t i = 0; i < bed->conf->nodes; i++) {
		sim_nic_counts(bed->nodes[i].sim, &c);
		bed->res->bytes_out += c.bytes_out;
		bed->res->rnr_naks += c.rnr_naks;
	}
	if (bed->rc)
		return bed->rc;
	if (bed->res->rnr_naks)
		return -EPROTO;
	return bed->unfinished || bed->left ? -ETIME : 0;
}

int mcast_engine_run(const struct mcast_bed_conf *conf,
		     struct mcast_bed_result *res)
{
	struct bed bed = {.conf = conf,
			  .res = res,
			  .unfinished = conf->nodes - 1,
			  .left = conf->nodes};
	int rc = -ENOMEM;

	if (conf->nodes < 2 || conf->algorithm == MCAST_HYBRID)
		return -EINVAL;
	memset(res, 0, sizeof(*res));
	res->blocks = (conf->object + conf->block - 1) / conf->block;
	bed.nodes = calloc(conf->nodes, sizeof(*bed.nodes));
	bed.members = calloc(conf->nodes, sizeof(*bed.members));
	if (bed.nodes && bed.members)
		rc = bed_run(&bed);
	if (bed.w) {
		res->hash = sim_hash(bed.w);
		res->virtual_ns = sim_now(bed.w);
		res->events = sim_events(bed.w);
		sim_world_free(bed.w);
	}
	free(bed.nodes);
	free(bed.members);
	return rc;
}
