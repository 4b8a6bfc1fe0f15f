/* SPDX-License-Identifier: MIT */
/* mcast_engine.c - see mcast_engine.h. */
#include "sim/mcast/mcast_engine.h"

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
/* Blocks of the message that goes before the timed one; its members make their
 * rings with it. */
#define WARM_BLOCKS 64u

struct bed;
struct node;

/* A node's part in a group. */
struct member {
	struct node *node;
	uint32_t group, rank;
	struct skein_mcast *handle;
};

struct node {
	struct bed *bed;
	uint32_t number;
	struct sim_node *sim;
	struct sim_proc *proc;
	struct skein_ctx *ctx;
	struct member *members; /* by group */
	char name[24], address[32];
};

struct bed {
	const struct mcast_bed_conf *conf;
	struct mcast_bed_result *res;
	struct sim_world *w;
	struct node *nodes;
	uint32_t groups;
	uint32_t *place;
	/* Of each group in turn, by rank. */
	const char **addresses;
	uint32_t *racks;
	uint32_t open, warm, unfinished, left;
	uint64_t begun; /* 0: not known yet */
	int rc;
};

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;
	struct bed *bed = m->node->bed;
	uint64_t took;

	if (status) {
		bed->rc = -EIO;
		return;
	}
	if (m->rank == 0 || (msg->seq == 0 && !bed->conf->cold))
		return;
	/* Each thread is ahead of the world's time by its own charges. */
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

static int group_open(struct member *m)
{
	static const enum skein_mcast_algorithm names[] = {
		[MCAST_SEQUENTIAL] = SKEIN_MCAST_SEQUENTIAL,
		[MCAST_CHAIN] = SKEIN_MCAST_CHAIN,
		[MCAST_TREE] = SKEIN_MCAST_TREE,
		[MCAST_PIPELINE] = SKEIN_MCAST_PIPELINE,
		[MCAST_HYBRID] = SKEIN_MCAST_HYBRID};
	struct bed *bed = m->node->bed;
	const struct mcast_bed_conf *conf = bed->conf;
	struct skein_mcast_attr ga = {
		.size = sizeof(ga),
		.members = bed->addresses + m->group * conf->nodes,
		.racks = bed->racks + m->group * conf->nodes,
		.count = conf->nodes,
		.rank = m->rank,
		.number = m->group,
		.algorithm = names[conf->algorithm],
		.flags = SKEIN_MCAST_NO_CHECKSUM,
		.block_size = conf->block,
		.open_timeout_ns = LIMIT_NS,
		.member_timeout_ns = LIMIT_NS,
		.ops = {.block = on_block, .fill = on_block, .done = on_done},
		.arg = m};

	return skein_mcast_open(m->node->ctx, &ga, &m->handle);
}

static int up(struct node *n)
{
	/* Cores are not what is measured: none sleeps. */
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .background = 1, .wait = SKEIN_WAIT_SPIN};
	struct skein_listener *listener;
	int rc = ctx_open_env(sim_proc_env(n->proc), &attr, &n->ctx);

	if (!rc)
		rc = skein_listener_open(n->ctx, ":7000", NULL, &listener);
	for (uint32_t g = 0; g < n->bed->groups && !rc; g++)
		rc = group_open(&n->members[g]);
	return rc;
}

/* Sends a message with which every member allocates the memory that it
 * needs. */
static int warm_up(struct bed *bed, struct skein_mcast *group)
{
	uint64_t warm = (uint64_t)WARM_BLOCKS * bed->conf->block;
	int rc;

	if (bed->conf->cold)
		return 0;
	/* With the tree a member keeps a whole message until it relays the
	 * message. */
	if (warm > bed->conf->object || bed->conf->algorithm == MCAST_TREE)
		warm = bed->conf->object;
	rc = skein_mcast_send_stream(group, warm, NULL);
	return rc ? rc : skein_mcast_flush(group, LIMIT_NS);
}

/* All roots begin at one time, when all are warm. */
static void start_together(struct bed *bed)
{
	if (++bed->warm == bed->groups)
		bed->begun = sim_thread_now(bed->w) + 2 * MS;
	while (!bed->begun && !bed->rc)
		sim_sleep(bed->w, MS);
	if (!bed->rc)
		sim_sleep(bed->w, bed->begun - sim_thread_now(bed->w));
}

static int send_both(struct member *m)
{
	struct bed *bed = m->node->bed;
	int rc = warm_up(bed, m->handle);

	if (rc)
		return rc;
	start_together(bed);
	return bed->rc ? bed->rc
		       : skein_mcast_send_stream(m->handle, bed->conf->object,
						 NULL);
}

/* A member that closes a group takes its connections down. While the device
 * does that, the calling thread waits and moves no blocks of other groups. So
 * no group may end within the timed stretch. */
static void wait_for_all(struct bed *bed)
{
	while (bed->unfinished && !bed->rc)
		sim_sleep(bed->w, MS);
}

static int play(struct node *n)
{
	struct skein_mcast_stats stats = {.size = sizeof(stats)};
	struct bed *bed = n->bed;
	int rc = 0, end;

	if (skein_mcast_get_stats(n->members[0].handle, &stats) == 0 &&
	    stats.neighbours > bed->res->peers_max)
		bed->res->peers_max = stats.neighbours;
	bed->open++;
	while (bed->open < bed->conf->nodes && !bed->rc)
		sim_sleep(bed->w, MS);
	for (uint32_t g = 0; g < bed->groups && !bed->rc; g++)
		if (n->members[g].rank == 0)
			bed->rc = send_both(&n->members[g]);
	wait_for_all(bed);
	for (uint32_t g = 0; g < bed->groups; g++) {
		end = skein_mcast_close(n->members[g].handle, LIMIT_NS);
		rc = rc ? rc : end;
	}
	return rc;
}

static void node_main(void *arg)
{
	struct node *n = arg;
	int rc = up(n);

	if (!rc)
		rc = play(n);
	if (n->ctx)
		skein_ctx_close(n->ctx);
	if (rc && !n->bed->rc)
		n->bed->rc = rc;
	if (--n->bed->left == 0)
		sim_stop(n->bed->w);
}

static int node_up(struct bed *bed, uint32_t i)
{
	struct node *n = &bed->nodes[i];
	int rc;

	n->bed = bed;
	n->number = i;
	snprintf(n->name, sizeof(n->name), "n%u", i);
	snprintf(n->address, sizeof(n->address), "n%u:7000", i);
	n->members = calloc(bed->groups, sizeof(*n->members));
	if (!n->members)
		return -ENOMEM;
	rc = sim_node_new(bed->w, n->name, 4, &n->sim);
	return rc ? rc : sim_proc_new(n->sim, "member", &n->proc);
}

static void member_up(struct bed *bed, uint32_t group, uint32_t rank)
{
	const struct mcast_bed_conf *conf = bed->conf;
	uint32_t i = mcast_bed_node(conf, bed->place, group, rank);
	size_t at = (size_t)group * conf->nodes + rank;

	bed->addresses[at] = bed->nodes[i].address;
	bed->racks[at] = conf->rack ? i / conf->rack : 0;
	bed->nodes[i].members[group] =
		(struct member){&bed->nodes[i], group, rank, NULL};
}

static int nodes_up(struct bed *bed)
{
	const struct mcast_bed_conf *conf = bed->conf;
	int rc = 0;

	mcast_bed_place(bed->w, conf, bed->place);
	for (uint32_t i = 0; i < conf->nodes && !rc; i++)
		rc = node_up(bed, i);
	for (uint32_t g = 0; g < bed->groups && !rc; g++)
		for (uint32_t r = 0; r < conf->nodes; r++)
			member_up(bed, g, r);
	if (!rc && conf->slow > 1)
		sim_path_slow(bed->nodes[mcast_bed_node(conf, bed->place, 0,
							conf->slow_from)]
				      .sim,
			      bed->nodes[mcast_bed_node(conf, bed->place, 0,
							conf->slow_to)]
				      .sim,
			      conf->slow);
	for (uint32_t i = 0; i < conf->nodes && !rc; i++)
		rc = sim_spawn(bed->nodes[i].proc, "member", node_main,
			       &bed->nodes[i]);
	return rc;
}

static int bed_run(struct bed *bed)
{
	struct sim_racks racks = {bed->conf->rack, bed->conf->oversub_pct};
	struct sim_conf wc = {.seed = bed->conf->seed,
			      .tracer = bed->conf->tracer};
	struct sim_nic_counts c;
	int rc = sim_world_new(&wc, &bed->w);

	if (rc)
		return rc;
	sim_net_set_model(bed->w, bed->conf->nic);
	if (bed->conf->rack)
		sim_net_set_racks(bed->w, &racks);
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

static void bed_free(struct bed *bed)
{
	for (uint32_t i = 0; bed->nodes && i < bed->conf->nodes; i++)
		free(bed->nodes[i].members);
	free(bed->nodes);
	free(bed->place);
	free(bed->addresses);
	free(bed->racks);
}

int mcast_engine_run(const struct mcast_bed_conf *conf,
		     struct mcast_bed_result *res)
{
	uint32_t groups = conf->groups ? conf->groups : 1;
	size_t members = (size_t)groups * conf->nodes;
	struct bed bed = {.conf = conf,
			  .res = res,
			  .groups = groups,
			  .unfinished = groups * (conf->nodes - 1),
			  .left = conf->nodes};
	int rc = -ENOMEM;

	if (conf->nodes < 2 || groups > conf->nodes)
		return -EINVAL;
	memset(res, 0, sizeof(*res));
	res->blocks = (conf->object + conf->block - 1) / conf->block;
	bed.nodes = calloc(conf->nodes, sizeof(*bed.nodes));
	bed.place = calloc(conf->nodes, sizeof(*bed.place));
	bed.addresses = calloc(members, sizeof(*bed.addresses));
	bed.racks = calloc(members, sizeof(*bed.racks));
	if (bed.nodes && bed.place && bed.addresses && bed.racks)
		rc = bed_run(&bed);
	if (bed.w) {
		res->hash = sim_hash(bed.w);
		res->virtual_ns = sim_now(bed.w);
		res->events = sim_events(bed.w);
		sim_world_free(bed.w);
	}
	bed_free(&bed);
	return rc;
}
