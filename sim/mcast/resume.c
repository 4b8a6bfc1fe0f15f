/* SPDX-License-Identifier: MIT */
/*
 * resume.c - one object to a group of which members are killed at any
 * time, the sender too. The others finish it in new groups. Some of the killed
 * come back, with nothing, or as the sender with everything. When all living
 * members have left a group, the scenario says which are in the next one; a
 * member may die after that.
 *
 * What must hold: every surviving member has the object, and it is right, or
 * each is told that blocks are lost, and how many; a member is sent what it
 * lacks and nothing else, except what it has consumed and must pass on. In each
 * group the seed draws for each member whether it has the object in memory, can
 * read it again, or has consumed it. Two small messages follow the object.
 */
#include "sim/mcast/mcast_crowd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define BLOCK 4096u
#define BLOCKS_MAX 60u
#define FIRST_MAX 20u /* members of the first group */
#define KILLS_MAX 4u
#define MEMBERS_MAX (FIRST_MAX + KILLS_MAX + 1)
#define ROUNDS_MAX 64u
#define SMALLS 2u
#define LIMIT_NS (600000 * MS)
#define OPEN_NS (2000 * MS)
#define TAG_KILL 43u
#define KILL_NS (2 * MS)

struct member {
	struct crowd *crowd;
	struct sim_node *node;
	struct sim_proc *proc;
	uint32_t id, first_round;
	uint32_t arrived; /* rounds that it has come to the end of, and one */
	bool dead, ended, lost;
	/* the object, at this member */
	struct skein_mem *mem;
	bool whole, source;
	uint64_t have, claimed;
	/* the group */
	uint32_t rank;
	enum skein_mcast_store store;
	uint64_t came; /* by block() */
	bool done, resumes;
	int status;
	char name[24], address[32];
};

struct round {
	bool listed, finished;
	bool nobody; /* knows the object */
	uint32_t n, lost;
	uint32_t ids[MEMBERS_MAX];
	enum skein_mcast_store stores[MEMBERS_MAX]; /* by rank */
	const char *addresses[MEMBERS_MAX];
};

struct crowd {
	struct report *rep;
	struct sim_world *w;
	struct prng prng;
	struct member members[MEMBERS_MAX];
	struct round rounds[ROUNDS_MAX];
	uint32_t n, n_first, n_listed, open, kills, killed, returned;
	struct sim_event kill;
	enum skein_mcast_algorithm algorithm;
	uint64_t size;
	uint32_t blocks;
	uint64_t kept, moved, again;
};

static uint8_t pattern(uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8) + 1);
}

/* --- a group ------------------------------------------------------------ */

static int mem_make(struct member *m, struct skein_ctx *ctx, bool filled)
{
	uint8_t *bytes;
	int rc;

	if (m->mem)
		return 0;
	rc = skein_mem_new(ctx, m->crowd->size + 1, &m->mem);
	if (rc)
		return rc;
	bytes = skein_mem_addr(m->mem);
	for (uint64_t i = 0; filled && i < m->crowd->size; i++)
		bytes[i] = pattern(i);
	return 0;
}

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct member *m = arg;

	if (!msg->seq && msg->size != m->crowd->size)
		report_fail(m->crowd->rep, "member %u: another size", m->id);
	if (!msg->seq && !m->store)
		dest->mem = m->mem;
	return 0;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	const uint8_t *bytes = b->data;
	struct member *m = arg;

	if (!msg->seq) {
		if ((m->claimed | m->came) >> b->index & 1)
			report_fail(m->crowd->rep, "member %u: block %u again",
				    m->id, b->index);
		m->came |= 1ull << b->index;
		memcpy((uint8_t *)skein_mem_addr(m->mem) + b->off, b->data,
		       b->len);
	}
	for (uint32_t i = 0; i < b->len; i++)
		if (bytes[i] != pattern(b->off + i)) {
			report_fail(m->crowd->rep,
				    "member %u: block %u of "
				    "message %u is wrong",
				    m->id, b->index, (unsigned)msg->seq);
			break;
		}
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	struct member *m = arg;
	uint8_t *bytes = b->data;

	if (!msg->seq && m->resumes &&
	    (m->store != SKEIN_MCAST_REREAD ||
	     !((m->claimed | m->came) >> b->index & 1)))
		report_fail(m->crowd->rep, "member %u: asked for block %u",
			    m->id, b->index);
	for (uint32_t i = 0; i < b->len; i++)
		bytes[i] = pattern(b->off + i);
	return 0;
}

static bool is_right(const struct member *m, uint64_t have)
{
	const uint8_t *bytes = skein_mem_addr(m->mem);

	for (uint64_t i = 0; i < m->crowd->size; i++)
		if (have >> (i / BLOCK) & 1 && bytes[i] != pattern(i))
			return false;
	return true;
}

static uint64_t all_bits(const struct crowd *c)
{
	return (1ull << c->blocks) - 1;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct skein_mcast_msg left;
	struct member *m = arg;
	struct crowd *c = m->crowd;

	if (msg->seq)
		return;
	m->done = true;
	m->status = status;
	if (!status)
		m->have = all_bits(c);
	else if (skein_mcast_have(group, &left, &m->have, 1))
		report_fail(c->rep, "member %u: it has what?", m->id);
	m->whole = m->have == all_bits(c);
	if (!is_right(m, m->have))
		report_fail(c->rep, "member %u: the object is wrong", m->id);
}

/* The counts come when the engine rests. */
static void judge_counts(struct member *m, struct skein_mcast *g)
{
	unsigned n = skein_mcast_count(g);
	bool slots = n > 1 && n <= SKEIN_MCAST_SMALL_MEMBERS;
	uint64_t more;
	struct skein_mcast_stats s = {.size = sizeof(s)};
	struct crowd *c = m->crowd;
	uint32_t had = (uint32_t)__builtin_popcountll(m->claimed);

	while (s.messages < 1 + SMALLS && !skein_mcast_failed(g, NULL)) {
		sim_sleep(c->w, MS / 10);
		skein_mcast_get_stats(g, &s);
	}
	if (s.messages < 1 + SMALLS || !c->size)
		return;
	if (s.small != (slots ? SMALLS : 0))
		report_fail(c->rep, "member %u: %u messages by slots", m->id,
			    (unsigned)s.small);
	s.blocks_received -= m->rank ? SMALLS : 0;
	/* A member that has consumed its blocks does not keep blocks on their
	 * way up to the root either. */
	more = s.blocks_kept + s.blocks_received - c->blocks;
	if (s.blocks_kept + s.blocks_refused != had ||
	    (m->store != SKEIN_MCAST_CONSUMED && (s.blocks_refused || more)) ||
	    more > c->blocks)
		report_fail(c->rep, "member %u: had %u, was sent %llu", m->id,
			    had, (unsigned long long)s.blocks_received);
	c->kept += s.blocks_kept;
	c->moved += s.blocks_received;
	c->again += s.blocks_refused;
}

static void judge_lost(struct member *m, struct skein_mcast *g,
		       const struct round *r)
{
	struct skein_mcast_failure why;
	char words[64];

	if (!skein_mcast_failed(g, &why) || why.err != -ENODATA)
		return;
	m->lost = true;
	snprintf(words, sizeof(words), "%u blocks are lost", r->lost);
	if (!r->nobody && (!r->lost || !strstr(why.text, words)))
		report_fail(m->crowd->rep, "member %u: %u are lost, it says %s",
			    m->id, r->lost, why.text);
}

static int open_round(struct member *m, struct skein_ctx *ctx, uint32_t round,
		      struct skein_mcast **g)
{
	struct crowd *c = m->crowd;
	const struct round *r = &c->rounds[round];
	struct skein_mcast_part part = {.size = sizeof(part),
					.len = m->have ? c->size : 0,
					.whole = m->source && m->whole,
					.have = m->have ? &m->have : NULL};
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.number = round,
					.members = r->addresses,
					.count = r->n,
					.algorithm = c->algorithm,
					.block_size = BLOCK,
					.open_timeout_ns =
						round ? OPEN_NS : LIMIT_NS,
					.ops = {.incoming = on_incoming,
						.block = on_block,
						.fill = on_fill,
						.done = on_done},
					.arg = m};

	while (r->ids[attr.rank] != m->id)
		attr.rank++;
	m->rank = attr.rank;
	m->store = part.store = r->stores[attr.rank];
	if (m->have && !m->store)
		part.mem = m->mem;
	m->done = false;
	m->resumes = round;
	m->came = 0;
	m->claimed = m->have;
	return round ? skein_mcast_resume(ctx, &attr, &part, g)
		     : skein_mcast_open_async(ctx, &attr, g);
}

static void begin_kills(struct crowd *c)
{
	if (++c->open == c->n_first && c->kills)
		sim_at(c->w, &c->kill,
		       sim_now(c->w) + prng_below(&c->prng, KILL_NS));
	while (c->open < c->n_first)
		sim_sleep(c->w, MS / 10);
}

static void send_all(struct member *m, struct skein_mcast *g)
{
	struct crowd *c = m->crowd;
	int rc = 0;

	if (!m->resumes && m->store)
		rc = skein_mcast_send_stream(g, c->size, NULL);
	else if (!m->resumes)
		rc = skein_mcast_send(g, m->mem, 0, c->size, NULL);
	for (uint32_t i = 0; m->resumes && i < SMALLS && !rc; i++)
		rc = skein_mcast_send_stream(g, 1 + i * 1000, NULL);
	if (rc && !skein_mcast_failed(g, NULL))
		report_fail(c->rep, "it cannot be sent");
}

static void one_round(struct member *m, struct skein_ctx *ctx, uint32_t round)
{
	struct crowd *c = m->crowd;
	struct skein_mcast *g;
	int rc = open_round(m, ctx, round, &g);

	if (rc) {
		report_fail(c->rep, "member %u: open: %d", m->id, rc);
		return;
	}
	rc = skein_mcast_wait(g, SKEIN_FOREVER);
	if (!round)
		begin_kills(c);
	if (!m->rank && !rc)
		send_all(m, g);
	while (!m->done && !skein_mcast_failed(g, NULL))
		sim_sleep(c->w, MS / 10);
	if (round && m->done && !m->status)
		judge_counts(m, g);
	judge_lost(m, g, &c->rounds[round]);
	skein_mcast_close(g, LIMIT_NS);
}

/* --- rounds ------------------------------------------------------------- */

static bool is_live(const struct member *m)
{
	return m->proc && !m->dead && !m->ended;
}

/* All living members have reached this round: draws the members of the next
 * group, and their order. */
static void list_round(struct crowd *c, struct round *r)
{
	uint64_t there = 0, known = 0;

	r->finished = true;
	for (uint32_t i = 0; i < c->n; i++) {
		struct member *m = &c->members[i];

		if (!is_live(m))
			continue;
		r->ids[r->n++] = i;
		r->finished &= m->whole;
	}
	for (uint32_t i = 0; c->n_listed && i + 1 < r->n; i++) {
		uint32_t k = i + (uint32_t)prng_below(&c->prng, r->n - i);
		uint32_t id = r->ids[i];

		r->ids[i] = r->ids[k];
		r->ids[k] = id;
	}
	for (uint32_t i = 0; i < r->n; i++) {
		/* The first one can read it again. */
		r->stores[i] = (enum skein_mcast_store)prng_below(
			&c->prng,
			i ? SKEIN_MCAST_CONSUMED + 1 : SKEIN_MCAST_CONSUMED);
		r->addresses[i] = c->members[r->ids[i]].address;
		known |= c->members[r->ids[i]].have;
		if (r->stores[i] != SKEIN_MCAST_CONSUMED)
			there |= c->members[r->ids[i]].have;
	}
	r->lost = c->blocks - (uint32_t)__builtin_popcountll(there);
	r->nobody = !known;
	r->listed = true;
	c->n_listed++;
}

static void wait_listed(struct crowd *c, uint32_t round)
{
	struct round *r = &c->rounds[round];
	bool all;

	while (!r->listed) {
		all = true;
		for (uint32_t i = 0; i < c->n; i++)
			all &= !is_live(&c->members[i]) ||
			       c->members[i].arrived > round;
		if (all)
			list_round(c, r);
		else
			sim_sleep(c->w, MS / 10);
	}
}

static void run_rounds(struct member *m, struct skein_ctx *ctx)
{
	struct crowd *c = m->crowd;

	for (uint32_t k = m->first_round; !m->lost; k++) {
		if (k == ROUNDS_MAX) {
			report_fail(c->rep, "member %u: no end", m->id);
			return;
		}
		m->arrived = k + 1;
		wait_listed(c, k);
		if (k && c->rounds[k].finished)
			return;
		one_round(m, ctx, k);
	}
}

static bool any_live(const struct crowd *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (is_live(&c->members[i]))
			return true;
	return false;
}

static void member_main(void *arg)
{
	struct member *m = arg;
	struct skein_ctx *ctx;
	int rc = crowd_ctx(m->proc, &ctx);

	if (!rc)
		rc = mem_make(m, ctx, m->source);
	if (rc)
		report_fail(m->crowd->rep, "member %u: %d", m->id, rc);
	m->whole = m->source;
	m->have = m->source ? all_bits(m->crowd) : 0;
	if (!rc)
		run_rounds(m, ctx);
	skein_mem_free(m->mem);
	skein_ctx_close(ctx);
	m->ended = true;
	if (!any_live(m->crowd))
		sim_stop(m->crowd->w);
}

/* --- the crowd ---------------------------------------------------------- */

static int member_start(struct crowd *c, struct sim_node *node, uint32_t at,
			bool source)
{
	struct member *m = &c->members[c->n];
	int rc;

	m->crowd = c;
	m->id = c->n;
	m->node = node;
	m->source = source;
	m->first_round = c->n_listed;
	snprintf(m->address, sizeof(m->address), "n%u" CROWD_PORT, at);
	rc = sim_proc_new(node, "member", &m->proc);
	if (!rc)
		rc = sim_spawn(m->proc, "member", member_main, m);
	c->n++;
	return rc;
}

static uint32_t place_of(const struct member *m)
{
	return (uint32_t)atoi(m->address + 1);
}

static struct member *draw_victim(struct crowd *c)
{
	struct member *m = NULL;
	uint32_t live = 0;

	for (uint32_t i = 0; i < c->n; i++)
		live += is_live(&c->members[i]);
	if (live < 2)
		return NULL;
	while (!m || !is_live(m))
		m = &c->members[prng_below(&c->prng, c->n)];
	return m;
}

static void kill_one(struct sim_event *ev)
{
	struct crowd *c = container_of(ev, struct crowd, kill);
	struct member *m = draw_victim(c);

	/* What all have is not lost by an end. */
	if (!m || (c->n_listed > 1 && c->rounds[c->n_listed - 1].finished))
		return;
	sim_proc_kill(m->proc);
	m->dead = true;
	c->killed++;
	if (prng_below(&c->prng, 2)) {
		c->returned++;
		if (member_start(c, m->node, place_of(m),
				 m->source && prng_below(&c->prng, 2)))
			report_fail(c->rep, "no member returns");
	}
	if (--c->kills)
		sim_at(c->w, &c->kill,
		       sim_now(c->w) + prng_below(&c->prng, 10 * KILL_NS));
}

static void judge(struct crowd *c)
{
	uint32_t whole = 0, lost = 0;

	for (uint32_t i = 0; i < c->n; i++) {
		const struct member *m = &c->members[i];

		if (m->dead)
			continue;
		crowd_judge_end(c->rep, i, m->proc, m->ended);
		if (m->ended && !m->whole && !m->lost)
			report_fail(c->rep, "member %u lacks something", i);
		whole += m->whole;
		lost += m->lost;
	}
	for (uint32_t i = 0; i < c->n_first; i++)
		crowd_judge_nic(c->rep, i, c->members[i].node);
	report_row(c->rep, "members", c->n_first);
	report_row(c->rep, "killed", c->killed);
	report_row(c->rep, "returned", c->returned);
	report_row(c->rep, "groups", c->n_listed - 1);
	report_row(c->rep, "have the object", whole);
	report_row(c->rep, "told that it is lost", lost);
	report_row(c->rep, "blocks that were there", (double)c->kept);
	report_row(c->rep, "blocks sent after a failure", (double)c->moved);
	report_row(c->rep, "had, and were passed on", (double)c->again);
}

static int crowd_new(struct crowd *c, const struct scenario_conf *conf)
{
	struct sim_node *node;
	char name[24];
	int rc = crowd_world(conf, &c->w);

	for (uint32_t i = 0; i < c->n_first && !rc; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		rc = sim_node_new(c->w, name, 2, &node);
		if (!rc)
			rc = member_start(c, node, i, i == 0);
	}
	return rc;
}

static void draw(struct crowd *c, const struct scenario_conf *conf)
{
	prng_init(&c->prng, conf->seed);
	c->n_first =
		conf->nodes ? conf->nodes
			    : 3 + (uint32_t)prng_below(&c->prng, FIRST_MAX - 2);
	if (c->n_first > FIRST_MAX)
		c->n_first = FIRST_MAX;
	c->algorithm = crowd_algorithm(&c->prng);
	c->kills = conf->faults ? 1 + (uint32_t)prng_below(&c->prng, KILLS_MAX)
				: 0;
	c->kill.fn = kill_one;
	c->kill.tag = TAG_KILL;
	c->size = 1 + prng_below(&c->prng, (uint64_t)BLOCKS_MAX * BLOCK);
	c->blocks = (uint32_t)((c->size + BLOCK - 1) / BLOCK);
}

static int mcast_resume(const struct scenario_conf *conf, struct report *rep)
{
	struct crowd *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -1;
	c->rep = rep;
	rep->ok = true;
	draw(c, conf);
	rc = c->n_first < 2 ? -1 : crowd_new(c, conf);
	if (!rc) {
		sim_run(c->w, LIMIT_NS);
		judge(c);
		report_world(rep, c->w);
	}
	if (c->w)
		sim_world_free(c->w);
	free(c);
	return rc;
}

const struct scenario scenario_mcast_resume = {
	.name = "mcast-resume",
	.what = "members of a multicast are killed, the others finish it",
	.fuzz = true,
	.sizes = SCENARIO_NODES,
	.run = mcast_resume,
};
