/* SPDX-License-Identifier: MIT */
/*
 * test_many.c - groups that come and go, one thread and one context per member.
 * Descriptors and memory stay as they were, and a group registers nothing that
 * an earlier group has left in the pool, unless that group failed.
 * SKEIN_TEST_ROUNDS=1000 makes 10,000 groups.
 *
 * The test prints how long opening takes: from the moment when all members are
 * about to open until the last has opened.
 */
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "conn/conn.h"
#include "conn/ctx.h"
#include "unit/cm.h"
#include "unit/device.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define MEMBERS_MAX 16
#define ROUNDS_MAX 10000u
#define PATIENCE patience_ns(60)
#define SIZE 9000u
#define SLABS_LATE 1u /* of rings, a member */
#define WARM 50u      /* until what is kept for the next group is there */

struct member {
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct skein_mem *mem;
	unsigned rank, done, wrong;
	uint32_t regions[2];
};

/* As devices are that take nothing inline: records have a mirror. */
static bool no_inline;

/* All members' threads go through rounds together. */
static struct {
	struct member member[MEMBERS_MAX];
	const char *names[MEMBERS_MAX];
	unsigned count, rounds, warm;
	bool fail; /* the root gives each group up */
	atomic_uint opens;
	pthread_barrier_t barrier;
	unsigned fds[2];
	bool settled;
	size_t pages[2], heap[2];
	/* The barrier is behind it. That nobody looks at the last group's any
	 * more is by that group's end: a matter of its messages. */
	_Atomic uint64_t begun_ns;
	_Atomic uint64_t opening_ns[ROUNDS_MAX];
} w;

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	dest->mem = ((struct member *)arg)->mem;
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;
	const uint8_t *data = skein_mem_addr(m->mem);

	m->done++;
	m->wrong += status || msg->size != SIZE ||
		    data[SIZE - 1] != (uint8_t)(SIZE - 1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void must(const struct member *m, const char *what, int rc)
{
	if (!rc)
		return;
	fprintf(stderr, "member %u: %s: %s\n", m->rank, what,
		skein_strerror(rc));
	abort(); /* cmocka's failures do not cross threads */
}

/* By the last member. */
static void opened(unsigned round, uint64_t ns)
{
	uint64_t most = atomic_load(&w.opening_ns[round]);

	while (most < ns &&
	       !atomic_compare_exchange_weak(&w.opening_ns[round], &most, ns))
		;
}

/* The root does, once it is open everywhere. */
static void give_up(struct member *m, unsigned round, struct skein_mcast *group)
{
	atomic_fetch_add(&w.opens, 1);
	while (!m->rank && atomic_load(&w.opens) < (round + 1) * w.count)
		skein_ctx_progress(m->ctx);
	if (!m->rank)
		skein_mcast_abort(group, -ECANCELED);
	m->wrong += !skein_mcast_close(group, PATIENCE);
}

/* Every other group has a message. */
static void one_group(struct member *m, unsigned round)
{
	struct skein_mcast_attr attr = {.size = sizeof(attr),
					.members = w.names,
					.count = w.count,
					.rank = m->rank,
					/* one that failed may be open still */
					.number = w.fail ? round : 0,
					.block_size = 4096,
					.open_timeout_ns = PATIENCE,
					.member_timeout_ns = PATIENCE,
					.ops = {.incoming = on_incoming,
						.done = on_done},
					.arg = m};
	struct skein_mcast *group;

	if (!m->rank)
		w.begun_ns = now_ns();
	pthread_barrier_wait(&w.barrier);
	must(m, "open", skein_mcast_open(m->ctx, &attr, &group));
	opened(round, now_ns() - w.begun_ns);
	if (w.fail) {
		give_up(m, round, group);
		return;
	}
	if (!m->rank && round % 2)
		must(m, "send", skein_mcast_send(group, m->mem, 0, SIZE, NULL));
	must(m, "close", skein_mcast_close(group, PATIENCE));
}

static unsigned descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!dir)
		abort();
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static size_t mapped_pages(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	size_t pages = 0;

	if (!f || fscanf(f, "%zu", &pages) != 1)
		abort();
	fclose(f);
	return pages;
}

/* Connections of the last group may still be on their way out. A leak never
 * is. */
static void settle(struct member *m)
{
	uint64_t end = now_ns() + PATIENCE;

	do {
		skein_ctx_progress(m->ctx);
		pthread_barrier_wait(&w.barrier);
		if (!m->rank)
			w.settled = descriptors() <= w.fds[0] || now_ns() > end;
		pthread_barrier_wait(&w.barrier);
	} while (!w.settled);
}

/* The page of counters comes at some time: first of all, here. */
static void page_made(struct member *m)
{
	const struct counters *c = &m->ctx->engine->counters;

	while (!c->page && !c->off)
		skein_ctx_progress(m->ctx);
}

/* All threads are between two groups. */
static void look(struct member *m, int i)
{
	if (!i)
		page_made(m);
	pthread_barrier_wait(&w.barrier);
	if (i)
		settle(m);
	m->regions[i] = conn_region_id(m->ctx);
	if (!m->rank) {
		w.fds[i] = descriptors();
		w.pages[i] = mapped_pages();
		/* a sanitizer says 0, and looks for leaks itself */
		w.heap[i] = mallinfo2().uordblks;
	}
	pthread_barrier_wait(&w.barrier);
}

static void *member_run(void *arg)
{
	struct member *m = arg;

	for (unsigned round = 0; round < w.rounds; round++) {
		if (round == w.warm)
			look(m, 0);
		one_group(m, round);
	}
	look(m, 1);
	return NULL;
}

static void member_open(struct member *m, unsigned rank)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	uint8_t *data;

	memset(m, 0, sizeof(*m));
	m->rank = rank;
	assert_int_equal(skein_ctx_open(&attr, &m->ctx), 0);
	if (no_inline)
		m->ctx->dev->caps.inline_max = 0;
	assert_int_equal(skein_listener_open(m->ctx, "127.0.0.1:0", NULL,
					     &m->listener),
			 0);
	assert_int_equal(skein_mem_new(m->ctx, SIZE, &m->mem), 0);
	data = skein_mem_addr(m->mem);
	for (unsigned i = 0; !rank && i < SIZE; i++)
		data[i] = (uint8_t)i;
}

static int by_time(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void tell_times(void)
{
	uint64_t first = w.opening_ns[0], rest[ROUNDS_MAX];
	unsigned n = w.rounds - w.warm;

	for (unsigned i = 0; i < n; i++)
		rest[i] = w.opening_ns[w.warm + i];
	qsort(rest, n, sizeof(*rest), by_time);
	print_message("%u groups of %u: the first %.2f ms to open, of the last "
		      "%u %.2f (%.2f to %.2f)\n",
		      w.rounds, w.count, (double)first / 1e6, n,
		      (double)rest[n / 2] / 1e6, (double)rest[0] / 1e6,
		      (double)rest[n - 1] / 1e6);
}

/* How many regions a member has registered since the first look: each took an
 * id. */
static unsigned registered(const struct member *m)
{
	return m->regions[1] - m->regions[0] - 1;
}

static void member_check(const struct member *m)
{
	assert_int_equal(m->wrong, 0);
	assert_int_equal(m->done, w.fail ? 0 : w.rounds / 2);
	if (w.fail) /* slots for small messages, and room for a first block */
		assert_true(registered(m) >=
			    (m->rank ? 2 : 1) * (w.rounds - w.warm));
	else /* rings where connections of a group before are on their way */
		assert_true(registered(m) <= SLABS_LATE);
}

static void groups(unsigned count, unsigned rounds, unsigned warm, bool fail)
{
	pthread_t t[MEMBERS_MAX];

	memset(&w, 0, sizeof(w));
	w.count = count;
	w.rounds = rounds;
	w.warm = warm;
	w.fail = fail;
	pthread_barrier_init(&w.barrier, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		member_open(&w.member[i], i);
		w.names[i] = skein_listener_addr(w.member[i].listener);
	}
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(pthread_create(&t[i], NULL, member_run,
						&w.member[i]),
				 0);
	for (unsigned i = 0; i < count; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&w.barrier);
	for (unsigned i = 0; i < count; i++) {
		member_check(&w.member[i]);
		skein_mem_free(w.member[i].mem);
		skein_ctx_close(w.member[i].ctx);
	}
	tell_times();
	print_message("descriptors %u, %u; mapped MiB %zu, %zu; heap %zu, %zu "
		      "bytes\n",
		      w.fds[0], w.fds[1], w.pages[0] >> 8, w.pages[1] >> 8,
		      w.heap[0], w.heap[1]);
}

static void test_no_leak(void **state)
{
	const char *soak = getenv("SKEIN_TEST_ROUNDS");
	unsigned rounds = soak && atol(soak) >= 1000 ? ROUNDS_MAX : 200;

	/* twenty times slower, and it looks for leaks itself */
	if (getenv("SKEIN_TEST_VALGRIND"))
		rounds = 60;

	groups(4, rounds, WARM, false);
	assert_true(w.fds[1] <= w.fds[0]);
	/* What malloc's caches hold counts as used: 15 to 30 KiB, after 150
	 * groups and after 4,000. */
	assert_true(w.heap[1] < w.heap[0] + 65536);
	/* 64 pages a slab that came late, mapped by all four. */
	assert_true(w.pages[1] < w.pages[0] + 128 + 4 * SLABS_LATE * 64 * 4);
}

static void test_sixteen(void **state)
{
	groups(16, 30, 10, false);
	assert_true(w.fds[1] <= w.fds[0]);
}

/* Somebody may still be writing into what a failed group had. */
static void test_failed(void **state)
{
	groups(4, 8, 4, true);
}

static void test_not_inline(void **state)
{
	no_inline = true;
	groups(4, 12, 4, false);
	groups(4, 8, 4, true);
	no_inline = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_leak),
		cmocka_unit_test(test_sixteen),
		cmocka_unit_test(test_failed),
		cmocka_unit_test(test_not_inline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
