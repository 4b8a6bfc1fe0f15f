/* SPDX-License-Identifier: MIT */
/*
 * test_peers.c - two processes: a peer that is killed, one that is stopped,
 * one that forks.
 */
#include "unit/cm.h"
#include "unit/device.h"
#include "unit/patience.h"

#include "conn/state.h"

#include <errno.h>
#include <signal.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOPPED 4

static struct skein_ctx *open_ctx(bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .background = background};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

/* A child that listens, shares a region, and runs until it is killed; its
 * address comes over the pipe. */
static void serve(int fd)
{
	struct skein_ctx *ctx = open_ctx(false);
	struct skein_listener *l;
	struct skein_mem *mem;
	const char *addr;

	if (skein_listener_open(ctx, "127.0.0.1:0", NULL, &l) ||
	    skein_mem_new(ctx, 4096, &mem) ||
	    skein_mem_share(mem, "m", SKEIN_MEM_READ | SKEIN_MEM_WRITE))
		_exit(1);
	addr = skein_listener_addr(l);
	if (write(fd, addr, strlen(addr) + 1) < 0)
		_exit(1);
	skein_engine_run(skein_ctx_engine(ctx), SKEIN_FOREVER);
	_exit(0);
}

static pid_t spawn_server(char *addr, size_t len)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		serve(fds[1]);
	}
	close(fds[1]);
	assert_true(read(fds[0], addr, len) > 0);
	close(fds[0]);
	return pid;
}

static bool is_broken(void *arg)
{
	return skein_conn_get_state(arg) == SKEIN_CONN_BROKEN;
}

/* For what must happen: a loaded machine takes its time. How soon it does on
 * one that is not is printed. */
#define PATIENCE_NS patience_ns(20)

/* Runs the engine for so long, or until the connection breaks. */
static bool breaks_within(struct skein_conn *conn, uint64_t ns)
{
	struct skein_env *env = conn->ctx->env;

	return engine_run_until(conn->eng->e, is_broken, conn,
				env_now_ns(env) + ns) == 0;
}

static void breaks(struct skein_conn *conn)
{
	struct skein_env *env = conn->ctx->env;
	uint64_t begun = env_now_ns(env);

	assert_true(breaks_within(conn, PATIENCE_NS));
	print_message("noticed after %.1f ms\n",
		      (double)(env_now_ns(env) - begun) / 1e6);
}

static void reap(pid_t pid, int sig)
{
	kill(pid, sig);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Nothing is under way: the death is noticed all the same, and a new peer on
 * a new connection works at once. */
static void test_killed(void **state)
{
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	const char *text;
	char addr[80];
	pid_t pid;

	for (int i = 0; i < 3; i++) {
		pid = spawn_server(addr, sizeof(addr));
		ctx = open_ctx(false);
		assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
		assert_false(breaks_within(conn, SKEIN_MS(50)));
		kill(pid, SIGKILL);
		breaks(conn);
		assert_int_equal(skein_conn_error(conn, &text), -SKEIN_EDEAD);
		assert_non_null(strstr(text, "process has ended"));
		assert_true(atomic_load(&ctx->counts.deaths) >= 1);
		reap(pid, SIGKILL);
		skein_conn_close(conn, SKEIN_S(1));
		pid = spawn_server(addr, sizeof(addr));
		assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
		reap(pid, SIGKILL);
		skein_ctx_close(ctx);
	}
}

struct watch {
	atomic_int ready, broken;
};

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct watch *w = arg;

	if (state == SKEIN_CONN_READY)
		atomic_fetch_add(&w->ready, 1);
	else if (state == SKEIN_CONN_BROKEN)
		atomic_fetch_add(&w->broken, 1);
}

static bool is_ready(void *arg)
{
	return atomic_load(&((struct watch *)arg)->ready);
}

static bool has_broken(void *arg)
{
	return atomic_load(&((struct watch *)arg)->broken);
}

/* The other way round: the client is killed. */
static void test_client_killed(void **state)
{
	struct watch w = {0};
	struct skein_listener_attr attr = {
		.size = sizeof(attr), .on_conn = on_conn, .arg = &w};
	struct skein_listener *l;
	struct skein_ctx *ctx;
	char addr[80] = "";
	struct engine *e;
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct skein_conn *conn;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ctx = open_ctx(true);
		if (read(fds[0], addr, sizeof(addr)) <= 0 ||
		    skein_conn_open(ctx, addr, NULL, &conn))
			_exit(1);
		pause();
		_exit(0);
	}
	ctx = open_ctx(false);
	assert_int_equal(skein_listener_open(ctx, "127.0.0.1:0", &attr, &l), 0);
	assert_true(write(fds[1], skein_listener_addr(l),
			  strlen(skein_listener_addr(l)) + 1) > 0);
	e = skein_ctx_engine(ctx)->e;
	assert_int_equal(engine_run_until(e, is_ready, &w,
					  env_now_ns(ctx->env) + PATIENCE_NS),
			 0);
	kill(pid, SIGKILL);
	assert_int_equal(engine_run_until(e, has_broken, &w,
					  env_now_ns(ctx->env) + PATIENCE_NS),
			 0);
	reap(pid, SIGKILL);
	close(fds[0]);
	close(fds[1]);
	skein_ctx_close(ctx);
}

static void stop(pid_t pid)
{
	int status;

	kill(pid, SIGSTOP);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

static double close_of_stopped(void)
{
	struct timespec from, to;
	struct skein_conn *conn;
	char addr[STOPPED][80];
	struct skein_ctx *ctx;
	pid_t pid[STOPPED];

	ctx = open_ctx(false);
	for (int i = 0; i < STOPPED; i++) {
		pid[i] = spawn_server(addr[i], sizeof(addr[i]));
		assert_int_equal(skein_conn_open(ctx, addr[i], NULL, &conn), 0);
	}
	for (int i = 0; i < STOPPED; i++)
		stop(pid[i]);
	clock_gettime(CLOCK_MONOTONIC, &from);
	skein_ctx_close(ctx);
	clock_gettime(CLOCK_MONOTONIC, &to);
	for (int i = 0; i < STOPPED; i++)
		reap(pid[i], SIGKILL);
	return (double)(to.tv_sec - from.tv_sec) * 1e9 +
	       (double)(to.tv_nsec - from.tv_nsec);
}

/* A context waits for all peers that say nothing at the same time. The best of
 * several tries counts: the machine may be slow at times, but waits one after
 * another would show in each. */
static void test_ctx_close_of_stopped(void **state)
{
	const double one_by_one = (STOPPED - 1) * (double)CONN_BYE_NS;
	double ns = one_by_one;

	for (int i = 0; i < 5 && ns >= one_by_one; i++) {
		ns = close_of_stopped();
		assert_true(ns > CONN_BYE_NS);
	}
	assert_true(ns < one_by_one);
}

struct probed {
	struct skein_conn *conn;
	uint64_t after_ns;
};

static bool is_probed(void *arg)
{
	struct probed *p = arg;

	return is_broken(p->conn) || p->conn->peer->rx_ns > p->after_ns;
}

/* A peer that is stopped for 3 s is slow, not dead: one-sided operations on
 * its memory go through meanwhile, and it is there when it comes back. */
static void test_stopped(void **state)
{
	struct skein_remote r = {.size = sizeof(r)};
	struct skein_mem *mem;
	struct skein_ctx *ctx;
	struct skein_conn *conn, *second;
	struct probed p;
	char addr[80];
	pid_t pid;

	pid = spawn_server(addr, sizeof(addr));
	ctx = open_ctx(false);
	assert_int_equal(skein_mem_new(ctx, 64, &mem), 0);
	assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
	assert_int_equal(skein_mem_find(conn, "m", PATIENCE_NS, &r), 0);
	/* soft maps a region at its first use, with its owner's help. */
	assert_int_equal(skein_mem_read(conn, mem, 8, &r, 8, 8, PATIENCE_NS),
			 0);
	stop(pid);
	p = (struct probed){conn, env_now_ns(ctx->env) + SKEIN_S(1)};
	assert_false(breaks_within(conn, SKEIN_S(3)));
	/* Where the device itself does not know, it is asked, and answers. */
	if (conn->eng->dev->ops->probe(conn->eng->dev, conn->qp))
		assert_int_equal(engine_run_until(conn->eng->e, is_probed, &p,
						  p.after_ns + PATIENCE_NS),
				 0);
	assert_false(is_broken(conn));
	*(uint64_t *)skein_mem_addr(mem) = 42;
	assert_int_equal(skein_mem_write(conn, mem, 0, &r, 8, 8, PATIENCE_NS),
			 0);
	assert_int_equal(skein_mem_read(conn, mem, 8, &r, 8, 8, PATIENCE_NS),
			 0);
	assert_int_equal(((uint64_t *)skein_mem_addr(mem))[1], 42);
	kill(pid, SIGCONT);
	assert_false(breaks_within(conn, SKEIN_MS(100)));
	assert_int_equal(skein_conn_open(ctx, addr, NULL, &second), 0);
	reap(pid, SIGKILL);
	skein_ctx_close(ctx);
}

/* A stopped peer that dies. */
static void test_stopped_then_killed(void **state)
{
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	char addr[80];
	pid_t pid;

	pid = spawn_server(addr, sizeof(addr));
	ctx = open_ctx(false);
	assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
	stop(pid);
	assert_false(breaks_within(conn, SKEIN_MS(100)));
	kill(pid, SIGKILL);
	breaks(conn);
	reap(pid, SIGKILL);
	skein_ctx_close(ctx);
}

static void on_done(void *arg, int status)
{
	*(int *)arg = status;
}

/* The regions of a process that ends may go before its sockets: who is denied
 * access hears of the death all the same, where the device cannot tell. */
static void test_denied_by_the_dying(void **state)
{
	struct skein_remote r = {.size = sizeof(r)};
	struct skein_mem *mem;
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	int status = 1;
	char addr[80];
	bool doubt;
	pid_t pid;

	pid = spawn_server(addr, sizeof(addr));
	ctx = open_ctx(false);
	assert_int_equal(skein_mem_new(ctx, 64, &mem), 0);
	assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
	assert_int_equal(skein_mem_find(conn, "m", PATIENCE_NS, &r), 0);
	stop(pid); /* it says nothing of what it thinks of this: */
	r.rkey ^= 0x00ffff00;
	assert_int_equal(skein_mem_read_async(conn, mem, 0, &r, 0, 8, on_done,
					      &status),
			 0);
	while (status == 1)
		skein_ctx_progress(ctx);
	assert_int_equal(status, -EACCES);
	doubt = conn->suspected;
	if (!doubt) /* it has asked, and knows */
		assert_int_equal(conn->err, -EACCES);
	if (doubt) /* however long this takes */
		conn->deadline_ns = ENV_NEVER;
	reap(pid, SIGKILL);
	breaks(conn);
	assert_int_equal(skein_conn_error(conn, NULL),
			 doubt ? -SKEIN_EDEAD : -EACCES);
	skein_ctx_close(ctx);
}

/* A forked child has no context; its parent goes on. */
static void test_forked(void **state)
{
	struct skein_remote r = {.size = sizeof(r)};
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	struct skein_mem *mem;
	char addr[80];
	int status;
	pid_t server, pid;

	server = spawn_server(addr, sizeof(addr));
	ctx = open_ctx(false);
	assert_int_equal(skein_mem_new(ctx, 64, &mem), 0);
	assert_int_equal(skein_conn_open(ctx, addr, NULL, &conn), 0);
	assert_int_equal(skein_mem_find(conn, "m", PATIENCE_NS, &r), 0);
	pid = fork();
	if (!pid) {
		struct skein_conn *c;
		struct skein_mem *m;

		if (skein_conn_open(ctx, addr, NULL, &c) != -SKEIN_EFORKED ||
		    skein_mem_new(ctx, 64, &m) != -SKEIN_EFORKED)
			_exit(1);
		if (skein_conn_get_state(conn) != SKEIN_CONN_BROKEN ||
		    skein_conn_error(conn, NULL) != -SKEIN_EFORKED ||
		    skein_mem_read(conn, mem, 0, &r, 0, 8, PATIENCE_NS) !=
			    -SKEIN_EFORKED ||
		    skein_engine_run(skein_ctx_engine(ctx), SKEIN_MS(1)) !=
			    -SKEIN_EFORKED ||
		    skein_ctx_progress(ctx))
			_exit(2);
		skein_conn_close(conn, SKEIN_S(1));
		skein_ctx_close(ctx);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(skein_mem_find(conn, "m", PATIENCE_NS, &r), 0);
	assert_int_equal(skein_mem_read(conn, mem, 0, &r, 0, 64, PATIENCE_NS),
			 0);
	reap(server, SIGKILL);
	skein_ctx_close(ctx);
}

static void on_accepted(void *arg, struct skein_conn *conn,
			enum skein_conn_state state)
{
	*(enum skein_conn_state *)arg = state;
}

/* A link whose accepting end has no connection left, and waits for it to be
 * hung up, gets another one: it stays. */
static void test_link_used_again(void **state)
{
	enum skein_conn_state accepted = SKEIN_CONN_CONNECTING;
	struct skein_listener_attr attr = {
		.size = sizeof(attr), .on_conn = on_accepted, .arg = &accepted};
	struct skein_ctx *server = open_ctx(false), *client = open_ctx(false);
	struct skein_conn *first, *second;
	struct skein_listener *l;
	struct conn_peer *link;
	uint64_t end;

	assert_int_equal(skein_listener_open(server, "127.0.0.1:0", &attr, &l),
			 0);
	assert_int_equal(skein_conn_open_async(client, skein_listener_addr(l),
					       NULL, &first),
			 0);
	while (accepted != SKEIN_CONN_READY ||
	       skein_conn_get_state(first) != SKEIN_CONN_READY) {
		skein_ctx_progress(client);
		skein_ctx_progress(server);
	}
	link = first->peer;
	skein_conn_close(first, 0);
	while (accepted == SKEIN_CONN_READY) {
		skein_ctx_progress(client);
		skein_ctx_progress(server);
	}
	/* The client has not heard yet that the first one is gone. */
	assert_int_equal(skein_conn_open_async(client, skein_listener_addr(l),
					       NULL, &second),
			 0);
	while (skein_conn_get_state(second) != SKEIN_CONN_READY) {
		skein_ctx_progress(client);
		skein_ctx_progress(server);
	}
	assert_ptr_equal(second->peer, link);
	end = env_now_ns(client->env) + PEER_LINGER_NS + SKEIN_MS(300);
	while (env_now_ns(client->env) < end) {
		skein_ctx_progress(client);
		skein_ctx_progress(server);
		assert_int_equal(skein_conn_get_state(second),
				 SKEIN_CONN_READY);
	}
	skein_ctx_close(client);
	skein_ctx_close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_client_killed),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_ctx_close_of_stopped),
		cmocka_unit_test(test_stopped_then_killed),
		cmocka_unit_test(test_denied_by_the_dying),
		cmocka_unit_test(test_forked),
		cmocka_unit_test(test_link_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
