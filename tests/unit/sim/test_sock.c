/* SPDX-License-Identifier: MIT */
/*
 * Sockets between simulated processes: order, windows, ends, refusals.
 */
#include "cm_sim.h"

#include <sys/epoll.h>

#define BYTES 3000000u

struct end {
	struct two *t;
	struct skein_env *env;
	struct env_waiter *w;
	uint64_t bytes;
	bool done;
	int rc;
};

static void await(struct end *x, int fd, uint32_t events)
{
	int rc;

	assert_int_equal(env_waiter_watch(x->env, x->w, fd, events), 0);
	env_waiter_arm(x->env, x->w);
	rc = env_waiter_sleep(x->env, x->w, env_now_ns(x->env) + 1000000000);
	assert_int_equal(rc, 1);
	env_waiter_unwatch(x->env, x->w, fd);
}

static void serve(void *arg)
{
	struct end *x = arg;
	struct sockaddr_storage addr, from;
	unsigned char buf[7000];
	int n, fd, conn;
	ssize_t got;

	env_waiter_new(x->env, ENV_WAIT_EVENT, &x->w);
	env_resolve(x->env, NULL, "7000", true, &addr, 1, &n);
	assert_int_equal(env_sock_listen(x->env, &addr, 4, &fd), 0);
	await(x, fd, EPOLLIN);
	assert_int_equal(env_sock_accept(x->env, fd, &from, &conn), 0);
	assert_int_equal(env_sock_accept(x->env, fd, &from, &n), -EAGAIN);
	for (;;) {
		got = env_sock_recv(x->env, conn, buf, sizeof(buf));
		if (got == -EAGAIN) {
			await(x, conn, EPOLLIN);
			continue;
		}
		assert_true(got >= 0);
		if (!got)
			break;
		for (ssize_t i = 0; i < got; i++, x->bytes++)
			assert_int_equal(buf[i], (unsigned char)(x->bytes * 7));
	}
	env_sock_close(x->env, conn);
	env_sock_close(x->env, fd);
	env_waiter_free(x->env, x->w);
	x->done = true;
}

static int dial(struct end *x, const char *host, int *fd)
{
	struct sockaddr_storage addr;
	int n, rc;

	rc = env_resolve(x->env, host, "7000", false, &addr, 1, &n);
	if (rc)
		return rc;
	rc = env_sock_connect(x->env, &addr, fd);
	if (rc)
		return rc;
	await(x, *fd, EPOLLOUT);
	return env_sock_error(x->env, *fd);
}

static void client(void *arg)
{
	struct end *x = arg;
	unsigned char buf[5000];
	ssize_t sent;
	int fd;

	sim_sleep(x->t->w, 100000);
	env_waiter_new(x->env, ENV_WAIT_EVENT, &x->w);
	assert_int_equal(dial(x, "n2", &fd), 0);
	while (x->bytes < BYTES) {
		for (size_t i = 0; i < sizeof(buf); i++)
			buf[i] = (unsigned char)((x->bytes + i) * 7);
		sent = env_sock_send(x->env, fd, buf, sizeof(buf));
		if (sent == -EAGAIN) {
			await(x, fd, EPOLLOUT);
			continue;
		}
		assert_true(sent > 0);
		x->bytes += (uint64_t)sent;
	}
	env_sock_close(x->env, fd);
	env_waiter_free(x->env, x->w);
	x->done = true;
}

static void test_stream(void **state)
{
	struct end x[2] = {0};
	struct two t;

	two_up(&t, 1, 1);
	for (int i = 0; i < 2; i++) {
		x[i].t = &t;
		x[i].env = t.env[i];
	}
	sim_spawn(t.proc[0], "client", client, &x[0]);
	sim_spawn(t.proc[1], "server", serve, &x[1]);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	assert_true(x[0].done && x[1].done);
	assert_int_equal(x[0].bytes, x[1].bytes);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sim_proc_fds(t.proc[i]), 0);
		assert_int_equal(sim_proc_bytes(t.proc[i]), 0);
	}
	two_down(&t);
}

static void refused(void *arg)
{
	struct end *x = arg;
	int fd = -1;

	env_waiter_new(x->env, ENV_WAIT_EVENT, &x->w);
	assert_int_equal(dial(x, "nobody", &fd), -EADDRNOTAVAIL);
	assert_int_equal(dial(x, "10.0.0.9", &fd), -EHOSTUNREACH);
	x->rc = dial(x, "n2", &fd);
	env_sock_close(x->env, fd);
	env_waiter_free(x->env, x->w);
}

static void test_refused(void **state)
{
	struct end x = {0};
	struct two t;

	two_up(&t, 1, 1);
	x.t = &t;
	x.env = t.env[0];
	sim_spawn(t.proc[0], "client", refused, &x);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	assert_int_equal(x.rc, -ECONNREFUSED);
	two_down(&t);
}

/* The server is killed in the middle: the client is told, at both ends of its
 * pipe. */
static void told(void *arg)
{
	struct end *x = arg;
	char buf[4096] = {0};
	ssize_t sent;
	int fd;

	sim_sleep(x->t->w, 100000);
	env_waiter_new(x->env, ENV_WAIT_EVENT, &x->w);
	assert_int_equal(dial(x, "n2", &fd), 0);
	await(x, fd, EPOLLIN);
	assert_int_equal(env_sock_recv(x->env, fd, buf, sizeof(buf)), 0);
	sent = env_sock_send(x->env, fd, buf, sizeof(buf));
	assert_int_equal(sent, -EPIPE);
	env_sock_close(x->env, fd);
	env_waiter_free(x->env, x->w);
	x->done = true;
}

static void test_kill(void **state)
{
	struct end x[2] = {0};
	struct two t;

	two_up(&t, 1, 1);
	for (int i = 0; i < 2; i++) {
		x[i].t = &t;
		x[i].env = t.env[i];
	}
	sim_spawn(t.proc[0], "client", told, &x[0]);
	sim_spawn(t.proc[1], "server", serve, &x[1]);
	assert_int_equal(sim_run(t.w, 50000000), SIM_END_TIME);
	assert_false(x[0].done);
	sim_proc_kill(t.proc[1]);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	assert_true(x[0].done);
	two_down(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
