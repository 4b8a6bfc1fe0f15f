/* SPDX-License-Identifier: MIT */
/*
 * test_kill.c - two processes with a stream. The writer exits without a close,
 * or is killed: what it had written is read all the same, then the stream is
 * over. (In harsh mode a device may be busy with it still: a part is read.)
 * And: whatever an end does when the other's process is killed, it is told of a
 * dead process. And: the writer of several streams is killed while the ring of
 * one grows: all that had come is read, byte by byte, then each stream is over.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stream/state.h"
#include "unit/cm.h"
#include "unit/device.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define LONG patience_ns(60)
#define BYTES 40000u

enum end {
	EXIT,
	KILL,
	ENDS
};

static struct child {
	pid_t pid;
	int addr; /* its listener's address comes by it */
} children[ENDS];

static void byte_of(char *buf, size_t from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (char)((from + i) * 13 >> 2);
}

/* Accepts a stream, writes, and is gone. */
static void writer(int addr, enum end end)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct skein_stream_listener *streams;
	struct skein_listener *listener;
	struct skein_stream *stream;
	static char block[BYTES];
	struct skein_ctx *ctx;
	char line[64] = "";
	size_t n = 0;

	byte_of(block, 0, sizeof(block));
	if (skein_ctx_open(&attr, &ctx) ||
	    skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener) ||
	    skein_stream_listen(ctx, NULL, &streams))
		_exit(1);
	snprintf(line, sizeof(line), "%s", skein_listener_addr(listener));
	if (write(addr, line, sizeof(line)) != sizeof(line) ||
	    skein_stream_accept(streams, LONG, &stream) ||
	    skein_stream_write(stream, block, sizeof(block), LONG, &n) ||
	    n != sizeof(block))
		_exit(1);
	if (end == KILL)
		kill(getpid(), SIGKILL);
	_exit(0);
}

/* --- killed at any time --------------------------------------------------- */

#define TIMES 5

/* What the end that lives does. */
enum deed {
	READS,
	WRITES,
	COMMITS,
	POLLS, /* never waits in a call */
	DEEDS
};

/* Its other end, which is killed. */
static struct victim {
	pid_t pid;
	int in, out; /* an address goes in, or comes out */
} victims[2][DEEDS][TIMES];

static void victim_opens(struct skein_ctx *ctx, int in,
			 struct skein_stream **stream)
{
	char line[64];

	if (read(in, line, sizeof(line)) != sizeof(line) ||
	    skein_stream_open(ctx, line, NULL, stream))
		_exit(1);
}

static void victim_accepts(struct skein_ctx *ctx, int out,
			   struct skein_stream **stream)
{
	struct skein_stream_listener *streams;
	struct skein_listener *listener;
	char line[64] = "";

	if (skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener) ||
	    skein_stream_listen(ctx, NULL, &streams))
		_exit(1);
	snprintf(line, sizeof(line), "%s", skein_listener_addr(listener));
	if (write(out, line, sizeof(line)) != sizeof(line) ||
	    skein_stream_accept(streams, LONG, stream))
		_exit(1);
}

/* Says a byte when it is up, and reads until it is killed. */
static void victim(int in, int out, bool opens)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct skein_stream *stream;
	struct skein_ctx *ctx;
	char buf[4096];
	size_t n;

	if (read(in, buf, 1) != 1 || skein_ctx_open(&attr, &ctx))
		_exit(1);
	if (opens)
		victim_opens(ctx, in, &stream);
	else
		victim_accepts(ctx, out, &stream);
	if (skein_stream_write(stream, "x", 1, LONG, &n))
		_exit(1);
	while (!skein_stream_read(stream, buf, sizeof(buf), LONG, &n))
		;
	_exit(0);
}

static void victim_start(struct victim *v, bool opens)
{
	int in[2], out[2];

	if (pipe(in) || pipe(out))
		exit(1);
	v->pid = fork();
	if (!v->pid) {
		close(in[1]); /* so that it ends with this process */
		victim(in[0], out[1], opens);
	}
	close(in[0]);
	close(out[1]);
	v->in = in[1];
	v->out = out[0];
}

static struct skein_stream *meet(struct skein_ctx *ctx, struct victim *v,
				 bool opens)
{
	struct skein_stream_listener *streams;
	struct skein_listener *listener;
	struct skein_stream *stream;
	char line[64] = "";

	assert_int_equal(write(v->in, "g", 1), 1);
	if (!opens) {
		assert_int_equal(read(v->out, line, sizeof(line)),
				 sizeof(line));
		assert_int_equal(skein_stream_open(ctx, line, NULL, &stream),
				 0);
		return stream;
	}
	assert_int_equal(
		skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener), 0);
	assert_int_equal(skein_stream_listen(ctx, NULL, &streams), 0);
	snprintf(line, sizeof(line), "%s", skein_listener_addr(listener));
	assert_int_equal(write(v->in, line, sizeof(line)), sizeof(line));
	assert_int_equal(skein_stream_accept(streams, LONG, &stream), 0);
	return stream;
}

static int commit(struct skein_stream *stream)
{
	size_t room;
	void *buf;
	int rc;

	do {
		rc = skein_stream_reserve(stream, LONG, &buf, &room);
		if (rc == 0) {
			memset(buf, 1, 1);
			rc = skein_stream_commit(stream, 1);
		}
	} while (rc == 0);
	return rc;
}

/* Until it hears of the end. */
static int act(struct skein_ctx *ctx, struct skein_stream *stream,
	       enum deed deed)
{
	char buf[64];
	size_t n;
	int rc;

	if (deed == COMMITS)
		return commit(stream);
	do {
		if (deed == WRITES)
			rc = skein_stream_write(stream, "word", 4, LONG, &n);
		else
			rc = skein_stream_read(stream, buf, sizeof(buf),
					       deed == POLLS ? 0 : LONG, &n);
		if (rc == -EAGAIN && deed == POLLS) {
			rc = skein_stream_write(stream, "word", 4, 0, &n);
			skein_ctx_progress(ctx);
		}
		if (rc == -EAGAIN && deed == POLLS)
			rc = 0;
	} while (rc == 0);
	return rc;
}

static void test_dead(struct victim *v, bool opens, enum deed deed)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct skein_stream *stream;
	struct skein_ctx *ctx;
	char c;
	size_t n;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	stream = meet(ctx, v, opens);
	assert_int_equal(skein_stream_read(stream, &c, 1, LONG, &n), 0);
	assert_int_equal(kill(v->pid, SIGKILL), 0);
	assert_int_equal(act(ctx, stream, deed), -SKEIN_EDEAD);
	assert_int_equal(skein_stream_read(stream, &c, 1, 0, &n), -SKEIN_EDEAD);
	assert_int_equal(skein_stream_write(stream, &c, 1, 0, &n),
			 -SKEIN_EDEAD);
	assert_int_equal(skein_stream_close(stream, SKEIN_S(1)), -SKEIN_EDEAD);
	skein_ctx_close(ctx);
	assert_int_equal(waitpid(v->pid, NULL, 0), v->pid);
	close(v->in);
	close(v->out);
}

static void test_deaths(void **state)
{
	(void)state;
	for (int opens = 0; opens < 2; opens++)
		for (int deed = 0; deed < DEEDS; deed++)
			for (int i = 0; i < TIMES; i++)
				test_dead(&victims[opens][deed][i], opens,
					  (enum deed)deed);
}

/* --- killed while a ring grows -------------------------------------------- */

#define STREAMS 4
#define GROWTHS 4

static struct victim growers[GROWTHS];

static char byte_at(int stream, size_t at)
{
	return (char)(stream * 37 + (at * 13 >> 2));
}

/* Opens streams, each with its number as the first byte, and fills them. */
static void grower(int in)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct skein_stream *streams[STREAMS];
	size_t at[STREAMS] = {0}, n, k;
	struct skein_ctx *ctx;
	char line[64], buf[3000];

	if (read(in, line, sizeof(line)) != sizeof(line) ||
	    skein_ctx_open(&attr, &ctx))
		_exit(1);
	for (int i = 0; i < STREAMS; i++) {
		char c = (char)i;

		if (skein_stream_open(ctx, line, NULL, &streams[i]) ||
		    skein_stream_write(streams[i], &c, 1, LONG, &n))
			_exit(1);
	}
	for (int i = 0, rc = 0; !rc || rc == -EAGAIN; i = (i + 1) % STREAMS) {
		for (k = 0; k < sizeof(buf); k++)
			buf[k] = byte_at(i, at[i] + k);
		rc = skein_stream_write(streams[i], buf, sizeof(buf), 0, &n);
		at[i] += rc ? 0 : n;
		skein_ctx_progress(ctx);
	}
	_exit(0);
}

static void grower_start(struct victim *v)
{
	int in[2];

	if (pipe(in))
		exit(1);
	v->pid = fork();
	if (!v->pid) {
		close(in[1]);
		grower(in[0]);
	}
	close(in[0]);
	v->in = in[1];
}

/* What one end of a stream has read. */
struct reading {
	struct skein_stream *stream;
	int number;
	size_t at;
};

static int read_some(struct reading *r, uint64_t timeout_ns)
{
	char buf[4096];
	size_t n = 0, k;
	int rc;

	rc = skein_stream_read(r->stream, buf, sizeof(buf), timeout_ns, &n);
	for (k = 0; k < n; k++)
		if (buf[k] != byte_at(r->number, r->at + k))
			fail_msg("stream %d, byte %zu", r->number, r->at + k);
	r->at += n;
	assert_true(rc || n); /* it has not ended writing */
	return rc;
}

/* The ring of r, which nobody reads, has grown so many times, and is about to
 * once more. */
static void grow_until(struct skein_ctx *ctx, struct reading *r, int growths)
{
	while (r->stream->s->grow.granted < 2 * STREAM_RING_FIRST << growths)
		skein_ctx_progress(ctx);
}

static void meet_grower(struct skein_ctx *ctx, struct victim *v,
			struct reading *r)
{
	struct skein_stream_listener *streams;
	struct skein_listener *listener;
	char line[64] = "", c;
	size_t n;

	assert_int_equal(
		skein_listener_open(ctx, "127.0.0.1:0", NULL, &listener), 0);
	assert_int_equal(skein_stream_listen(ctx, NULL, &streams), 0);
	snprintf(line, sizeof(line), "%s", skein_listener_addr(listener));
	assert_int_equal(write(v->in, line, sizeof(line)), sizeof(line));
	for (int i = 0; i < STREAMS; i++) {
		struct skein_stream *stream;

		assert_int_equal(skein_stream_accept(streams, LONG, &stream),
				 0);
		assert_int_equal(skein_stream_read(stream, &c, 1, LONG, &n), 0);
		assert_in_range(c, 0, STREAMS - 1);
		r[i] = (struct reading){stream, c, 0};
	}
}

static void test_grower(struct victim *v, int growths)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	struct reading r[STREAMS];
	struct skein_ctx *ctx;
	size_t n;
	int rc;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	meet_grower(ctx, v, r);
	grow_until(ctx, &r[growths % STREAMS], growths);
	assert_int_equal(kill(v->pid, SIGKILL), 0);
	for (int i = 0; i < STREAMS; i++) {
		while (!(rc = read_some(&r[i], LONG)))
			;
		assert_int_equal(rc, -SKEIN_EDEAD);
		rc = skein_stream_write(r[i].stream, "x", 1, LONG, &n);
		assert_int_equal(rc, -SKEIN_EDEAD);
	}
	for (int i = 0; i < STREAMS; i++)
		assert_int_equal(skein_stream_close(r[i].stream, SKEIN_S(1)),
				 -SKEIN_EDEAD);
	skein_ctx_close(ctx);
	assert_int_equal(waitpid(v->pid, NULL, 0), v->pid);
	close(v->in);
}

static void test_growths(void **state)
{
	(void)state;
	for (int i = 0; i < GROWTHS; i++)
		test_grower(&growers[i], i);
}

/* Before this process has threads. */
static void children_start(void)
{
	for (int opens = 0; opens < 2; opens++)
		for (int deed = 0; deed < DEEDS; deed++)
			for (int i = 0; i < TIMES; i++)
				victim_start(&victims[opens][deed][i], opens);
	for (int i = 0; i < GROWTHS; i++)
		grower_start(&growers[i]);
	for (int end = 0; end < ENDS; end++) {
		int fds[2];

		if (pipe(fds))
			exit(1);
		children[end].addr = fds[0];
		children[end].pid = fork();
		if (!children[end].pid)
			writer(fds[1], (enum end)end);
		close(fds[1]);
	}
}

static void test_gone(struct child *child, int status_wanted)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device()};
	/* It holds all that is written, though no round is run here. */
	struct skein_stream_attr large = {.size = sizeof(large), .ring = 65536};
	struct skein_stream *stream;
	struct skein_ctx *ctx;
	char line[64], buf[4096], right[4096];
	size_t n, sum = 0;
	int rc, status;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	assert_int_equal(read(child->addr, line, sizeof(line)), sizeof(line));
	assert_int_equal(skein_stream_open(ctx, line, &large, &stream), 0);
	/* It is gone before the first byte is read. */
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	assert_int_equal(status, status_wanted);
	while (!(rc = skein_stream_read(stream, buf, sizeof(buf), LONG, &n))) {
		assert_true(n > 0); /* it has not ended writing */
		byte_of(right, sum, n);
		assert_memory_equal(buf, right, n);
		sum += n;
	}
	assert_int_equal(rc, -SKEIN_EDEAD);
	if (!getenv("SKEIN_SOFT_HARSH"))
		assert_int_equal(sum, BYTES);
	rc = skein_stream_write(stream, "x", 1, LONG, &n);
	assert_int_equal(rc, -SKEIN_EDEAD);
	rc = skein_stream_close(stream, SKEIN_S(1));
	assert_int_equal(rc, -SKEIN_EDEAD);
	skein_ctx_close(ctx);
	close(child->addr);
}

static void test_exit(void **state)
{
	(void)state;
	test_gone(&children[EXIT], 0);
}

static void test_kill(void **state)
{
	(void)state;
	test_gone(&children[KILL], SIGKILL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_deaths),
		cmocka_unit_test(test_growths),
	};

	children_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
