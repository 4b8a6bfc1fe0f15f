/* SPDX-License-Identifier: MIT */
/*
 * test_wake.c - what a call costs when both ends sleep: each end sleeps once,
 * takes its wake-up, and wakes the other end. Three system calls, no more.
 */
#include "unit/cm.h"

#include "env/env.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CALLS 300u
#define BEAT_NS 5000000u

static atomic_uint made; /* system calls of engines */
static pthread_t caller;
static atomic_bool asleep[2]; /* the server's engine; the caller */
static atomic_bool waits;     /* each end, for the other to be asleep */

int epoll_pwait2(int fd, struct epoll_event *evs, int n,
		 const struct timespec *left, const sigset_t *set)
{
	atomic_bool *own = &asleep[pthread_equal(pthread_self(), caller) != 0];
	int rc;

	atomic_fetch_add(&made, 1);
	atomic_store(own, true);
	rc = (int)syscall(SYS_epoll_pwait2, fd, evs, n, left, set, 8);
	atomic_store(own, false);
	return rc;
}

static void await(atomic_bool *other)
{
	while (atomic_load(&waits) && !atomic_load(other))
		sched_yield();
}

int epoll_wait(int fd, struct epoll_event *evs, int n, int ms)
{
	/* the device's thread asks for one */
	atomic_fetch_add(&made, n > 1);
	return (int)syscall(SYS_epoll_wait, fd, evs, n, ms);
}

/* The device's thread sleeps in it. */
int poll(struct pollfd *p, nfds_t n, int ms)
{
	atomic_fetch_add(&made, ms == 0);
	return (int)syscall(SYS_poll, p, n, ms);
}

ssize_t read(int fd, void *buf, size_t len)
{
	atomic_fetch_add(&made, 1);
	return syscall(SYS_read, fd, buf, len);
}

ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t off, int flags)
{
	atomic_fetch_add(&made, 1);
	return syscall(SYS_preadv2, fd, iov, n, off, off >> 32, flags);
}

ssize_t write(int fd, const void *buf, size_t len)
{
	atomic_fetch_add(&made, 1);
	return syscall(SYS_write, fd, buf, len);
}

static struct skein_ctx *ctx_new(bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = "soft",
				      .wait = SKEIN_WAIT_EVENT,
				      .background = background};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	await(&asleep[1]);
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static void calls(struct skein_conn *conn, unsigned n)
{
	char req[64] = "", resp[64];

	while (n--) {
		await(&asleep[0]);
		assert_int_equal(skein_rpc_call(conn, 1, req, sizeof(req), resp,
						sizeof(resp), SKEIN_S(60),
						NULL),
				 0);
	}
}

/* The clock's beats, a few system calls each, come on top. */
static unsigned most(uint64_t ns)
{
	return 2 * 3 * CALLS + 2 * 4 * (unsigned)(ns / BEAT_NS + 2);
}

static void test_three_calls_each(void **state)
{
	struct skein_ctx *server, *client;
	struct skein_listener_attr l = {.size = sizeof(l)};
	struct skein_conn_attr c = {.size = sizeof(c)};
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct skein_env *env;
	uint64_t begun;
	unsigned n;

	/* Before there is a thread that reads it. */
	caller = pthread_self();
	server = ctx_new(true);
	client = ctx_new(false);
	assert_int_equal(env_real_new(&env), 0);
	assert_int_equal(skein_rpc_handle(server, 1, on_echo, NULL), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", &l, &listener), 0);
	assert_int_equal(skein_conn_open(client, skein_listener_addr(listener),
					 &c, &conn),
			 0);
	calls(conn, 100);
	atomic_store(&waits, true);
	calls(conn, 10);
	begun = env_now_ns(env);
	n = atomic_load(&made);
	calls(conn, CALLS);
	n = atomic_load(&made) - n;
	atomic_store(&waits, false);
	assert_in_range(n, 0, most(env_now_ns(env) - begun));
	skein_ctx_close(client);
	skein_ctx_close(server);
	env_real_free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_three_calls_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
