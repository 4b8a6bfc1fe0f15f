/* SPDX-License-Identifier: MIT */
/*
 * large.c - one large group of the library, with bytes and checksums:
 * some messages to all, large and small. With faults, one member is killed or
 * stopped at some time after all have opened the group.
 *
 * What must hold: a message that a member has finished is right; a member that
 * closes without an error knows that every member has every message; a member
 * that closes with an error names the member that was killed or stopped; all
 * survivors know it within two seconds, and end.
 */
#include "sim/mcast/mcast_crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define BLOCK 4096u
#define BLOCKS_MAX 40u
#define LARGE 3u
#define MESSAGES (LARGE * 8)
#define MEMBERS_MAX 4096u
#define LIMIT_NS (600000 * MS)
#define TAG_KILL 41u
#define KILL_NS (2 * MS)
/* By when survivors know of a dead or stuck member: member_timeout_ns and a
 * reserve. */
#define KNOWN_NS (2000 * MS)

struct member {
	struct crowd *crowd;
	struct sim_node *node;
	struct sim_proc *proc;
	uint32_t rank;
	unsigned done;
	bool ended;
	int status;	   /* of its close */
	uint32_t failed;   /* the rank that it heard of */
	uint64_t heard_ns; /* when */
	char name[24], address[32];
};

struct crowd {
	struct report *rep;
	struct sim_world *w;
	struct prng prng;
	struct member *members;
	const char **addresses;
	uint32_t n, victim, left, open;
	bool kills, stops;
	bool gone; /* the victim, at */
	uint64_t gone_at;
	struct sim_event kill;
	enum skein_mcast_algorithm algorithm;
	uint64_t sizes[MESSAGES];
	unsigned small; /* of them: those that may go by slots */
	uint64_t by_slots;
};

static uint8_t pattern(uint64_t msg, uint64_t i)
{
	return (uint8_t)(msg * 131 + i * 7 + (i >> 8));
}

/* --- a member ----------------------------------------------------------- */

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	const uint8_t *bytes = b->data;
	struct member *m = arg;

	for (uint32_t i = 0; i < b->len; i++)
		if (bytes[i] != pattern(msg->seq, b->off + i)) {
			report_fail(m->crowd->rep,
				    "member %u: message %llu is wrong", m->rank,
				    (unsigned long long)msg->seq);
			break;
		}
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	uint8_t *bytes = b->data;

	for (uint32_t i = 0; i < b->len; i++)
		bytes[i] = pattern(msg->seq, b->off + i);
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;

	if (!status && msg->seq != m->done++)
		report_fail(m->crowd->rep,
			    "member %u: message %llu out of turn", m->rank,
			    (unsigned long long)msg->seq);
}

/* Waits until every member has opened the group. Neighbours report a member
 * that leaves earlier as failed, but only the killed member may be reported. */
static void wait_for_all(struct crowd *c)
{
	if (++c->open == c->n && c->kills)
		sim_at(c->w, &c->kill,
		       sim_now(c->w) + prng_below(&c->prng, KILL_NS));
	while (c->open < c->n)
		sim_sleep(c->w, MS / 10);
}

static int run_group(struct member *m, struct skein_mcast *g)
{
	struct crowd *c = m->crowd;
	struct skein_mcast_stats stats = {.size = sizeof(stats)};
	struct skein_mcast_failure why;
	int rc = 0;

	wait_for_all(c);
	for (unsigned i = 0; !m->rank && !rc && i < MESSAGES; i++)
		rc = skein_mcast_send_stream(g, c->sizes[i], NULL);
	if (!m->rank && !rc)
		rc = skein_mcast_flush(g, LIMIT_NS);
	if (!m->rank && skein_mcast_get_stats(g, &stats) == 0)
		c->by_slots = stats.small;
	if (skein_mcast_failed(g, &why))
		m->failed = why.rank;
	return rc;
}

static void on_failed(void *arg, struct skein_mcast *group,
		      const struct skein_mcast_failure *why)
{
	struct member *m = arg;

	m->failed = why->rank;
	m->heard_ns = sim_now(m->crowd->w);
}

static int take_part(struct member *m, struct skein_ctx *ctx)
{
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.members = m->crowd->addresses,
					.count = m->crowd->n,
					.rank = m->rank,
					.algorithm = m->crowd->algorithm,
					.block_size = BLOCK,
					.open_timeout_ns = LIMIT_NS,
					/* a stopped one is to be noticed */
					.member_timeout_ns =
						m->crowd->stops ? 0 : LIMIT_NS,
					/* ... and 50 ms of polling after
					 * each sign of life take long here */
					.poll_ns = m->crowd->stops,
					.ops = {.block = on_block,
						.fill = on_fill,
						.done = on_done,
						.failed = on_failed},
					.arg = m};
	struct skein_mcast *g;
	int rc = skein_mcast_open_async(ctx, &attr, &g), end;

	if (rc)
		return rc;
	rc = skein_mcast_wait(g, SKEIN_FOREVER);
	if (!rc)
		rc = run_group(m, g);
	end = skein_mcast_close(g, LIMIT_NS);
	return rc ? rc : end;
}

static void member_main(void *arg)
{
	struct member *m = arg;
	struct skein_ctx *ctx;

	m->status = crowd_ctx(m->proc, &ctx);
	if (!m->status) {
		m->status = take_part(m, ctx);
		skein_ctx_close(ctx);
	}
	m->ended = true;
	if (!--m->crowd->left)
		sim_stop(m->crowd->w);
}

/* --- the crowd ---------------------------------------------------------- */

static void kill_one(struct sim_event *ev)
{
	struct crowd *c = container_of(ev, struct crowd, kill);
	struct member *m = &c->members[c->victim];

	if (m->ended)
		return;
	c->gone = true;
	c->gone_at = sim_now(c->w);
	if (c->stops)
		sim_node_pause(m->node, LIMIT_NS);
	else
		sim_proc_kill(m->proc);
	if (!--c->left)
		sim_stop(c->w);
}

/* Small messages to few members go by slots, all others do not. */
static void judge_slots(struct crowd *c)
{
	unsigned right = c->n <= SKEIN_MCAST_SMALL_MEMBERS ? c->small : 0;

	report_row(c->rep, "by_slots", c->by_slots);
	if (c->by_slots != right)
		report_fail(c->rep, "%u messages went by slots, not %u",
			    (unsigned)c->by_slots, right);
}

/* A survivor: it knows soon which member has failed. */
static void judge_failed(struct crowd *c, const struct member *m)
{
	uint64_t took = m->heard_ns - c->gone_at;

	if (!c->gone || m->failed != c->victim)
		report_fail(c->rep, "member %u: error %d, member %u", m->rank,
			    -m->status, m->failed);
	else if (took > KNOWN_NS)
		report_fail(c->rep, "member %u knew after %llu ms", m->rank,
			    (unsigned long long)(took / MS));
}

static void judge(struct crowd *c)
{
	uint64_t slowest = 0;
	unsigned closed = 0;
	bool all = true;

	for (uint32_t i = 0; i < c->n; i++)
		all &= c->members[i].done == MESSAGES;
	for (uint32_t i = 0; i < c->n; i++) {
		const struct member *m = &c->members[i];

		if (c->gone && i == c->victim)
			continue;
		crowd_judge_end(c->rep, i, m->proc, m->ended);
		if (m->ended && !m->status && !all)
			report_fail(c->rep, "member %u closed, others lack", i);
		else if (m->status)
			judge_failed(c, m);
		if (m->heard_ns && m->heard_ns - c->gone_at > slowest)
			slowest = m->heard_ns - c->gone_at;
		closed += m->ended && !m->status;
	}
	report_row(c->rep, "members", c->n);
	report_row(c->rep, "algorithm", c->algorithm);
	report_row(c->rep, "killed", c->gone && !c->stops);
	report_row(c->rep, "stopped", c->gone && c->stops);
	report_row(c->rep, "all_knew_us", (double)slowest / 1000);
	report_row(c->rep, "closed", closed);
	if (all && !c->gone)
		judge_slots(c);
}

static int crowd_new(struct crowd *c, const struct scenario_conf *conf)
{
	int rc = crowd_world(conf, &c->w);

	for (uint32_t i = 0; i < c->n && !rc; i++) {
		struct member *m = &c->members[i];

		m->crowd = c;
		m->rank = i;
		snprintf(m->name, sizeof(m->name), "n%u", i);
		snprintf(m->address, sizeof(m->address), "n%u" CROWD_PORT, i);
		c->addresses[i] = m->address;
		rc = sim_node_new(c->w, m->name, 2, &m->node);
		if (!rc)
			rc = sim_proc_new(m->node, "member", &m->proc);
	}
	for (uint32_t i = 0; i < c->n && !rc; i++)
		rc = sim_spawn(c->members[i].proc, "member", member_main,
			       &c->members[i]);
	return rc;
}

static void draw(struct crowd *c, const struct scenario_conf *conf)
{
	prng_init(&c->prng, conf->seed);
	c->n = conf->nodes ? conf->nodes
			   : 6 + (uint32_t)prng_below(&c->prng, 40);
	if (c->n > MEMBERS_MAX)
		c->n = MEMBERS_MAX;
	c->algorithm = crowd_algorithm(&c->prng);
	c->victim = (uint32_t)prng_below(&c->prng, c->n);
	c->kills = conf->faults;
	c->kill.fn = kill_one;
	c->kill.tag = TAG_KILL;
	c->left = c->n;
	for (unsigned i = 0; i < MESSAGES; i++)
		c->sizes[i] =
			prng_below(&c->prng, i % (MESSAGES / LARGE)
						     ? BLOCK + 1
						     : BLOCKS_MAX * BLOCK);
	c->stops = c->kills && prng_below(&c->prng, 2);
	for (unsigned i = 0; i < MESSAGES; i++)
		c->small += c->sizes[i] <= BLOCK;
}

static int mcast_large(const struct scenario_conf *conf, struct report *rep)
{
	struct crowd c = {.rep = rep};
	int rc = -1;

	rep->ok = true;
	draw(&c, conf);
	if (c.n < 2)
		return -1;
	c.members = calloc(c.n, sizeof(*c.members));
	c.addresses = calloc(c.n, sizeof(*c.addresses));
	if (c.members && c.addresses)
		rc = crowd_new(&c, conf);
	if (!rc) {
		sim_run(c.w, LIMIT_NS);
		judge(&c);
		for (uint32_t i = 0; i < c.n; i++)
			crowd_judge_nic(rep, i, c.members[i].node);
		report_world(rep, c.w);
	}
	if (c.w)
		sim_world_free(c.w);
	free(c.members);
	free(c.addresses);
	return rc;
}

const struct scenario scenario_mcast_large = {
	.name = "mcast-large",
	.what = "one large multicast group, a member of which is killed or stopped",
	.fuzz = true,
	.sizes = SCENARIO_NODES,
	.run = mcast_large,
};
