/* SPDX-License-Identifier: MIT */
/*
 * test_scarce.c - groups and memory. A steady flow of small messages allocates
 * nothing. The n-th allocation of one member fails, for every n, while a group
 * is opened, has messages, one of them a stream, is closed, or resumes an
 * object, with members that have it in each kind of place. A member that cannot
 * go on says so, every group comes to its end, and the next group works.
 */
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "conn/state.h"
#include "unit/alloc_sweep.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define MEMBERS 3u
#define BLOCK 4096u
#define BLOCKS 6u
#define OBJECT (BLOCKS * BLOCK - 100)
#define ALL 0x3fu
#define UNKNOWN UINT64_MAX
#define PATIENCE patience_ns(30)

/* What a member has of an object that is resumed, and where. */
struct had {
	enum skein_mcast_store store;
	uint64_t have; /* bits; UNKNOWN: not even how large it is */
};

struct member {
	struct skein_env *env;
	struct alloc_sweep sweep;
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct skein_mem *mem;
	struct skein_mcast *group;
	const struct had *had; /* NULL: the group does not resume */
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

	if (msg->seq || !m->had || !m->had->store)
		dest->mem = m->mem;
	return 0;
}

/* Where a file or what a pipe leads to would be is the same memory. */
static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	struct member *m = arg;

	memcpy((uint8_t *)skein_mem_addr(m->mem) + b->off, b->data, b->len);
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	struct member *m = arg;

	memcpy(b->data, (uint8_t *)skein_mem_addr(m->mem) + b->off, b->len);
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

/* What a member has of the object; all else is wrong. */
static void lay_out(struct member *m, uint64_t have)
{
	uint8_t *bytes = skein_mem_addr(m->mem);

	for (unsigned i = 0; i < OBJECT; i++)
		bytes[i] = (uint8_t)(i * 7 + !(have >> i / BLOCK & 1));
}

static bool all_right(const struct member *m)
{
	const uint8_t *bytes = skein_mem_addr(m->mem);

	for (unsigned i = 0; i < OBJECT; i++)
		if (bytes[i] != (uint8_t)(i * 7))
			return false;
	return true;
}

static void world_open(void)
{
	for (unsigned i = 0; i < MEMBERS; i++)
		member_open(i);
	lay_out(&ms[0], ALL);
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
		.ops = {.incoming = on_incoming,
			.block = on_block,
			.fill = on_fill,
			.done = on_done},
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

static int resume_one(struct member *m, const struct skein_mcast_attr *attr)
{
	struct skein_mcast_part part = {.size = sizeof(part),
					.store = m->had->store};

	if (m->had->have != UNKNOWN) {
		part.mem = part.store ? NULL : m->mem;
		part.len = OBJECT;
		part.whole = m->had->have == ALL;
		part.have = part.whole ? NULL : &m->had->have;
	}
	return skein_mcast_resume(m->ctx, attr, &part, &m->group);
}

static bool open_all(const struct had *resumed)
{
	struct skein_mcast_attr attr;
	bool all = true;

	number++;
	for (unsigned i = 0; i < MEMBERS; i++) {
		ms[i].group = NULL;
		ms[i].had = resumed ? &resumed[i] : NULL;
		if (resumed)
			lay_out(&ms[i], resumed[i].have == UNKNOWN
						? 0
						: resumed[i].have);
		atomic_store(&ms[i].done, 0);
	}
	for (unsigned i = 0; i < MEMBERS; i++) {
		attr = attr_of(i);
		ms[i].err = resumed ? resume_one(&ms[i], &attr)
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
		if (k == 3)
			rc = skein_mcast_send_stream(ms[0].group, sizes[k],
						     NULL);
		else
			rc = skein_mcast_send(ms[0].group, ms[0].mem, 0,
					      sizes[k], NULL);
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
static int live(const struct had *resumed, unsigned victim)
{
	bool all = open_all(resumed);

	if (all)
		send_some();
	close_all(all);
	if (ms[victim].err)
		return ms[victim].err;
	for (unsigned i = 0; i < MEMBERS; i++)
		if (ms[i].err)
			return ms[i].err;
	for (unsigned i = 0; i < MEMBERS; i++)
		assert_true(all_right(&ms[i]));
	return 0;
}

static void sweep(const struct had *resumed, unsigned victim)
{
	unsigned missed = 0;
	bool hit = true;
	int n, rc;

	world_open();
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		alloc_sweep_begin(&ms[victim].sweep, n);
		rc = live(resumed, victim);
		hit = alloc_sweep_end(&ms[victim].sweep);
		if (rc && rc != -ENOMEM)
			fail_msg("%d: %s", n, skein_strerror(rc));
		missed += rc != 0;
		/* And once more, with memory. */
		rc = live(resumed, victim);
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
	sweep(NULL, 0);
}

static void test_receivers(void **state)
{
	sweep(NULL, 1);
	sweep(NULL, 2);
}

static void resumes(const struct had had[MEMBERS])
{
	for (unsigned i = 0; i < MEMBERS; i++)
		sweep(had, i);
}

static void test_resume(void **state)
{
	static const struct had had[MEMBERS] = {
		{SKEIN_MCAST_MEMORY, ALL},
		{SKEIN_MCAST_MEMORY, UNKNOWN},
		{SKEIN_MCAST_MEMORY, 5},
	};

	resumes(had);
}

/* Read once to say what is there, and again to be sent; nothing is kept. */
static void test_resume_files(void **state)
{
	static const struct had had[MEMBERS] = {
		{SKEIN_MCAST_REREAD, ALL},
		{SKEIN_MCAST_CONSUMED, UNKNOWN},
		{SKEIN_MCAST_CONSUMED, 5},
	};

	resumes(had);
}

/* The first member lacks some blocks: they go up through a member that has none
 * of it in memory. */
static void test_resume_upwards(void **state)
{
	static const struct had had[MEMBERS] = {
		{SKEIN_MCAST_REREAD, 3},
		{SKEIN_MCAST_REREAD, 9},
		{SKEIN_MCAST_MEMORY, ALL},
	};

	resumes(had);
}

static void test_resume_into_memory(void **state)
{
	static const struct had had[MEMBERS] = {
		{SKEIN_MCAST_MEMORY, UNKNOWN},
		{SKEIN_MCAST_CONSUMED, 0x30},
		{SKEIN_MCAST_REREAD, ALL},
	};

	resumes(had);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steady_ones_take_none),
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_receivers),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_resume_files),
		cmocka_unit_test(test_resume_upwards),
		cmocka_unit_test(test_resume_into_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
