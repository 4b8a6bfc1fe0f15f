/* SPDX-License-Identifier: MIT */
/*
 * test_kill.c - two processes with a stream. The writer exits without a close,
 * or is killed: what it had written is read all the same, then the stream is
 * over. (In harsh mode a device may be busy with it still: a part is read.)
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit/cm.h"
#include "unit/device.h"
#include <skein/skein.h>

#define LONG SKEIN_S(60)
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

/* Before this process has threads. */
static void children_start(void)
{
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
	struct skein_stream *stream;
	struct skein_ctx *ctx;
	char line[64], buf[4096], right[4096];
	size_t n, sum = 0;
	int rc, status;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	assert_int_equal(read(child->addr, line, sizeof(line)), sizeof(line));
	assert_int_equal(skein_stream_open(ctx, line, NULL, &stream), 0);
	/* It is gone before the first byte is read. */
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	assert_int_equal(status, status_wanted);
	while (!(rc = skein_stream_read(stream, buf, sizeof(buf), LONG, &n))) {
		assert_true(n > 0); /* it has not ended writing */
		byte_of(right, sum, n);
		assert_memory_equal(buf, right, n);
		sum += n;
	}
	assert_true(rc == -ECONNRESET || rc == -SKEIN_EDEAD);
	if (!getenv("SKEIN_SOFT_HARSH"))
		assert_int_equal(sum, BYTES);
	rc = skein_stream_write(stream, "x", 1, LONG, &n);
	assert_true(rc == -ECONNRESET || rc == -SKEIN_EDEAD);
	rc = skein_stream_close(stream, SKEIN_S(1));
	assert_true(rc == -ECONNRESET || rc == -SKEIN_EDEAD);
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
	};

	children_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
