/* SPDX-License-Identifier: MIT */
/*
 * test_scarce.c - groups and memory: steady small messages take none; and the
 * n-th allocation of one member fails, for every n, while a group is opened, has
 * messages, is closed, or resumes an object. Who cannot go on says so, every
 * group comes to its end, and the next one works.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "conn/handle.h"
#include "unit/alloc_sweep.h"
#include <skein/skein.h>

#define MEMBERS 3u
#define BLOCK 4096u
#define OBJECT (6u * BLOCK - 100)
#define PATIENCE SKEIN_S(30)

struct member {
	struct skein_env *env;
	struct alloc_sweep sweep;
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct skein_mem *mem;
	struct skein_mcast *group;
	atomic_uint done;
	int err; /* of what failed; 0: nothing has */
	struct skein_mcast_failure why;
};

static struct member ms[MEMBERS];
static const char *names[MEMBERS];
static uint32_t number;

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct member *m = arg;

	dest->mem = m->mem;
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;

	atomic_fetch_add(&m->done, 1);
}

static void member_open(unsigned i)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};
	struct member *m = &ms[i];

	memset(m, 0, sizeof(*m));
	assert_int_equal(env_real_new(&m->env), 0);
	m->env->log = NULL;
	alloc_sweep_init(&m->sweep, m->env);
	assert_int_equal(ctx_open_env(m->env, &attr, &m->ctx), 0);
	assert_int_equal(skein_listener_open(m->ctx, "127.0.0.1:0", NULL,
					     &m->listener),
			 0);
	assert_int_equal(skein_mem_new(m->ctx, OBJECT, &m->mem), 0);
	names[i] = skein_listener_addr(m->listener);
}

static void world_open(void)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		member_open(i);
	for (unsigned i = 0; i < OBJECT; i++)
		((uint8_t *)skein_mem_addr(ms[0].mem))[i] = (uint8_t)(i * 7);
}

static void world_close(void)
{
	for (unsigned i = 0; i < MEMBERS; i++) {
		skein_mem_free(ms[i].mem);
		skein_ctx_close(ms[i].ctx);
		env_real_free(ms[i].env);
	}
}

static struct skein_mcast_attr attr_of(unsigned i)
{
	return (struct skein_mcast_attr){
		.size = sizeof(struct skein_mcast_attr),
		.number = number,
		.members = names,
		.count = MEMBERS,
		.rank = i,
		.block_size = BLOCK,
		.open_timeout_ns = PATIENCE,
		.member_timeout_ns = PATIENCE,
		.ops = {.incoming = on_incoming, .done = on_done},
		.arg = &ms[i]};
}

/* --- steady messages ---------------------------------------------------- */

static void batches(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		for (unsigned k = 0; k < 48; k++)
			assert_int_equal(skein_mcast_send(ms[0].group,
							  ms[0].mem, k, 64,
							  NULL),
					 0);
		assert_int_equal(skein_mcast_flush(ms[0].group, PATIENCE), 0);
	}
}

static void test_steady_ones_take_none(void **state)
{
	struct skein_mcast_attr attr;

	world_open();
	for (unsigned i = 0; i < MEMBERS; i++) {
		attr = attr_of(i);
		assert_int_equal(skein_mcast_open_async(ms[i].ctx, &attr,
							&ms[i].group),
				 0);
	}
	batches(5);
	for (unsigned i = 0; i < MEMBERS; i++)
		alloc_sweep_begin(&ms[i].sweep, INT_MAX);
	batches(40);
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_int_equal(atomic_load(&ms[i].sweep.left), INT_MAX);
	for (unsigned i = 0; i < MEMBERS; i++)
		alloc_sweep_end(&ms[i].sweep);
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_int_equal(skein_mcast_close(ms[i].group, PATIENCE), 0);
	for (unsigned i = 1; i < MEMBERS; i++)
		assert_int_equal(ms[i].done, 45 * 48);
	world_close();
}

/* --- the n-th fails ----------------------------------------------------- */

/* Of an object: the root has it, one knows nothing, one has two blocks. */
static int resume_one(unsigned i, const struct skein_mcast_attr *attr)
{
	static const uint64_t have = 5;
	struct skein_mcast_part part = {.size = sizeof(part)};

	if (i != 1) {
		part.mem = ms[i].mem;
		part.len = OBJECT;
		part.whole = !i;
		part.have = i ? &have : NULL;
	}
	return skein_mcast_resume(ms[i].ctx, attr, &part, &ms[i].group);
}

static bool open_all(bool resume)
{
	struct skein_mcast_attr attr;
	bool all = true;

	number++;
	for (unsigned i = 0; i < MEMBERS; i++) {
		attr = attr_of(i);
		ms[i].group = NULL;
		atomic_store(&ms[i].done, 0);
		ms[i].err = resume ? resume_one(i, &attr)
				   : skein_mcast_open_async(ms[i].ctx, &attr,
							    &ms[i].group);
		all &= !ms[i].err;
	}
	return all;
}

static void send_some(void)
{
	static const uint64_t sizes[] = {100, OBJECT, 0, 3 * BLOCK, 77};
	int rc;

	for (unsigned k = 0; k < 5; k++) {
		rc = skein_mcast_send(ms[0].group, ms[0].mem, 0, sizes[k],
				      NULL);
		/* Over already: close says why. */
		if (rc && rc != -ECONNABORTED && !ms[0].err)
			ms[0].err = rc;
	}
}

static void close_all(bool wait)
{
	int rc;

	for (unsigned i = 0; i < MEMBERS; i++) {
		if (!ms[i].group)
			continue;
		rc = skein_mcast_close(ms[i].group, wait ? PATIENCE : 0);
		if (rc && !ms[i].err && wait)
			ms[i].err = rc;
	}
}

/* A group's life. Returns what went wrong at the victim first, or anywhere. */
static int live(bool resume, unsigned victim)
{
	bool all = open_all(resume);

	if (all)
		send_some();
	close_all(all);
	if (ms[victim].err)
		return ms[victim].err;
	for (unsigned i = 0; i < MEMBERS; i++)
		if (ms[i].err)
			return ms[i].err;
	return 0;
}

static void sweep(bool resume, unsigned victim)
{
	unsigned missed = 0;
	bool hit = true;
	int n, rc;

	world_open();
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		alloc_sweep_begin(&ms[victim].sweep, n);
		rc = live(resume, victim);
		hit = alloc_sweep_end(&ms[victim].sweep);
		if (rc && rc != -ENOMEM)
			fail_msg("%d: %s", n, skein_strerror(rc));
		missed += rc != 0;
		/* And once more, with memory. */
		rc = live(resume, victim);
		if (rc)
			fail_msg("behind %d: %s", n, skein_strerror(rc));
	}
	assert_true(missed > 4);
	print_message("member %u: %d allocations, %u of them missed\n", victim,
		      n - 1, missed);
	world_close();
}

static void test_root(void **state)
{
	sweep(false, 0);
}

static void test_receivers(void **state)
{
	sweep(false, 1);
	sweep(false, 2);
}

static void test_resume(void **state)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		sweep(true, i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steady_ones_take_none),
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_receivers),
		cmocka_unit_test(test_resume),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
