/* SPDX-License-Identifier: MIT */
/*
 * test_live.c - groups over the software device: several contexts in one
 * thread, and real processes that are killed and stopped.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unit/cm.h"
#include "unit/device.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define MEMBERS 16
#define BLOCK (64u << 10)
#define PATIENCE patience_ns(60)

static uint8_t at(uint64_t msg, uint64_t i)
{
	return (uint8_t)(msg * 31 + i * 7 + (i >> 9) + (i >> 17));
}

static void fill(uint8_t *buf, uint64_t msg, uint64_t off, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		buf[i] = at(msg, off + i);
}

static bool right(const uint8_t *buf, uint64_t msg, uint64_t off, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (buf[i] != at(msg, off + i))
			return false;
	return true;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Broken groups are meant; which device it is the harsh run wants to know. */
static void quiet(void *arg, enum skein_log_level level, const char *line)
{
	if (level == SKEIN_LOG_INFO)
		fprintf(stderr, "skein: info: %s\n", line);
}

/* --- a member ----------------------------------------------------------- */

struct member {
	struct skein_ctx *ctx;
	struct skein_listener *listener;
	struct skein_mcast *group;
	struct skein_mem *mem; /* of the message that is coming */
	bool stream;
	unsigned begun, done, failed, wrong;
	uint64_t seen; /* bytes of blocks that were right */
	int status;
	uint64_t digest;
	struct skein_mcast_failure why;
};

static int on_incoming(void *arg, struct skein_mcast *group,
		       const struct skein_mcast_msg *msg,
		       struct skein_mcast_dest *dest)
{
	struct member *m = arg;

	m->begun++;
	if (m->stream || !msg->size)
		return 0;
	skein_mem_free(m->mem);
	m->mem = NULL;
	if (skein_mem_new(m->ctx, msg->size + 16, &m->mem))
		return -ENOMEM;
	dest->mem = m->mem;
	dest->off = 16;
	return 0;
}

static int on_block(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg,
		    const struct skein_mcast_block *b)
{
	struct member *m = arg;

	if (right(b->data, msg->seq, b->off, b->len))
		m->seen += b->len;
	else
		m->wrong++;
	return 0;
}

static int on_fill(void *arg, struct skein_mcast *group,
		   const struct skein_mcast_msg *msg,
		   const struct skein_mcast_block *b)
{
	fill(b->data, msg->seq, b->off, b->len);
	return 0;
}

static void on_done(void *arg, struct skein_mcast *group,
		    const struct skein_mcast_msg *msg, int status)
{
	struct member *m = arg;

	m->done++;
	m->digest = msg->digest;
	if (status)
		m->status = status;
	else if (m->mem && !m->stream && msg->size &&
		 !right((uint8_t *)skein_mem_addr(m->mem) + 16, msg->seq, 0,
			msg->size))
		m->wrong++;
}

static void on_failed(void *arg, struct skein_mcast *group,
		      const struct skein_mcast_failure *why)
{
	struct member *m = arg;

	m->failed++;
	m->why = *why;
}

static void member_open(struct member *m, bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .background = background,
				      .log = quiet};

	memset(m, 0, sizeof(*m));
	assert_int_equal(skein_ctx_open(&attr, &m->ctx), 0);
	assert_int_equal(skein_listener_open(m->ctx, "127.0.0.1:0", NULL,
					     &m->listener),
			 0);
}

static struct skein_mcast_attr attr_of(struct member *m,
				       const char *const *members,
				       unsigned count, unsigned rank)
{
	return (struct skein_mcast_attr){
		.size = sizeof(struct skein_mcast_attr),
		.number = 7,
		.members = members,
		.count = count,
		.rank = rank,
		.block_size = BLOCK,
		/* Sanitizers and a loaded machine are no failure. */
		.open_timeout_ns = patience_ns(60),
		.member_timeout_ns = SKEIN_S(30),
		.ops = {.incoming = on_incoming,
			.block = on_block,
			.fill = on_fill,
			.done = on_done,
			.failed = on_failed},
		.arg = m,
	};
}

static struct member ms[MEMBERS];
static const char *names[MEMBERS];
static unsigned n;
static unsigned group_flags; /* of worlds to be opened */

static void all_progress(void)
{
	for (unsigned i = 0; i < n; i++)
		skein_ctx_progress(ms[i].ctx);
}

static void world_open(unsigned count, enum skein_mcast_algorithm algorithm)
{
	static const unsigned racks[MEMBERS] = {9, 9, 4, 4, 4, 9, 1, 1,
						9, 4, 1, 1, 1, 4, 9, 9};
	struct skein_mcast_attr attr;

	n = count;
	for (unsigned i = 0; i < n; i++) {
		member_open(&ms[i], false);
		names[i] = skein_listener_addr(ms[i].listener);
	}
	for (unsigned i = 0; i < n; i++) {
		/* Every way of coming: the last first. */
		unsigned r = n - 1 - i;

		attr = attr_of(&ms[r], names, n, r);
		attr.algorithm = algorithm;
		attr.racks = racks;
		attr.flags = group_flags;
		assert_int_equal(skein_mcast_open_async(ms[r].ctx, &attr,
							&ms[r].group),
				 0);
		all_progress();
	}
}

static void world_close(void)
{
	for (unsigned i = 0; i < n; i++) {
		skein_mem_free(ms[i].mem);
		skein_ctx_close(ms[i].ctx);
	}
}

static void until_done(unsigned messages)
{
	unsigned i;

	for (i = 0; i < n;) {
		all_progress();
		assert_int_equal(ms[i].failed, 0);
		if (ms[i].done == messages)
			i++;
	}
}

static void check_all(unsigned messages)
{
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(ms[i].done, messages);
		assert_int_equal(ms[i].wrong, 0);
		assert_int_equal(ms[i].status, 0);
		assert_int_equal(ms[i].digest, ms[0].digest);
	}
}

/* --- in one thread ------------------------------------------------------ */

static const uint64_t sizes[] = {0,	    1,	       BLOCK,
				 BLOCK + 1, 5 * BLOCK, 20 * BLOCK + 777};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void send_sizes(bool stream)
{
	struct skein_mem *mem[SIZES] = {NULL};

	for (unsigned k = 0; k < SIZES; k++) {
		if (stream) {
			assert_int_equal(skein_mcast_send_stream(
						 ms[0].group, sizes[k], NULL),
					 0);
			continue;
		}
		assert_int_equal(
			skein_mem_new(ms[0].ctx, sizes[k] + 1, &mem[k]), 0);
		fill(skein_mem_addr(mem[k]), k, 0, sizes[k]);
		assert_int_equal(skein_mcast_send(ms[0].group, mem[k], 0,
						  sizes[k], NULL),
				 0);
	}
	until_done(SIZES);
	for (unsigned k = 0; k < SIZES; k++)
		skein_mem_free(mem[k]);
	check_all(SIZES);
}

static void test_all_algorithms(void **state)
{
	static const unsigned counts[] = {1, 2, 3, 6, 8};

	for (int a = SKEIN_MCAST_PIPELINE; a <= SKEIN_MCAST_HYBRID; a++)
		for (unsigned c = 0; c < 5; c++) {
			world_open(counts[c], a);
			send_sizes(false);
			world_close();
		}
}

static void test_streams(void **state)
{
	for (int a = SKEIN_MCAST_PIPELINE; a <= SKEIN_MCAST_HYBRID; a++) {
		world_open(5, a);
		for (unsigned i = 1; i < n; i++)
			ms[i].stream = i & 1;
		send_sizes(true);
		for (unsigned i = 1; i < n; i++)
			if (ms[i].stream)
				assert_int_equal(ms[i].seen,
						 1 + BLOCK + BLOCK + 1 +
							 5 * BLOCK +
							 20 * BLOCK + 777);
		world_close();
	}
}

/* Small messages, more than there are slots, and some that are not small. */
static void small_ones(unsigned count, unsigned flags, unsigned right)
{
	struct skein_mcast_stats stats = {.size = sizeof(stats)};

	group_flags = flags;
	world_open(count, SKEIN_MCAST_PIPELINE);
	group_flags = 0;
	for (unsigned i = 1; i < n; i++)
		ms[i].stream = i & 1;
	for (unsigned k = 0; k < 100; k++)
		assert_int_equal(skein_mcast_send_stream(
					 ms[0].group,
					 k % 10 ? k * 103 % 10241 : 10241 + k,
					 NULL),
				 0);
	until_done(100);
	check_all(100);
	for (unsigned i = 0; i < n; i++) {
		/* They are published when there is nothing else to do. */
		do {
			all_progress();
			skein_mcast_get_stats(ms[i].group, &stats);
		} while (stats.messages < 100);
		assert_int_equal(stats.small, right);
		assert_int_equal(stats.bad_blocks, 0);
	}
	world_close();
}

static void test_small(void **state)
{
	small_ones(2, 0, 90);
	small_ones(5, 0, 90);
	small_ones(5, SKEIN_MCAST_NO_SLOTS, 0);
	small_ones(5, SKEIN_MCAST_NO_CHECKSUM, 90);
}

/* What is wrong is said at once. */
static void test_refusals(void **state)
{
	struct skein_mcast_attr attr;
	struct skein_mcast *g;
	struct skein_mem *mem;

	world_open(2, SKEIN_MCAST_PIPELINE);
	attr = attr_of(&ms[0], names, 2, 2);
	assert_int_equal(skein_mcast_open(ms[0].ctx, &attr, &g), -EINVAL);
	attr.rank = 0;
	attr.block_size = 5000;
	assert_int_equal(skein_mcast_open(ms[0].ctx, &attr, &g), -EINVAL);
	attr.block_size = 4096;
	attr.small_max = 4097;
	assert_int_equal(skein_mcast_open(ms[0].ctx, &attr, &g), -EINVAL);
	attr.small_max = 0;
	attr.slots = 33;
	assert_int_equal(skein_mcast_open(ms[0].ctx, &attr, &g), -EINVAL);
	attr.slots = 0;
	attr.block_size = 0;
	attr.algorithm = SKEIN_MCAST_HYBRID;
	assert_int_equal(skein_mcast_open(ms[0].ctx, &attr, &g), -EINVAL);
	assert_int_equal(skein_mem_new(ms[0].ctx, 100, &mem), 0);
	assert_int_equal(skein_mcast_send(ms[1].group, NULL, 0, 0, NULL),
			 -EPERM);
	assert_int_equal(skein_mcast_send(ms[0].group, mem, 1, 100, NULL),
			 -ERANGE);
	assert_int_equal(skein_mcast_send_stream(ms[0].group, 1ull << 60, NULL),
			 -EFBIG);
	skein_mcast_finish(ms[0].group);
	assert_int_equal(skein_mcast_send(ms[0].group, mem, 0, 1, NULL),
			 -ESHUTDOWN);
	skein_mem_free(mem);
	world_close();
}

static void until_failed(void)
{
	for (unsigned i = 0; i < n;) {
		all_progress();
		if (ms[i].failed)
			i++;
	}
}

/* Members that do not agree, and one that gives up. */
static void test_gives_up(void **state)
{
	world_open(7, SKEIN_MCAST_PIPELINE);
	skein_mcast_abort(ms[5].group, -ENOSPC);
	until_failed();
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(ms[i].why.rank, 5);
		assert_int_equal(ms[i].why.err, -ENOSPC);
		assert_string_equal(ms[i].why.member, names[5]);
		assert_non_null(strstr(ms[i].why.text, names[5]));
		assert_int_equal(skein_mcast_send(ms[i].group, NULL, 0, 0,
						  NULL),
				 i ? -EPERM : -ECONNABORTED);
	}
	world_close();
}

/* A member that leaves at once does not wait for neighbours that do not run: it
 * cuts their links, and they find its FAIL when they run. The best of several
 * tries counts: the machine may be slow at times, but a wait for the settling
 * of a failure would show in each. */
static void test_leaves(void **state)
{
	uint64_t took, best = UINT64_MAX;

	for (unsigned round = 0; round < 5; round++) {
		world_open(2, SKEIN_MCAST_PIPELINE);
		for (unsigned i = 0; i < n; i++)
			ms[i].stream = true;
		assert_int_equal(
			skein_mcast_send_stream(ms[0].group, BLOCK, NULL), 0);
		until_done(1);
		took = now_ns();
		assert_int_equal(skein_mcast_close(ms[1].group, 0), -ETIMEDOUT);
		took = now_ns() - took;
		if (took < best)
			best = took;
		ms[1].failed = 1;
		until_failed();
		assert_int_equal(ms[0].why.rank, 1);
		assert_int_equal(ms[0].why.err, -ECANCELED);
		world_close();
	}
	print_message("left after %llu ms\n",
		      (unsigned long long)best / 1000000);
	assert_true(best < patience_ns(1) / 2);
}

static void test_disagreement(void **state)
{
	struct skein_mcast_attr attr;

	n = 2;
	for (unsigned i = 0; i < n; i++) {
		member_open(&ms[i], false);
		names[i] = skein_listener_addr(ms[i].listener);
	}
	for (unsigned i = 0; i < n; i++) {
		attr = attr_of(&ms[i], names, 2, i);
		attr.block_size = (1 + i) * BLOCK;
		assert_int_equal(skein_mcast_open_async(ms[i].ctx, &attr,
							&ms[i].group),
				 0);
	}
	until_failed();
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(ms[i].why.err, -EINVAL);
	world_close();
}

/* --- processes ---------------------------------------------------------- */

struct report {
	unsigned rank, done, wrong, failed, why_rank;
	int why_err, closed;
};

struct proc {
	pid_t pid;
	int in, out; /* addresses, reports */
};

static struct proc procs[MEMBERS];
static bool small; /* messages, of the processes to come */

static void all_write(int fd, const void *buf, size_t len)
{
	if (write(fd, buf, len) != (ssize_t)len)
		_exit(9);
}

static bool send_large(struct member *m, struct skein_mem *mem, unsigned i)
{
	fill(skein_mem_addr(mem), i, 0, 40 * BLOCK);
	return !skein_mcast_send(m->group, mem, 0, 40 * BLOCK, NULL) &&
	       !skein_mcast_flush(m->group, SKEIN_FOREVER);
}

/* By slots, but for some. */
static bool send_small(struct member *m, unsigned i)
{
	if (skein_mcast_send_stream(m->group,
				    i % 50 ? i * 37 % 6000 : 3 * BLOCK, NULL))
		return false;
	return i % 64 || !skein_mcast_flush(m->group, SKEIN_FOREVER);
}

/* A receiver, or the root: opens, sends messages for ever or some, closes. */
static void process(unsigned rank, unsigned count, int in, int out,
		    unsigned messages, uint64_t member_timeout)
{
	char addrs[MEMBERS][64], addr[64] = "";
	struct skein_mcast_attr attr;
	struct skein_mem *mem;
	struct member m;
	struct report r = {.rank = rank};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	member_open(&m, true);
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(m.listener));
	all_write(out, addr, sizeof(addr));
	if (read(in, addrs, count * 64) != (ssize_t)(count * 64))
		_exit(8);
	for (unsigned i = 0; i < count; i++)
		names[i] = addrs[i];
	attr = attr_of(&m, names, count, rank);
	if (member_timeout)
		attr.member_timeout_ns = member_timeout;
	m.stream = small && rank & 1;
	r.closed = skein_mcast_open(m.ctx, &attr, &m.group);
	if (r.closed) {
		fprintf(stderr, "member %u: open: %s\n", rank,
			skein_strerror(r.closed));
		_exit(7);
	}
	all_write(out, "up", 2);
	if (!rank && skein_mem_new(m.ctx, 40 * BLOCK, &mem))
		_exit(6);
	for (unsigned i = 0; !rank && i < messages; i++) {
		if (!(small ? send_small(&m, i) : send_large(&m, mem, i)))
			break;
	}
	r.closed = skein_mcast_close(m.group, PATIENCE);
	r.done = m.done;
	r.wrong = m.wrong;
	r.failed = m.failed;
	r.why_rank = m.why.rank;
	r.why_err = m.why.err;
	all_write(out, &r, sizeof(r));
	skein_mem_free(m.mem);
	if (!rank)
		skein_mem_free(mem);
	skein_ctx_close(m.ctx);
	_exit(0);
}

static void procs_start(unsigned count, unsigned messages,
			uint64_t member_timeout)
{
	char addrs[MEMBERS][64];
	int to[2], from[2];
	char up[2];

	n = count;
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(pipe(to), 0);
		assert_int_equal(pipe(from), 0);
		procs[i].pid = fork();
		assert_true(procs[i].pid >= 0);
		if (!procs[i].pid) {
			close(to[1]);
			close(from[0]);
			process(i, count, to[0], from[1], messages,
				member_timeout);
		}
		close(to[0]);
		close(from[1]);
		procs[i].in = to[1];
		procs[i].out = from[0];
		assert_int_equal(read(from[0], addrs[i], 64), 64);
	}
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(write(procs[i].in, addrs, n * 64),
				 (ssize_t)(n * 64));
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(read(procs[i].out, up, 2), 2);
}

static void proc_end(unsigned i)
{
	kill(procs[i].pid, SIGKILL);
	waitpid(procs[i].pid, NULL, 0);
	close(procs[i].in);
	close(procs[i].out);
}

static void all_through(unsigned count, unsigned messages)
{
	struct report r;

	procs_start(count, messages, 0);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(read(procs[i].out, &r, sizeof(r)), sizeof(r));
		assert_int_equal(r.closed, 0);
		assert_int_equal(r.done, messages);
		assert_int_equal(r.wrong, 0);
		proc_end(i);
	}
}

static void test_processes(void **state)
{
	all_through(MEMBERS, 5);
}

/* Every member but the victim reports the failure and the victim's rank.
 * Returns how long it took. */
static uint64_t survivors(unsigned victim, int err)
{
	uint64_t from = now_ns();
	struct report r;

	for (unsigned i = 0; i < n; i++) {
		if (i == victim)
			continue;
		assert_int_equal(read(procs[i].out, &r, sizeof(r)), sizeof(r));
		assert_int_equal(r.failed, 1);
		assert_int_equal(r.why_rank, victim);
		assert_int_equal(r.wrong, 0);
		if (err) {
			assert_int_equal(r.why_err, err);
			assert_int_equal(r.closed, err);
		}
	}
	return now_ns() - from;
}

static void killed(unsigned count, unsigned victim)
{
	uint64_t took;

	procs_start(count, 1000000, 0);
	usleep(50000);
	kill(procs[victim].pid, SIGKILL);
	took = survivors(victim, 0);
	print_message("killed: all knew after %llu ms\n",
		      (unsigned long long)took / 1000000);
	for (unsigned i = 0; i < n; i++)
		proc_end(i);
}

static void test_killed(void **state)
{
	killed(8, 3);
	killed(8, 0);
	killed(8, 7);
}

static void stopped(unsigned count, uint64_t member_timeout)
{
	uint64_t took;

	procs_start(count, 1000000, member_timeout);
	usleep(50000);
	kill(procs[count - 2].pid, SIGSTOP);
	took = survivors(count - 2, -ETIMEDOUT);
	print_message("stopped: all knew after %llu ms\n",
		      (unsigned long long)took / 1000000);
	for (unsigned i = 0; i < n; i++)
		proc_end(i);
}

static void test_stopped(void **state)
{
	stopped(6, patience_ns(3));
}

static void test_small_processes(void **state)
{
	small = true;
	all_through(4, 400);
	small = false;
}

static void test_small_killed(void **state)
{
	small = true;
	killed(4, 2);
	killed(4, 0);
	small = false;
}

static void test_small_stopped(void **state)
{
	small = true;
	stopped(4, patience_ns(4));
	small = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_algorithms),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_disagreement),
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_small_processes),
		cmocka_unit_test(test_small_killed),
		cmocka_unit_test(test_small_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
