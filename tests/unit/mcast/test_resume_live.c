/* SPDX-License-Identifier: MIT */
/*
 * test_resume_live.c - processes are killed in the middle of a multicast, and
 * the others finish it: without a relay, without the root, and again when one
 * more dies. Then one comes back and fetches the object.
 *
 * The parent decides which members are in which group; the members do the rest.
 * In some cases only some members have the object in memory; others can read it
 * again, or have consumed it.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/cm.h"
#include "unit/device.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define MEMBERS 8
#define BLOCK (64u << 10)
#define BLOCKS 41u
#define OBJECT ((uint64_t)(BLOCKS - 1) * BLOCK + 777)
#define SMALL 100u /* behind what is resumed */
#define PATIENCE patience_ns(120)

static uint8_t at(uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 9) + (i >> 17));
}

/* --- what is said over pipes -------------------------------------------- */

enum what {
	/* a group with a root that sends but holds back the last blocks */
	SEND,
	RESUME, /* a group that finishes it */
};

struct order {
	enum what what;
	unsigned number, count, rank, hold;
	bool whole; /* it has the object from elsewhere */
	bool mixed; /* members have it in different ways */
	enum skein_mcast_algorithm algorithm;
	char addrs[MEMBERS][64];
};

enum event {
	UP,    /* the group is up */
	HELD,  /* the root has come to what it holds back */
	WHOLE, /* a receiver has all; others may not */
	OVER,  /* the group is closed: */
};

struct report {
	enum event event;
	int status, closed; /* of done(); of close */
	bool done, right;
	unsigned kept, received, lost, small;
	enum skein_mcast_store store;
};

static void all_write(int fd, const void *buf, size_t len)
{
	if (write(fd, buf, len) != (ssize_t)len)
		_exit(9);
}

/* --- a member ----------------------------------------------------------- */

static struct {
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct skein_mem *mem; /* the object; NULL: unknown */
	uint64_t have[BLOCKS / 64 + 1];
	uint64_t had[BLOCKS / 64 + 1]; /* what came by block() */
	enum skein_mcast_store store;
	bool whole, root, told_held, resumes;
	unsigned hold;
	int out;
	int status;
	atomic_bool done;
} me;

static void say(enum event event)
{
	struct report r = {.event = event};

	all_write(me.out, &r, sizeof(r));
}

static void mem_make(bool filled)
{
	uint8_t *bytes;

	if (me.mem || skein_mem_new(me.ctx, OBJECT, &me.mem))
		_exit(5);
	bytes = skein_mem_addr(me.mem);
	for (uint64_t i = 0; filled && i < OBJECT; i++)
		bytes[i] = at(i);
}

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	if (msg->size != (msg->seq ? SMALL : OBJECT))
		return -EBADMSG;
	if (msg->seq)
		return 0;
	if (!me.mem)
		mem_make(false);
	if (!me.store)
		dest->mem = me.mem;
	return 0;
}

static void take(const struct skein_mcast_block *b)
{
	uint64_t *word = &me.had[b->index / 64], bit = 1ull << b->index % 64;

	if (*word & bit) /* each once, and none that was there */
		_exit(6);
	*word |= bit;
	memcpy((uint8_t *)skein_mem_addr(me.mem) + b->off, b->data, b->len);
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	const uint8_t *bytes = b->data;

	for (uint32_t i = 0; i < b->len; i++)
		if (bytes[i] != at(b->off + i))
			return -EBADMSG;
	if (!msg->seq)
		take(b);
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	if (!msg->seq && me.resumes) {
		if (me.store != SKEIN_MCAST_REREAD ||
		    (!me.whole &&
		     !(me.had[b->index / 64] >> b->index % 64 & 1)))
			_exit(7);
		memcpy(b->data, (uint8_t *)skein_mem_addr(me.mem) + b->off,
		       b->len);
		return 0;
	}
	if (!msg->seq && b->index >= me.hold) {
		if (!me.told_held)
			say(HELD);
		me.told_held = true;
		return SKEIN_MCAST_LATER;
	}
	for (uint32_t i = 0; i < b->len; i++)
		((uint8_t *)b->data)[i] = at(b->off + i);
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct skein_mcast_msg left;

	if (msg->seq)
		return;
	me.status = status;
	if (!status)
		me.whole = true;
	else if (skein_mcast_have(group, &left, me.have, sizeof(me.have) / 8) ||
		 left.size != msg->size)
		_exit(4);
	for (unsigned i = 0; status && i <= BLOCKS / 64; i++) {
		if (me.store)
			me.have[i] &= me.had[i];
		me.had[i] = me.have[i];
	}
	atomic_store(&me.done, true);
}

static bool right(void)
{
	const uint8_t *bytes = me.mem ? skein_mem_addr(me.mem) : NULL;
	uint64_t i;

	for (i = 0; bytes && i < OBJECT; i++)
		if (bytes[i] != at(i))
			return false;
	return bytes;
}

/* What is counted is told when the engine rests: its last word is waited for. */
static void read_stats(struct skein_mcast *group, struct report *r)
{
	struct skein_mcast_stats s = {.size = sizeof(s)};
	struct skein_mcast_failure why;

	do {
		usleep(1000);
		skein_mcast_get_stats(group, &s);
	} while (s.messages < 2 && !s.blocks_lost &&
		 (!skein_mcast_failed(group, &why) || why.err == -ENODATA));
	r->kept = (unsigned)s.blocks_kept;
	r->received = (unsigned)s.blocks_received;
	r->lost = (unsigned)s.blocks_lost;
	r->small = (unsigned)s.small;
}

/* Until all is here, or the group is over. */
static void watch(struct skein_mcast *group)
{
	struct skein_mcast_stats s = {.size = sizeof(s)};
	bool all = false;

	while (!all && !skein_mcast_failed(group, NULL)) {
		usleep(1000);
		skein_mcast_get_stats(group, &s);
		all = s.messages ||
		      (s.current_blocks && s.current_have == s.current_blocks);
	}
	if (all)
		say(WHOLE);
}

static int open_group(const struct order *o, struct skein_mcast **group)
{
	const char *names[MEMBERS];
	struct skein_mcast_attr attr = {
		.size = sizeof(attr),
		.number = o->number,
		.members = names,
		.count = o->count,
		.rank = o->rank,
		.algorithm = o->algorithm,
		.block_size = BLOCK,
		/* Sanitizers and a loaded machine are no failure. */
		.open_timeout_ns = SKEIN_S(60),
		.member_timeout_ns = SKEIN_S(30),
		.ops = {.incoming = on_incoming,
			.block = on_block,
			.fill = on_fill,
			.done = on_done}};
	struct skein_mcast_part part = {.size = sizeof(part),
					.store = me.store,
					.mem = me.store ? NULL : me.mem,
					.len = me.mem ? OBJECT : 0,
					.whole = me.whole,
					.have = me.mem ? me.have : NULL};

	for (unsigned i = 0; i < o->count; i++)
		names[i] = o->addrs[i];
	if (o->what == SEND)
		return skein_mcast_open_async(me.ctx, &attr, group);
	return skein_mcast_resume(me.ctx, &attr, &part, group);
}

static void obey(const struct order *o)
{
	struct report r = {.event = OVER};
	struct skein_mcast *group;

	me.root = o->what == SEND && !o->rank;
	me.resumes = o->what == RESUME;
	/* The first member must be able to read it again. */
	me.store = o->mixed ? (enum skein_mcast_store)((o->rank + 1) % 3)
			    : SKEIN_MCAST_MEMORY;
	me.hold = o->hold;
	me.status = 0;
	atomic_store(&me.done, false);
	if (o->whole && !me.whole) {
		mem_make(true);
		me.whole = true;
	}
	if (open_group(o, &group))
		_exit(3);
	if (skein_mcast_wait(group, PATIENCE) == 0)
		say(UP);
	if (me.root && skein_mcast_send_stream(group, OBJECT, NULL))
		_exit(2);
	if (o->what == RESUME && !o->rank &&
	    skein_mcast_send_stream(group, SMALL, NULL) &&
	    !skein_mcast_failed(group, NULL))
		_exit(2);
	if (o->what == RESUME)
		read_stats(group, &r);
	else if (o->rank)
		watch(group);
	r.closed = skein_mcast_close(group, PATIENCE);
	r.done = atomic_load(&me.done);
	r.status = me.status;
	r.store = me.store;
	r.right = right();
	all_write(me.out, &r, sizeof(r));
}

static void quiet(void *arg, enum skein_log_level level, const char *line)
{
}

static void process(int in, int out)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .background = true,
				      .log = quiet};
	char addr[64] = "";
	struct order o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	me.out = out;
	if (skein_ctx_open(&attr, &me.ctx) ||
	    skein_listener_open(me.ctx, "127.0.0.1:0", NULL, &me.listener))
		_exit(8);
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(me.listener));
	all_write(out, addr, sizeof(addr));
	while (read(in, &o, sizeof(o)) == sizeof(o))
		obey(&o);
	skein_mem_free(me.mem);
	skein_ctx_close(me.ctx);
	_exit(0);
}

/* --- the parent --------------------------------------------------------- */

static struct proc {
	pid_t pid;
	int in, out;
	char addr[64];
	bool live;
} procs[MEMBERS];
static unsigned number = 100;

static void proc_start(unsigned i)
{
	int to[2], from[2];

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	procs[i].pid = fork();
	assert_true(procs[i].pid >= 0);
	if (!procs[i].pid) {
		for (unsigned k = 0; k < MEMBERS; k++)
			if (procs[k].live)
				close(procs[k].in);
		close(to[1]);
		close(from[0]);
		process(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	procs[i].in = to[1];
	procs[i].out = from[0];
	procs[i].live = true;
	assert_int_equal(read(from[0], procs[i].addr, 64), 64);
}

static void proc_kill(unsigned i)
{
	kill(procs[i].pid, SIGKILL);
	waitpid(procs[i].pid, NULL, 0);
	close(procs[i].in);
	close(procs[i].out);
	procs[i].live = false;
}

static void all_start(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		proc_start(i);
}

/* All leave by themselves, and well. */
static void all_end(void)
{
	int status;

	for (unsigned i = 0; i < MEMBERS; i++) {
		if (!procs[i].live)
			continue;
		close(procs[i].in);
		waitpid(procs[i].pid, &status, 0);
		assert_int_equal(status, 0);
		close(procs[i].out);
		procs[i].live = false;
	}
}

/* members: indices of members, ends with MEMBERS; the first is the root. source
 * has the object from elsewhere. */
static void tell(struct order o, const unsigned *members, unsigned source)
{
	o.number = number++;
	for (o.count = 0; members[o.count] < MEMBERS; o.count++)
		memcpy(o.addrs[o.count], procs[members[o.count]].addr, 64);
	for (o.rank = 0; o.rank < o.count; o.rank++) {
		o.whole = members[o.rank] == source;
		assert_int_equal(write(procs[members[o.rank]].in, &o,
				       sizeof(o)),
				 sizeof(o));
	}
}

static struct report hear(unsigned i, enum event event)
{
	struct report r;

	do
		assert_int_equal(read(procs[i].out, &r, sizeof(r)), sizeof(r));
	while (r.event != event);
	return r;
}

static void all_up(const unsigned *members)
{
	for (unsigned i = 0; members[i] < MEMBERS; i++)
		hear(members[i], UP);
}

/* All these members report that they have it. Returns what was there before. */
static unsigned all_finish(const unsigned *members)
{
	unsigned kept = 0;
	struct report r;

	for (unsigned i = 0; members[i] < MEMBERS; i++) {
		r = hear(members[i], OVER);
		assert_int_equal(r.closed, 0);
		assert_int_equal(r.status, 0);
		assert_true(r.right);
		/* ... and a small message, which went by slots */
		assert_int_equal(r.small, 1);
		r.received -= members[i] != *members;
		/* A member that keeps nothing passes on what the root lacks. */
		assert_true(r.kept + r.received == BLOCKS ||
			    (r.kept + r.received > BLOCKS &&
			     r.store == SKEIN_MCAST_CONSUMED));
		kept += r.kept;
	}
	return kept;
}

static void all_fail(const unsigned *members)
{
	struct report r;

	for (unsigned i = 0; members[i] < MEMBERS; i++) {
		r = hear(members[i], OVER);
		assert_int_not_equal(r.closed, 0);
	}
}

#define LIST(...) ((const unsigned[]){__VA_ARGS__, MEMBERS})
#define NOBODY MEMBERS
static const struct order resume = {.what = RESUME};
static const struct order streamed = {.what = RESUME, .mixed = true};

/* Of six members one dies when the root has sent some. */
static void six_lose(unsigned victim, unsigned hold, bool mixed)
{
	const struct order o = {.hold = hold, .mixed = mixed};

	all_start(6);
	tell(o, LIST(0, 1, 2, 3, 4, 5), NOBODY);
	all_up(LIST(0, 1, 2, 3, 4, 5));
	hear(0, HELD);
	proc_kill(victim);
	for (unsigned i = 0; i < 6; i++)
		if (i != victim)
			all_fail(LIST(i));
}

static void without_a_relay(const struct order resumes)
{
	unsigned kept;

	six_lose(3, 30, resumes.mixed);
	tell(resumes, LIST(0, 1, 2, 4, 5), 0);
	kept = all_finish(LIST(0, 1, 2, 4, 5));
	assert_true(kept > BLOCKS); /* more than the root's own */
	/* One comes back with nothing, and fetches it from one of them. */
	proc_start(3);
	tell(resumes, LIST(4, 3), NOBODY);
	assert_int_equal(all_finish(LIST(4, 3)), BLOCKS);
	all_end();
}

static void test_without_a_relay(void **state)
{
	without_a_relay(resume);
}

static void test_streamed_without_a_relay(void **state)
{
	without_a_relay(streamed);
}

/* What the root has not sent to anybody is lost with it: all are told, and how
 * much. When it is back with the object, only that is sent. */
static void without_the_root(const struct order resumes)
{
	const struct order o = {.hold = 30, .mixed = resumes.mixed};
	unsigned lost = 0, kept;
	struct report r;

	all_start(5);
	tell(o, LIST(0, 1, 2, 3, 4), NOBODY);
	all_up(LIST(0, 1, 2, 3, 4));
	hear(0, HELD);
	proc_kill(0);
	all_fail(LIST(1, 2, 3, 4));
	tell(resumes, LIST(1, 2, 3, 4), NOBODY);
	for (unsigned i = 1; i <= 4; i++) {
		r = hear(i, OVER);
		assert_int_equal(r.closed, -ENODATA);
		assert_true(r.lost >= BLOCKS - 30 && r.lost < BLOCKS);
		assert_true(!lost || r.lost == lost);
		lost = r.lost;
	}
	/* It is not the root this time, and it may be anywhere. */
	proc_start(0);
	tell(resumes, LIST(1, 2, 0, 3, 4), 0);
	kept = all_finish(LIST(1, 2, 0, 3, 4));
	assert_true(kept >= BLOCKS + BLOCKS - lost);
	all_end();
}

static void test_without_the_root(void **state)
{
	without_the_root(resume);
}

static void test_streamed_without_the_root(void **state)
{
	without_the_root(streamed);
}

/* The root dies when one has all, and the last one does not run. */
static void test_root_is_through(void **state)
{
	all_start(4);
	tell((struct order){.hold = BLOCKS, .algorithm = SKEIN_MCAST_CHAIN},
	     LIST(0, 1, 2, 3), NOBODY);
	all_up(LIST(0, 1, 2, 3));
	kill(procs[3].pid, SIGSTOP);
	hear(1, WHOLE);
	proc_kill(0);
	kill(procs[3].pid, SIGCONT);
	for (unsigned i = 1; i < 4; i++)
		hear(i, OVER);
	tell(resume, LIST(3, 2, 1), NOBODY);
	assert_true(all_finish(LIST(3, 2, 1)) >= BLOCKS);
	all_end();
}

/* One dies in the middle of a resume: the others resume that. */
static void once_more(const struct order resumes)
{
	six_lose(2, 25, resumes.mixed);
	tell(resumes, LIST(0, 1, 3, 4, 5), 0);
	all_up(LIST(0, 1, 3, 4, 5));
	proc_kill(1);
	for (unsigned i = 0; i < 6; i++)
		if (procs[i].live)
			hear(i, OVER);
	tell(resumes, LIST(0, 3, 4, 5), NOBODY);
	all_finish(LIST(0, 3, 4, 5));
	all_end();
}

static void test_once_more(void **state)
{
	once_more(resume);
}

static void test_streamed_once_more(void **state)
{
	once_more(streamed);
}

/* What cannot be is said at once; and a group of one has what it has. */
static void test_refusals(void **state)
{
	const char *self = "root";
	struct skein_ctx_attr ctx_attr = {.size = sizeof(ctx_attr),
					  .device = test_device(),
					  .log = quiet};
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.members = &self,
					.count = 1,
					.block_size = BLOCK,
					.ops = {.done = on_done}};
	struct skein_mcast_part part = {.size = sizeof(part), .len = OBJECT};
	struct skein_mcast *group;
	uint64_t have = 5;

	assert_int_equal(skein_ctx_open(&ctx_attr, &me.ctx), 0);
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, NULL, &group),
			 -EINVAL);
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	mem_make(true);
	part.mem = me.mem;
	part.off = 1;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -ERANGE);
	part.off = 0;
	attr.flags = SKEIN_MCAST_NO_CHECKSUM;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	attr.flags = 0;
	/* Stores: memory with a file; no calls for it; consumed at the first. */
	part.store = SKEIN_MCAST_REREAD;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	part.mem = NULL;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	attr.ops.block = on_block;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	part.store = SKEIN_MCAST_CONSUMED;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	part.store = SKEIN_MCAST_CONSUMED + 1;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group),
			 -EINVAL);
	part.store = SKEIN_MCAST_MEMORY;
	part.mem = me.mem;
	part.have = &have; /* blocks 0 and 2 */
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group), 0);
	assert_int_equal(skein_mcast_close(group, PATIENCE), -ENODATA);
	assert_int_equal(me.status, -ENODATA);
	assert_int_equal(me.have[0], 5);
	part.whole = true;
	assert_int_equal(skein_mcast_resume(me.ctx, &attr, &part, &group), 0);
	assert_int_equal(skein_mcast_close(group, PATIENCE), 0);
	assert_int_equal(me.status, 0);
	skein_mem_free(me.mem);
	skein_ctx_close(me.ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_a_relay),
		cmocka_unit_test(test_without_the_root),
		cmocka_unit_test(test_root_is_through),
		cmocka_unit_test(test_once_more),
		cmocka_unit_test(test_streamed_without_a_relay),
		cmocka_unit_test(test_streamed_without_the_root),
		cmocka_unit_test(test_streamed_once_more),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
