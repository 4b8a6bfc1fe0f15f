/* SPDX-License-Identifier: MIT */
/*
 * test_slow.c - a member stands still while a group ends. Its neighbours settle
 * without it and cut their links. Their FAIL is at its device by then, so it
 * names the member that failed, not the neighbours that left it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/cm.h"
#include "unit/device.h"
#include <skein/skein.h>

enum {
	ROOT,
	VICTIM,
	SLOW,
	MEMBERS
};
/* More than a round takes off a completion queue, fewer than credits. */
#define NOISE 32u

struct member {
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct skein_mcast *group, *noise;
	unsigned done, failed;
	struct skein_mcast_failure why;
};

static struct member ms[MEMBERS];
static const char *names[MEMBERS];

/* Broken groups are meant; which device it is the harsh run wants to know. */
static void quiet(void *arg, enum skein_log_level level, const char *line)
{
	if (level == SKEIN_LOG_INFO)
		fprintf(stderr, "skein: info: %s\n", line);
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	memset(b->data, 7, b->len);
	return 0;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;

	m->done++;
}

static void on_failed(void *arg, struct skein_mcast *group,
		      const struct skein_mcast_failure *why)
{
	struct member *m = arg;

	m->failed++;
	m->why = *why;
}

static void open_one(unsigned i, const char *const *list, unsigned count,
		     unsigned rank, struct skein_mcast **group)
{
	struct skein_mcast_attr attr = {
		.size = sizeof(attr),
		.number = count,
		.members = list,
		.count = count,
		.rank = rank,
		/* Members hear of each other from the root alone. */
		.algorithm = SKEIN_MCAST_SEQUENTIAL,
		.block_size = 65536,
		.slots = NOISE,
		.small_max = 64,
		.open_timeout_ns = SKEIN_S(60),
		.member_timeout_ns = SKEIN_S(60),
		.ops = {.block = on_block,
			.fill = on_fill,
			.done = on_done,
			.failed = on_failed},
		.arg = &ms[i]};

	assert_int_equal(skein_mcast_open_async(ms[i].ctx, &attr, group), 0);
}

static void members_open(void)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = test_device(), .log = quiet};

	memset(ms, 0, sizeof(ms));
	for (unsigned i = 0; i < MEMBERS; i++) {
		assert_int_equal(skein_ctx_open(&attr, &ms[i].ctx), 0);
		assert_int_equal(skein_listener_open(ms[i].ctx, "127.0.0.1:0",
						     NULL, &ms[i].listener),
				 0);
		names[i] = skein_listener_addr(ms[i].listener);
	}
}

/* A second group, of the root and the slow one, keeps its queue full. */
static void noise_open(void)
{
	const char *two[] = {names[ROOT], names[SLOW]};

	open_one(ROOT, two, 2, 0, &ms[ROOT].noise);
	open_one(SLOW, two, 2, 1, &ms[SLOW].noise);
}

/* Until all have had a message of each group: then all are up. */
static void world_open(void)
{
	members_open();
	noise_open();
	for (unsigned i = 0; i < MEMBERS; i++)
		open_one(i, names, MEMBERS, i, &ms[i].group);
	assert_int_equal(skein_mcast_send_stream(ms[ROOT].noise, 9, NULL), 0);
	assert_int_equal(skein_mcast_send_stream(ms[ROOT].group, 9, NULL), 0);
	while (ms[ROOT].done < 2 || ms[VICTIM].done < 1 || ms[SLOW].done < 2)
		for (unsigned i = 0; i < MEMBERS; i++)
			skein_ctx_progress(ms[i].ctx);
}

static void progress_until(unsigned i, unsigned done)
{
	while (ms[i].done < done)
		skein_ctx_progress(ms[i].ctx);
}

/* The slow one does not run: messages come, the victim gives up, and the root
 * ends the group without it. */
static void end_without_it(void)
{
	for (unsigned i = 0; i < NOISE - 1; i++)
		assert_int_equal(
			skein_mcast_send_stream(ms[ROOT].noise, 9, NULL), 0);
	progress_until(ROOT, 2 + NOISE - 1);
	skein_mcast_abort(ms[VICTIM].group, -ENOSPC);
	while (!ms[ROOT].failed || !ms[VICTIM].failed) {
		skein_ctx_progress(ms[ROOT].ctx);
		skein_ctx_progress(ms[VICTIM].ctx);
	}
	assert_int_equal(ms[ROOT].why.rank, VICTIM);
	assert_int_equal(skein_mcast_close(ms[ROOT].group, 0), -ENOSPC);
}

static void world_close(void)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		skein_ctx_close(ms[i].ctx);
}

static void test_hears_who_failed(void **state)
{
	world_open();
	end_without_it();
	while (!ms[SLOW].failed)
		skein_ctx_progress(ms[SLOW].ctx);
	assert_int_equal(ms[SLOW].why.err, -ENOSPC);
	assert_int_equal(ms[SLOW].why.rank, VICTIM);
	world_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hears_who_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
