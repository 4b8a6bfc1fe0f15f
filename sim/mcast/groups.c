/* SPDX-License-Identifier: MIT */
/*
 * groups.c - the production engine of src/mcast under all faults: one
 * root, one to four receivers, a new group in each slot of time, some messages
 * in each.
 *
 * What must hold: a message that a member has finished is right, in order, and
 * comes once; a member that closes a group without an error knows that every
 * member has every message; everything comes to an end. party.h has what must
 * hold of every scenario. The records of the groups live outside of the
 * processes, so they outlast kills.
 */
#include "conn/ctx.h"
#include "sim/party.h"

#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS PARTY_MS
#define SLOT_NS (16 * MS)
#define SLOTS 16384u
#define BLOCK 4096u
#define LEN_MAX (24u * BLOCK)
#define SMALL_MAX 600u

/* One group, as everybody has seen it. */
struct record {
	uint32_t sent; /* messages; by the root that was there last */
	uint32_t done[1 + PARTY_CLIENTS_MAX];
	uint32_t life[1 + PARTY_CLIENTS_MAX]; /* of the process that it was */
	bool closed[1 + PARTY_CLIENTS_MAX];
};

struct peer {
	struct actor a;
	struct run *run;
	struct skein_listener *listener;
	struct skein_mem *mem; /* of this slot's messages */
	uint32_t slot;
	uint64_t next; /* the message that must come */
	unsigned open; /* messages that have begun and not ended */
	bool stream;
	bool missed; /* the last slot */
};

struct run {
	struct party party;
	struct peer peers[1 + PARTY_CLIENTS_MAX];
	struct record records[SLOTS];
	char names[1 + PARTY_CLIENTS_MAX][24];
	const char *members[1 + PARTY_CLIENTS_MAX];
	unsigned ok, failed, unopened, messages;
};

static struct report *rep_of(struct peer *p)
{
	return p->run->party.rep;
}

static uint8_t pattern(uint32_t slot, uint64_t msg, uint64_t i)
{
	return (uint8_t)(slot * 59 + msg * 131 + i + (i >> 8));
}

static void check(struct peer *p, uint64_t msg, const uint8_t *buf,
		  uint64_t off, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (buf[i] != pattern(p->slot, msg, off + i)) {
			report_fail(rep_of(p),
				    "slot %u, message %llu: byte %llu of "
				    "member %u is wrong",
				    p->slot, (unsigned long long)msg,
				    (unsigned long long)off + i, p->a.i);
			return;
		}
}

/* --- callbacks ---------------------------------------------------------- */

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct peer *p = arg;

	if (msg->seq != p->next || p->open)
		report_fail(rep_of(p), "slot %u: message %llu out of order",
			    p->slot, (unsigned long long)msg->seq);
	p->open++;
	p->stream = actor_draw(&p->a, 2);
	if (!p->stream)
		dest->mem = p->mem;
	return 0;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	check(arg, msg->seq, b->data, b->off, b->len);
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	struct peer *p = arg;

	for (uint32_t i = 0; i < b->len; i++)
		((uint8_t *)b->data)[i] =
			pattern(p->slot, msg->seq, b->off + i);
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct peer *p = arg;
	struct record *r = &p->run->records[p->slot % SLOTS];

	if (p->a.i)
		p->open--;
	if (status)
		return;
	if (msg->seq != p->next++)
		report_fail(rep_of(p), "slot %u: message %llu ends twice",
			    p->slot, (unsigned long long)msg->seq);
	if (p->a.i && !p->stream)
		check(p, msg->seq, skein_mem_addr(p->mem), 0, msg->size);
	r->done[p->a.i]++;
	p->run->messages++;
}

/* --- one slot ----------------------------------------------------------- */

static void send_some(struct peer *p, struct skein_mcast *g)
{
	struct record *r = &p->run->records[p->slot % SLOTS];
	/* In some groups many small messages, more than there are slots. */
	bool small = actor_draw(&p->a, 3) == 0;
	unsigned n = (unsigned)actor_draw(&p->a, small ? 60 : 5);

	for (unsigned i = 0; i < n; i++) {
		uint64_t size =
			actor_draw(&p->a, small ? 16 : 3)
				? actor_draw(&p->a, small ? SMALL_MAX : LEN_MAX)
				: actor_draw(&p->a, 2 * BLOCK);

		if (skein_mcast_send_stream(g, size, NULL))
			return;
		r->sent++;
	}
}

/* This member has closed without an error, so every member must have every
 * message. */
static void close_right(struct peer *p)
{
	const struct record *r = &p->run->records[p->slot % SLOTS];

	for (unsigned i = 0; i <= p->run->party.n_clients; i++)
		if (r->done[i] != r->sent)
			report_fail(rep_of(p),
				    "slot %u: member %u closed, and member %u "
				    "has %u of %u messages",
				    p->slot, p->a.i, i, r->done[i], r->sent);
}

static uint64_t left(struct peer *p)
{
	uint64_t now = sim_thread_now(p->run->party.w);
	/* The rest of the slot is for leaving it. */
	uint64_t end = p->slot * SLOT_NS + SLOT_NS * 3 / 4;

	return now + MS < end ? end - now : MS;
}

static int slot_play(struct peer *p)
{
	struct record *r = &p->run->records[p->slot % SLOTS];
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.number = p->slot,
					.members = p->run->members,
					.count = 1 + p->run->party.n_clients,
					.rank = p->a.i,
					.algorithm = p->slot % 4,
					.block_size = BLOCK,
					.open_timeout_ns = left(p),
					.member_timeout_ns = 5 * MS,
					.ops = {.incoming = on_incoming,
						.block = on_block,
						.fill = on_fill,
						.done = on_done},
					.arg = p};
	struct skein_mcast *g;
	int rc;

	p->next = p->open = 0;
	r->done[p->a.i] = 0;
	if (!p->a.i)
		r->sent = 0;
	rc = skein_mcast_open(p->a.ctx, &attr, &g);
	if (rc) {
		p->run->unopened++;
		return rc;
	}
	if (!p->a.i)
		send_some(p, g);
	rc = skein_mcast_close(g, left(p));
	if (p->open)
		report_fail(rep_of(p), "slot %u: a message never ends",
			    p->slot);
	p->run->ok += !rc;
	p->run->failed += rc != 0;
	if (!rc)
		close_right(p);
	return rc;
}

/* The next slot that this process has not been in. */
static void slot_next(struct peer *p)
{
	uint64_t now = sim_thread_now(p->run->party.w);
	uint32_t slot = (uint32_t)(now / SLOT_NS) + 1;

	/* A process that was killed and starts again soon is a new member. */
	p->slot = slot > p->slot ? slot : p->slot + 1;
	/* Members that have missed each other in one slot must meet in a later
	 * one. */
	if (p->missed && !actor_draw(&p->a, 3))
		p->slot++;
	sim_sleep(p->run->party.w, p->slot * SLOT_NS - now);
}

static int peer_up(struct peer *p)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .background = actor_draw(&p->a, 2)};
	int rc;

	attr.wait = (enum skein_wait)actor_draw(&p->a, 4);
	rc = ctx_open_env(actor_env(&p->a), &attr, &p->a.ctx);
	if (rc)
		return rc;
	rc = skein_listener_open(p->a.ctx, ":7000", NULL, &p->listener);
	if (!rc)
		rc = skein_mem_new(p->a.ctx, LEN_MAX, &p->mem);
	if (rc) {
		skein_ctx_close(p->a.ctx);
		p->a.ctx = NULL;
	}
	return rc;
}

/* No client leaves before all have succeeded, because they need each other. All
 * look when a slot begins, so all leave in the same slot. */
static bool leaves(struct peer *p)
{
	for (unsigned i = 1; i <= p->run->party.n_clients; i++)
		if (!p->run->peers[i].a.got_through)
			return false;
	return true;
}

static void member(void *arg)
{
	struct peer *p = arg;
	bool over;
	int rc;

	while (!leaves(p)) {
		if (peer_up(p)) {
			sim_sleep(p->run->party.w, 5 * MS);
			continue;
		}
		for (unsigned i = 0; i < 8 && !leaves(p); i++) {
			slot_next(p);
			if (leaves(p))
				break;
			over = actor_over(&p->a);
			rc = slot_play(p);
			p->missed = rc != 0;
			p->a.got_through |= over && !rc;
		}
		skein_ctx_close(p->a.ctx);
		p->a.ctx = NULL;
	}
	p->a.ended = true;
}

/* --- the run ------------------------------------------------------------ */

static void peer_born(struct actor *actor)
{
	struct peer *p = container_of(actor, struct peer, a);

	p->mem = NULL;
	p->open = 0;
}

static void nothing(struct actor *actor)
{
}

static const struct party_ops party_ops = {
	.server = member,
	.client = member,
	.born = peer_born,
	.killed = nothing,
	.stop = nothing,
};

static int mcast_groups(const struct scenario_conf *conf, struct report *rep)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -1;
	for (unsigned i = 0; i <= PARTY_CLIENTS_MAX; i++) {
		run->peers[i].run = run;
		snprintf(run->names[i], sizeof(run->names[i]),
			 i ? "client%u:7000" : "server:7000", i);
		run->members[i] = run->names[i];
	}
	rc = party_init(&run->party, &party_ops, conf, rep, run->peers,
			sizeof(run->peers[0]));
	if (rc)
		goto out;
	party_play(&run->party);
	report_row(rep, "members", 1 + run->party.n_clients);
	report_row(rep, "closed", run->ok);
	report_row(rep, "failed", run->failed);
	report_row(rep, "not_opened", run->unopened);
	report_row(rep, "messages", run->messages);
	party_judge(&run->party);
	party_fini(&run->party);
out:
	free(run);
	return rc;
}

const struct scenario scenario_mcast_groups = {
	.name = "mcast-groups",
	.what = "multicast groups of two to five members, one after another",
	.fuzz = true,
	.run = mcast_groups,
};
