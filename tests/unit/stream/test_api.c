/* SPDX-License-Identifier: MIT */
/*
 * test_api.c - the public streams, both ends in one process: bytes, half close,
 * reset, back-pressure, deadlines, two writers, an event loop, what is refused,
 * and each allocation that fails.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stream/conf.h"
#include "stream/state.h"
#include "unit/alloc_sweep.h"
#include "unit/cm.h"
#include "unit/device.h"
#include "unit/nobody.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define LONG patience_ns(60)

/* The server's context has a thread of its own; the client's has not. */
static struct skein_ctx *server, *client;
static struct skein_listener *listener;
static struct skein_stream_listener *streams;
static struct skein_stream *a, *b; /* opened, accepted */

/* Lines about a failure: the last of the client's and of the server's. */
static struct last {
	pthread_mutex_t lock;
	char line[512];
} client_log = {.lock = PTHREAD_MUTEX_INITIALIZER},
  server_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Streams are broken on purpose; the harsh run wants to know the device. */
static void quiet(void *arg, enum skein_log_level level, const char *line)
{
	struct last *last = arg;

	if (level == SKEIN_LOG_INFO) {
		fprintf(stderr, "skein: info: %s\n", line);
		return;
	}
	pthread_mutex_lock(&last->lock);
	snprintf(last->line, sizeof(last->line), "%s", line);
	pthread_mutex_unlock(&last->lock);
}

static void log_clear(struct last *last)
{
	pthread_mutex_lock(&last->lock);
	last->line[0] = 0;
	pthread_mutex_unlock(&last->lock);
}

/* Waits for a line, which must say text, and not hint. */
static void expect_log(struct last *last, const char *text, const char *hint)
{
	bool there = false;

	while (!there) {
		pthread_mutex_lock(&last->lock);
		there = last->line[0];
		if (there && (!strstr(last->line, text) ||
			      (hint && strstr(last->line, hint))))
			fail_msg("\"%s\" was logged", last->line);
		pthread_mutex_unlock(&last->lock);
		sched_yield();
	}
	log_clear(last);
}

static void pair_open(uint32_t ring)
{
	struct skein_stream_attr attr = {
		.size = sizeof(attr), .number = 7, .ring = ring};

	assert_int_equal(skein_stream_open(client,
					   skein_listener_addr(listener), &attr,
					   &a),
			 0);
	assert_int_equal(skein_stream_accept(streams, LONG, &b), 0);
}

static int up(void **state)
{
	struct skein_stream_listener_attr attr = {
		.size = sizeof(attr), .number = 7, .backlog = 2};
	struct skein_ctx_attr ctx = {
		.size = sizeof(ctx), .device = test_device(), .log = quiet};

	(void)state;
	ctx.log_arg = &client_log;
	assert_int_equal(skein_ctx_open(&ctx, &client), 0);
	ctx.background = true;
	ctx.log_arg = &server_log;
	assert_int_equal(skein_ctx_open(&ctx, &server), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	assert_int_equal(skein_stream_listen(server, &attr, &streams), 0);
	pair_open(16384);
	return 0;
}

static int down(void **state)
{
	(void)state;
	skein_ctx_close(client);
	skein_ctx_close(server);
	return 0;
}

static void put(struct skein_stream *st, const char *text)
{
	size_t n;

	assert_int_equal(skein_stream_write(st, text, strlen(text), LONG, &n),
			 0);
	assert_int_equal(n, strlen(text));
}

static void expect(struct skein_stream *st, const char *text)
{
	size_t n, got = 0, len = strlen(text);
	char buf[256];

	while (got < len) {
		assert_int_equal(skein_stream_read(st, buf + got, len - got,
						   LONG, &n),
				 0);
		assert_true(n > 0);
		got += n;
	}
	assert_memory_equal(buf, text, len);
}

static void expect_end(struct skein_stream *st)
{
	size_t n = 1;
	char c;

	assert_int_equal(skein_stream_read(st, &c, 1, LONG, &n), 0);
	assert_int_equal(n, 0);
}

/* Until the other end is known to be gone. */
static int write_until_error(struct skein_stream *st)
{
	size_t n;
	int rc;

	do
		rc = skein_stream_write(st, "x", 1, SKEIN_MS(1), &n);
	while (rc == 0 || rc == -ETIMEDOUT);
	return rc;
}

static void test_both_ways(void **state)
{
	struct skein_stream_stats stats = {.size = sizeof(stats)};

	(void)state;
	put(a, "hello, goose");
	expect(b, "hello, goose");
	put(b, "hello, gander");
	expect(a, "hello, gander");
	assert_int_equal(skein_stream_number(b), 7);
	assert_non_null(strstr(skein_stream_peer(a), "127.0.0.1"));
	assert_int_equal(skein_stream_get_stats(a, &stats), 0);
	assert_int_equal(stats.written, 12);
	assert_int_equal(stats.read, 13);
	assert_int_equal(stats.copied, 25);
	assert_int_equal(stats.records, 1);
	stats.size = 0;
	assert_int_equal(skein_stream_get_stats(a, &stats), -EINVAL);
	assert_int_equal(skein_stream_close(a, LONG), 0);
	expect_end(b);
	skein_stream_close(b, LONG);
}

/* What was written is read behind the end of its writer; and an end that was
 * written before its peer has gone was delivered. */
static void test_half_close(void **state)
{
	size_t n;

	(void)state;
	put(a, "question");
	assert_int_equal(skein_stream_end(a, LONG), 0);
	assert_int_equal(skein_stream_end(a, LONG), 0);
	assert_int_equal(skein_stream_write(a, "x", 1, LONG, &n), -EPIPE);
	expect(b, "question");
	expect_end(b);
	expect_end(b);
	put(b, "answer");
	assert_int_equal(skein_stream_close(b, LONG), 0);
	expect(a, "answer");
	expect_end(a);
	assert_int_equal(skein_stream_close(a, LONG), 0);
}

static void test_reset(void **state)
{
	char buf[8];
	size_t n;

	(void)state;
	put(a, "last");
	assert_int_equal(skein_stream_close(a, 0), 0);
	assert_int_equal(write_until_error(b), -ECONNRESET);
	/* A reset waits for nothing: a device may be busy with it still. */
	if (skein_stream_read(b, buf, sizeof(buf), LONG, &n) == 0) {
		assert_int_equal(n, 4);
		assert_memory_equal(buf, "last", 4);
	} else {
		assert_non_null(getenv("SKEIN_SOFT_HARSH"));
	}
	assert_int_equal(skein_stream_read(b, buf, 1, LONG, &n), -ECONNRESET);
	assert_int_equal(skein_stream_ready(b),
			 SKEIN_STREAM_IN | SKEIN_STREAM_OUT | SKEIN_STREAM_ERR);
	assert_int_equal(skein_stream_close(b, LONG), -ECONNRESET);
}

/* A full ring: a write takes what fits, then nothing, and goes on when the
 * other end has read. */
static void test_back_pressure(void **state)
{
	static char block[100000], back[sizeof(block)];
	struct skein_stream_stats stats = {.size = sizeof(stats)};
	size_t n = 0, more, sum = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 31 >> 3);
	assert_int_equal(skein_stream_write(a, block, sizeof(block), 0, &n), 0);
	assert_true(n > 8192 && n < 16384);
	assert_int_equal(skein_stream_write(a, block, 1, 0, &more), -EAGAIN);
	assert_int_equal(skein_stream_write(a, block, 1, SKEIN_MS(1), &more),
			 -ETIMEDOUT);
	assert_false(skein_stream_ready(a) & SKEIN_STREAM_OUT);
	while (sum < sizeof(block)) {
		if (skein_stream_read(b, back + sum, sizeof(back) - sum, 0,
				      &more) == 0)
			sum += more;
		if (n < sizeof(block) &&
		    skein_stream_write(a, block + n, sizeof(block) - n, 0,
				       &more) == 0)
			n += more;
		skein_ctx_progress(client);
	}
	assert_memory_equal(block, back, sizeof(block));
	assert_int_equal(skein_stream_get_stats(a, &stats), 0);
	assert_true(stats.full >= 2);
}

/* What arming finds moves the next round: threads that wait elsewhere are woken
 * by that. */
static void test_arm(void **state)
{
	struct skein_engine *engine = skein_ctx_engine(client);
	static char block[100000];
	size_t written, n, sum = 0;

	(void)state;
	if (getenv("SKEIN_SOFT_HARSH"))
		skip(); /* room comes when the device likes */
	assert_int_equal(
		skein_stream_write(a, block, sizeof(block), 0, &written), 0);
	assert_int_equal(skein_stream_write(a, block, 1, 0, &n), -EAGAIN);
	while (sum < written) {
		assert_int_equal(skein_stream_read(b, block, sizeof(block),
						   LONG, &n),
				 0);
		sum += n;
	}
	assert_int_equal(skein_engine_arm(engine), 1);
	assert_true(skein_engine_progress(engine) > 0);
}

static void test_deadlines(void **state)
{
	size_t n = 77;
	char c;

	(void)state;
	assert_int_equal(skein_stream_read(a, &c, 1, 0, &n), -EAGAIN);
	assert_int_equal(skein_stream_read(a, &c, 1, SKEIN_MS(1), &n),
			 -ETIMEDOUT);
	assert_int_equal(skein_stream_read(b, &c, 1, SKEIN_MS(1), &n),
			 -ETIMEDOUT);
	assert_int_equal(n, 77);
	assert_int_equal(skein_stream_read(a, &c, 0, 0, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(skein_stream_accept(streams, 0, &b), -EAGAIN);
	assert_int_equal(skein_stream_accept(streams, SKEIN_MS(1), &b),
			 -ETIMEDOUT);
}

/* In place; the thread that has reserved or peeked has the turn. */
static void test_in_place(void **state)
{
	const void *data;
	size_t room, len;
	void *buf;

	(void)state;
	assert_int_equal(skein_stream_commit(a, 0), -EINVAL);
	assert_int_equal(skein_stream_consume(b, 0), -EINVAL);
	assert_int_equal(skein_stream_reserve(a, LONG, &buf, &room), 0);
	assert_true(room >= 8);
	assert_int_equal(skein_stream_reserve(a, 0, &buf, &len), -EAGAIN);
	assert_int_equal(skein_stream_write(a, "x", 1, SKEIN_MS(1), &len),
			 -ETIMEDOUT);
	memcpy(buf, "in place", 8);
	assert_int_equal(skein_stream_commit(a, room + 1), -EINVAL);
	assert_int_equal(skein_stream_commit(a, 8), 0);
	assert_int_equal(skein_stream_commit(a, 8), -EINVAL);
	assert_int_equal(skein_stream_peek(b, LONG, &data, &len), 0);
	assert_int_equal(len, 8);
	assert_memory_equal(data, "in place", 8);
	assert_int_equal(skein_stream_peek(b, 0, &data, &room), -EAGAIN);
	assert_int_equal(skein_stream_consume(b, 9), -EINVAL);
	assert_int_equal(skein_stream_consume(b, 3), 0);
	assert_int_equal(skein_stream_consume(b, 1), -EINVAL);
	expect(b, "place");
	assert_int_equal(skein_stream_reserve(a, LONG, &buf, &room), 0);
	assert_int_equal(skein_stream_commit(a, 0), 0);
	assert_int_equal(skein_stream_end(a, LONG), 0);
	assert_int_equal(skein_stream_peek(b, LONG, &data, &len), 0);
	assert_int_equal(len, 0);
	assert_int_equal(skein_stream_consume(b, 0), -EINVAL);
}

/* --- threads ------------------------------------------------------------- */

#define WRITERS 3
#define WRITES 10
#define PIECE 20000u /* more than a ring */

static void *write_pieces(void *arg)
{
	char piece[PIECE];
	size_t n;

	memset(piece, *(const char *)arg, sizeof(piece));
	for (int i = 0; i < WRITES; i++)
		if (skein_stream_write(a, piece, sizeof(piece), LONG, &n) ||
		    n != sizeof(piece))
			return arg;
	return NULL;
}

/* Bytes of two writes do not mix, though each is longer than a ring. */
static void test_writers(void **state)
{
	static char tags[WRITERS] = {'a', 'b', 'c'};
	unsigned counts[WRITERS] = {0};
	pthread_t threads[WRITERS];
	static char piece[PIECE];
	void *bad;

	(void)state;
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&threads[i], NULL, write_pieces, &tags[i]);
	for (int i = 0; i < WRITERS * WRITES; i++) {
		size_t got = 0, n;

		while (got < PIECE) {
			assert_int_equal(skein_stream_read(b, piece + got,
							   PIECE - got, LONG,
							   &n),
					 0);
			got += n;
		}
		for (size_t k = 1; k < PIECE; k++)
			assert_int_equal(piece[k], piece[0]);
		counts[piece[0] - 'a']++;
	}
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], &bad);
		assert_null(bad);
		assert_int_equal(counts[i], WRITES);
	}
}

static void *echo(void *arg)
{
	char buf[4096];
	size_t n, w;

	(void)arg;
	while (!skein_stream_read(b, buf, sizeof(buf), LONG, &n) && n)
		if (skein_stream_write(b, buf, n, LONG, &w) || w != n)
			break;
	skein_stream_close(b, LONG);
	return NULL;
}

/* An event loop that sleeps in poll(2) on the engine's fd, for bytes and for
 * room. */
static void test_event_loop(void **state)
{
	struct skein_engine *engine = skein_ctx_engine(client);
	struct pollfd fd = {.fd = skein_engine_fd(engine), .events = POLLIN};
	static char block[1 << 20];
	size_t out = 0, in = 0, n;
	char buf[4096];
	pthread_t thread;
	int rc = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (char)(i * 7 >> 2);
	pthread_create(&thread, NULL, echo, NULL);
	while (in < sizeof(block)) {
		bool moved = false;

		if (out < sizeof(block)) {
			rc = skein_stream_write(a, block + out,
						sizeof(block) - out, 0, &n);
			assert_true(rc == 0 || rc == -EAGAIN);
			out += rc ? 0 : n;
			moved |= !rc;
		}
		rc = skein_stream_read(a, buf, sizeof(buf), 0, &n);
		assert_true(rc == 0 || rc == -EAGAIN);
		if (rc == 0) {
			assert_memory_equal(buf, block + in, n);
			in += n;
			moved = true;
		}
		if (moved || skein_engine_progress(engine) ||
		    skein_engine_arm(engine))
			continue;
		assert_true(poll(&fd, 1, 60000) >= 0);
	}
	assert_int_equal(skein_stream_end(a, LONG), 0);
	expect_end(a);
	pthread_join(thread, NULL);
	assert_int_equal(skein_stream_close(a, LONG), 0);
}

/* --- refused ------------------------------------------------------------- */

static int open_as(struct skein_stream_attr *attr, const char *addr)
{
	struct skein_stream *st;

	return skein_stream_open(client, addr, attr, &st);
}

static void test_bad_arguments(void **state)
{
	struct skein_stream_listener_attr same = {.size = sizeof(same),
						  .number = 7};
	struct skein_stream_attr attr = {.size = sizeof(attr), .number = 7};
	const char *addr = skein_listener_addr(listener);
	static const uint32_t rings[] = {1, 8192, 16385, 8u << 20, 1u << 31};
	struct skein_stream_listener *other;
	char nobody[NOBODY_LEN], text[80];
	int port, rc;

	(void)state;
	for (size_t i = 0; i < sizeof(rings) / sizeof(rings[0]); i++) {
		attr.ring = rings[i];
		log_clear(&client_log);
		assert_int_equal(open_as(&attr, addr), -EINVAL);
		snprintf(text, sizeof(text),
			 "ring %u: a power of two from 16384 to 4194304",
			 rings[i]);
		expect_log(&client_log, text, NULL);
	}
	attr.ring = 0;
	attr.size = 0;
	assert_int_equal(open_as(&attr, addr), -EINVAL);
	attr.size = sizeof(attr);
	attr.number = 8;
	log_clear(&client_log);
	log_clear(&server_log);
	assert_int_equal(open_as(&attr, addr), -ECONNREFUSED);
	expect_log(&client_log, "nobody listens for stream number 8",
		   "is the server running");
	expect_log(&server_log, "nobody listens for stream number 8",
		   "is the server running");
	attr.number = 7;
	port = nobody_at(nobody);
	assert_true(port >= 0);
	assert_int_equal(open_as(&attr, nobody), -ECONNREFUSED);
	close(port);
	assert_int_equal(skein_stream_listen(server, &same, &other),
			 -EADDRINUSE);
	/* Two more may wait, and no third. */
	assert_int_equal(open_as(&attr, addr), 0);
	assert_int_equal(open_as(&attr, addr), 0);
	attr.timeout_ns = SKEIN_MS(300);
	do
		rc = open_as(&attr, addr);
	while (patience_doubles(&attr.timeout_ns, rc));
	assert_int_equal(rc, -SKEIN_EBUSY);
	skein_stream_listener_close(streams);
	assert_int_equal(open_as(&attr, addr), -ECONNREFUSED);
	skein_stream_close(NULL, 0);
	skein_stream_listener_close(NULL);
}

/* Rings of all sizes; a context closes what was left open. */
static void test_rings(void **state)
{
	static char block[4 << 20];

	(void)state;
	for (uint32_t ring = 16384; ring <= 4u << 20; ring *= 4) {
		size_t n, written, sum = 0;

		assert_int_equal(skein_stream_close(a, LONG), 0);
		skein_stream_close(b, 0);
		pair_open(ring);
		assert_int_equal(skein_stream_write(a, block, sizeof(block), 0,
						    &written),
				 0);
		assert_true(written < ring);
		/* A device that is busy takes a part. */
		assert_true(written > ring / 2 || getenv("SKEIN_SOFT_HARSH"));
		while (sum < written) {
			assert_int_equal(skein_stream_read(b, block,
							   sizeof(block), LONG,
							   &n),
					 0);
			sum += n;
		}
	}
}

/* --- streams that share ---------------------------------------------------- */

#define SHARED 6

static unsigned conns_of(struct skein_stream *const *all)
{
	unsigned n = 0, i, k;

	for (i = 0; i < SHARED; i++) {
		for (k = 0; k < i && all[k]->sc != all[i]->sc; k++)
			;
		n += k == i;
	}
	return n;
}

/* Streams to one address share connections, at both ends; what one of them does
 * disturbs no other; a connection without streams takes the next one. */
static void share(unsigned conns)
{
	struct skein_stream *opened[SHARED], *taken[SHARED];
	struct stream_conn *sc;
	unsigned i;

	for (i = 0; i < SHARED; i++) {
		opened[i] = a;
		taken[i] = b;
		if (i + 1 < SHARED)
			pair_open(16384);
	}
	assert_int_equal(conns_of(opened), conns);
	assert_int_equal(conns_of(taken), conns);
	for (i = 0; i < SHARED; i++)
		put(opened[i], "to all");
	assert_int_equal(skein_stream_close(opened[0], 0), 0);
	assert_int_equal(write_until_error(taken[0]), -ECONNRESET);
	for (i = 1; i < SHARED; i++) {
		expect(taken[i], "to all");
		put(taken[i], "back");
		expect(opened[i], "back");
	}
	sc = opened[1]->sc;
	for (i = 0; i < SHARED; i++) {
		if (i)
			assert_int_equal(skein_stream_close(opened[i], LONG),
					 0);
		skein_stream_close(taken[i], LONG);
	}
	pair_open(16384);
	if (conns == 1)
		assert_ptr_equal(a->sc, sc);
	put(a, "again");
	expect(b, "again");
}

static void test_share(void **state)
{
	(void)state;
	share(1);
}

static int up_two(void **state)
{
	int rc;

	setenv("SKEIN_STREAM_QPS", "2", 1);
	rc = up(state);
	unsetenv("SKEIN_STREAM_QPS");
	return rc;
}

static void test_share_two(void **state)
{
	(void)state;
	share(2);
}

static int up_alone(void **state)
{
	int rc;

	setenv("SKEIN_STREAM_QPS", "0", 1);
	rc = up(state);
	unsetenv("SKEIN_STREAM_QPS");
	return rc;
}

static void test_alone(void **state)
{
	(void)state;
	share(SHARED);
}

static int up_little(void **state)
{
	int rc;

	setenv("SKEIN_STREAM_MEM", "100K", 1);
	rc = up(state);
	unsetenv("SKEIN_STREAM_MEM");
	return rc;
}

/* A number of QPs that cannot be is refused with a line, not cut. */
static void test_too_many_qps(void **state)
{
	struct stream_conf conf = {.qps = 1};
	char why[160] = "";

	(void)state;
	setenv("SKEIN_STREAM_QPS", "5", 1);
	assert_int_equal(stream_conf_load(&conf, why, sizeof(why)), -ERANGE);
	unsetenv("SKEIN_STREAM_QPS");
	assert_int_equal(conf.qps, 1);
	assert_non_null(strstr(why, "from 0 to 4"));
}

/* Beyond SKEIN_STREAM_MEM opening fails, and the streams that are there go on; a
 * stream that ends leaves its memory to the next one. */
static void test_memory(void **state)
{
	struct skein_stream_attr attr = {
		.size = sizeof(attr), .number = 7, .ring = 16384};
	struct skein_stream *first = a, *its = b;
	int rc;

	(void)state;
	pair_open(16384);
	assert_int_equal(open_as(&attr, skein_listener_addr(listener)),
			 -ENOMEM);
	put(first, "still there");
	expect(its, "still there");
	skein_stream_close(a, LONG);
	skein_stream_close(b, LONG);
	/* Each end frees when it has heard of the other's. */
	do {
		rc = skein_stream_open(client, skein_listener_addr(listener),
				       &attr, &a);
		skein_ctx_progress(client);
	} while (rc == -ENOMEM || rc == -SKEIN_ERESOURCE);
	assert_int_equal(rc, 0);
	assert_int_equal(skein_stream_accept(streams, LONG, &b), 0);
	put(a, "again");
	expect(b, "again");
}

/* --- allocations --------------------------------------------------------- */

static struct skein_ctx *client_of_sweep;

/* The end that was opened may break before it is accepted. */
static struct skein_stream *accept_or_not(struct skein_stream_listener *l,
					  struct skein_stream *opened)
{
	struct skein_stream *st;

	while (skein_stream_accept(l, SKEIN_MS(1), &st)) {
		skein_ctx_progress(client_of_sweep);
		if (skein_stream_ready(opened) & SKEIN_STREAM_ERR)
			return NULL;
	}
	return st;
}

/* Both ends in one thread and one environment. */
static int whole_life(struct skein_ctx *s, struct skein_ctx *c,
		      const char *addr)
{
	struct skein_stream_listener *l;
	struct skein_stream *one, *two;
	char buf[8];
	size_t n;
	int rc;

	rc = skein_stream_listen(s, NULL, &l);
	if (rc)
		return rc;
	rc = skein_stream_open(c, addr, NULL, &one);
	if (rc == 0) {
		two = accept_or_not(l, one);
		rc = two ? skein_stream_write(one, "bytes", 5, LONG, &n)
			 : -ECONNRESET;
		if (rc == 0)
			rc = skein_stream_read(two, buf, 5, LONG, &n);
		skein_stream_close(two, LONG);
		skein_stream_close(one, LONG);
	}
	skein_stream_listener_close(l);
	return rc;
}

static void test_allocations(void **state)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};
	struct skein_listener *tcp;
	struct alloc_sweep sweep;
	struct skein_env *env;
	struct skein_ctx *s, *c;
	int n = 0, rc;
	bool hit;

	(void)state;
	if (getenv("SKEIN_SOFT_HARSH"))
		skip(); /* which fails, the device has no say in */
	assert_int_equal(env_real_new(&env), 0);
	env->log = NULL;
	alloc_sweep_init(&sweep, env);
	assert_int_equal(ctx_open_env(env, &attr, &s), 0);
	attr.background = false;
	assert_int_equal(ctx_open_env(env, &attr, &c), 0);
	assert_int_equal(skein_listener_open(s, "127.0.0.1:0", NULL, &tcp), 0);
	client_of_sweep = c;
	do {
		alloc_sweep_begin(&sweep, n++);
		rc = whole_life(s, c, skein_listener_addr(tcp));
		hit = alloc_sweep_end(&sweep);
	} while (hit);
	assert_int_equal(rc, 0);
	assert_true(n > 10);
	skein_ctx_close(c);
	skein_ctx_close(s);
	env_real_free(env);
}

#define LIFE(fn) cmocka_unit_test_setup_teardown(fn, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIFE(test_both_ways),
		LIFE(test_half_close),
		LIFE(test_reset),
		LIFE(test_back_pressure),
		LIFE(test_arm),
		LIFE(test_deadlines),
		LIFE(test_in_place),
		LIFE(test_writers),
		LIFE(test_event_loop),
		LIFE(test_bad_arguments),
		LIFE(test_rings),
		LIFE(test_share),
		cmocka_unit_test_setup_teardown(test_share_two, up_two, down),
		cmocka_unit_test_setup_teardown(test_alone, up_alone, down),
		cmocka_unit_test_setup_teardown(test_memory, up_little, down),
		cmocka_unit_test(test_too_many_qps),
		cmocka_unit_test(test_allocations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
