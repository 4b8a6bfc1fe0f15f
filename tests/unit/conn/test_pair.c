/* SPDX-License-Identifier: MIT */
/*
 * test_pair.c - two contexts in one process: connect, sharing a control link,
 * closing from either side.
 */
#include "unit/conn/pair.h"
#include "unit/nobody.h"
#include "unit/patience.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_uint accepts; /* calls, of whom they may be */

#define PATIENCE patience_ns(20)

typedef int accept4_fn(int fd, struct sockaddr *addr, socklen_t *len,
		       int flags);

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	static _Atomic(accept4_fn *) next;
	accept4_fn *fn = atomic_load(&next);

	if (!fn) {
		/* a sanitizer's, where there is one */
		*(void **)&fn = dlsym(RTLD_NEXT, "accept4");
		atomic_store(&next, fn);
	}
	atomic_fetch_add(&accepts, 1);
	return fn(fd, addr, len, flags);
}

static atomic_uint yields; /* calls */

int sched_yield(void)
{
	atomic_fetch_add(&yields, 1);
	return (int)syscall(SYS_sched_yield);
}

static bool on_soft(void)
{
	return !strcmp(test_device(), "soft");
}

static void test_connect(void **state)
{
	struct skein_conn *conn;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_conn_open(p.client,
					 skein_listener_addr(p.listener), NULL,
					 &conn),
			 0);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
	assert_int_equal(p.ups, 1);
	assert_int_equal(p.ends, 1);
	assert_int_equal(p.last, SKEIN_CONN_CLOSING);
}

/* A listener to whom nobody comes is not asked, whatever its engine does. */
static void test_nobody_comes(void **state)
{
	struct skein_conn *first;
	struct pair p;

	pair_open(&p, NULL, NULL);
	first = connect_to(&p);
	wait_ups(&p, 1);
	assert_true(accepts > 0);
	accepts = 0;
	/* by the link of the first */
	for (int i = 0; i < 20; i++)
		skein_conn_close(connect_to(&p), SKEIN_S(1));
	assert_int_equal(accepts, 0);
	skein_conn_close(first, SKEIN_S(1));
	/* A new link */
	skein_conn_close(connect_to(&p), SKEIN_S(1));
	assert_true(accepts > 0);
	pair_close(&p);
}

static struct skein_ctx *polling_ctx(void)
{
	struct skein_ctx_attr c = {.size = sizeof(c),
				   .device = test_device(),
				   .wait = SKEIN_WAIT_POLL};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&c, &ctx), 0);
	return ctx;
}

/* A client that polls sleeps while nobody answers its handshake: with hundreds of
 * such clients the server gets the core. */
static void test_handshake_sleeps(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = SKEIN_MS(100)};
	struct sockaddr_storage any = {0};
	char addr[CONN_ADDR_TEXT_MAX];
	struct skein_conn *conn;
	struct skein_ctx *ctx;
	int fd;

	((struct sockaddr_in *)&any)->sin_family = AF_INET;
	((struct sockaddr_in *)&any)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ctx = polling_ctx();
	/* It listens, and accepts nobody. */
	assert_int_equal(env_sock_listen(ctx->env, &any, 1, &fd), 0);
	assert_int_equal(env_sock_name(ctx->env, fd, &any), 0);
	conn_addr_format(&any, addr, sizeof(addr));
	atomic_store(&yields, 0);
	assert_int_equal(skein_conn_open(ctx, addr, &attr, &conn), -ETIMEDOUT);
	assert_true(atomic_load(&yields) < 1000);
	env_sock_close(ctx->env, fd);
	skein_ctx_close(ctx);
}

/* And while nobody answers its CLOSE. */
static void test_bye_sleeps(void **state)
{
	struct skein_ctx *ctx = polling_ctx();
	struct skein_conn *conn;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_conn_open(ctx, skein_listener_addr(p.listener),
					 NULL, &conn),
			 0);
	wait_ups(&p, 1);
	engine_background_stop(p.server->engine->e);
	atomic_store(&yields, 0);
	skein_conn_close(conn, SKEIN_S(1));
	assert_true(atomic_load(&yields) < 1000);
	assert_int_equal(engine_background_start(p.server->engine->e), 0);
	skein_ctx_close(ctx);
	pair_close(&p);
}

static void test_keys(void **state)
{
	static const struct {
		const char *server, *client;
		int rc;
	} cases[] = {
		{"secret", "secret", 0},
		{"secret", "Secret", -SKEIN_EAUTH},
		{"secret", NULL, -SKEIN_EAUTH},
		{NULL, "secret", -SKEIN_EAUTH},
	};
	struct skein_conn *conn, *second;
	struct pair p;

	for (size_t i = 0; i < 4; i++) {
		pair_open(&p, cases[i].server, cases[i].client);
		assert_int_equal(
			skein_conn_open(p.client,
					skein_listener_addr(p.listener), NULL,
					&conn),
			cases[i].rc);
		if (!cases[i].rc) {
			/* it joins a link that is proven */
			second = connect_to(&p);
			wait_ups(&p, 2);
			skein_conn_close(second, SKEIN_S(1));
			skein_conn_close(conn, SKEIN_S(1));
		} else {
			assert_int_equal(p.ups, 0);
		}
		pair_close(&p);
	}
}

static void test_refused(void **state)
{
	struct skein_conn_attr attr = {
		.size = sizeof(attr), .retries = 2, .timeout_ns = PATIENCE};
	struct skein_conn *conn;
	char addr[80];
	struct pair p;

	pair_open(&p, NULL, NULL);
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(p.listener));
	skein_listener_close(p.listener);
	assert_int_equal(skein_conn_open(p.client, addr, &attr, &conn),
			 -ECONNREFUSED);
	assert_int_equal(skein_conn_open(p.client, "nonsense", &attr, &conn),
			 -EINVAL);
	assert_int_equal(skein_conn_open(p.client, "1.2.3.4:0", &attr, &conn),
			 -EINVAL);
	pair_close(&p);
}

/* Two connections, one control link; the first may go first. */
static void test_join(void **state)
{
	struct skein_conn *a, *b, *c;
	struct pair p;

	pair_open(&p, NULL, NULL);
	a = connect_to(&p);
	b = connect_to(&p);
	assert_ptr_equal(a->peer, b->peer);
	assert_int_equal(a->peer->n_conns, 2);
	skein_conn_close(a, SKEIN_S(1));
	c = connect_to(&p);
	assert_ptr_equal(b->peer, c->peer);
	wait_ups(&p, 3);
	skein_conn_close(b, SKEIN_S(1));
	skein_conn_close(c, SKEIN_S(1));
	pair_close(&p);
	assert_int_equal(p.ends, 3);
}

/* Both are opened before the link is there. */
static void test_join_early(void **state)
{
	struct skein_conn *conns[8];
	struct pair p;
	int ready;

	pair_open(&p, "k", "k");
	for (int i = 0; i < 8; i++)
		assert_int_equal(
			skein_conn_open_async(p.client,
					      skein_listener_addr(p.listener),
					      NULL, &conns[i]),
			0);
	do {
		skein_ctx_progress(p.client);
		ready = 0;
		for (int i = 0; i < 8; i++) {
			assert_int_not_equal(skein_conn_get_state(conns[i]),
					     SKEIN_CONN_BROKEN);
			ready += skein_conn_get_state(conns[i]) ==
				 SKEIN_CONN_READY;
		}
	} while (ready < 8);
	for (int i = 0; i < 8; i++)
		assert_ptr_equal(conns[i]->peer, conns[0]->peer);
	/* Left to the context. */
	wait_ups(&p, 8);
	pair_close(&p);
}

/* Those that wait for the first one's handshake hear what it has met. */
static void test_join_refused(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = 2 * PATIENCE};
	struct skein_conn *conns[4];
	uint64_t begun;
	struct pair p;

	pair_open(&p, "right", "wrong");
	begun = env_now_ns(p.client->env);
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			skein_conn_open_async(p.client,
					      skein_listener_addr(p.listener),
					      &attr, &conns[i]),
			0);
	for (int i = 0; i < 4; i++) {
		while (skein_conn_get_state(conns[i]) == SKEIN_CONN_CONNECTING)
			skein_ctx_progress(p.client);
		assert_int_equal(skein_conn_error(conns[i], NULL),
				 -SKEIN_EAUTH);
	}
	/* not by the deadline */
	assert_true(env_now_ns(p.client->env) - begun < PATIENCE);
	pair_close(&p);
}

/* The first one is closed before it is up: the others dial for themselves. */
static void test_join_abandoned(void **state)
{
	struct skein_conn *a, *b;
	const char *addr;
	struct pair p;

	pair_open(&p, NULL, NULL);
	addr = skein_listener_addr(p.listener);
	assert_int_equal(skein_conn_open_async(p.client, addr, NULL, &a), 0);
	assert_int_equal(skein_conn_open_async(p.client, addr, NULL, &b), 0);
	skein_ctx_progress(p.client);
	skein_conn_close(a, 0);
	while (skein_conn_get_state(b) == SKEIN_CONN_CONNECTING)
		skein_ctx_progress(p.client);
	assert_int_equal(skein_conn_get_state(b), SKEIN_CONN_READY);
	skein_conn_close(b, SKEIN_S(1));
	pair_close(&p);
}

static bool is_broken(void *arg)
{
	return skein_conn_get_state(arg) == SKEIN_CONN_BROKEN;
}

/* The listener goes away under a client. */
static void test_server_closes(void **state)
{
	struct skein_conn *conn;
	const char *text;
	struct pair p;

	pair_open(&p, NULL, NULL);
	conn = connect_to(&p);
	wait_ups(&p, 1);
	skein_listener_close(p.listener);
	assert_int_equal(
		engine_run_until(conn->eng->e, is_broken, conn,
				 env_now_ns(conn->ctx->env) + PATIENCE),
		0);
	assert_int_equal(skein_conn_error(conn, &text), -ESHUTDOWN);
	assert_non_null(strstr(text, "lost the connection to 127.0.0.1:"));
	if (on_soft())
		assert_non_null(strstr(text, "on soft (skein0)"));
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
	assert_int_equal(p.ends, 1);
}

struct both {
	struct pair *p;
	struct skein_conn *conn;
};

static void close_listener(void *arg)
{
	struct both *b = arg;

	skein_listener_close(b->p->listener);
}

/* Both ends close at the same time. */
static void test_simultaneous_close(void **state)
{
	struct env_thread *thread;
	struct skein_env *env;
	struct both b;
	struct pair p;

	for (int i = 0; i < 10; i++) {
		pair_open(&p, NULL, NULL);
		b.p = &p;
		b.conn = connect_to(&p);
		wait_ups(&p, 1);
		env = p.server->env;
		assert_int_equal(env_thread_start(env, "closer", close_listener,
						  &b, &thread),
				 0);
		skein_conn_close(b.conn, SKEIN_S(1));
		env_thread_join(env, thread);
		pair_close(&p);
		assert_int_equal(p.ups, 1);
		assert_int_equal(p.ends, 1);
	}
}

/* Each end listens, and dials the other at the same time. */
static void test_simultaneous_open(void **state)
{
	struct skein_conn *ab, *ba;
	struct skein_listener *back;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(
		skein_listener_open(p.client, "127.0.0.1:0", NULL, &back), 0);
	assert_int_equal(skein_conn_open_async(p.client,
					       skein_listener_addr(p.listener),
					       NULL, &ab),
			 0);
	assert_int_equal(skein_conn_open_async(p.server,
					       skein_listener_addr(back), NULL,
					       &ba),
			 0);
	while (skein_conn_get_state(ab) == SKEIN_CONN_CONNECTING ||
	       skein_conn_get_state(ba) == SKEIN_CONN_CONNECTING)
		skein_ctx_progress(p.client);
	assert_int_equal(skein_conn_get_state(ab), SKEIN_CONN_READY);
	assert_int_equal(skein_conn_get_state(ba), SKEIN_CONN_READY);
	skein_conn_close(ab, 0);
	skein_conn_close(ba, 0);
	pair_close(&p);
}

/* A client that is told to, finds the server again after it was away. */
static void test_reconnect(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .reconnect = true};
	struct skein_listener_attr l = {.size = sizeof(l), .on_conn = on_conn};
	struct skein_conn *conn;
	char addr[80];
	struct pair p;

	pair_open(&p, NULL, NULL);
	snprintf(addr, sizeof(addr), "%s", skein_listener_addr(p.listener));
	assert_int_equal(skein_conn_open(p.client, addr, &attr, &conn), 0);
	wait_ups(&p, 1);
	skein_listener_close(p.listener);
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		skein_ctx_progress(p.client);
	l.arg = &p;
	assert_int_equal(skein_listener_open(p.server, addr, &l, &p.listener),
			 0);
	assert_int_equal(skein_conn_wait(conn, PATIENCE), 0);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	wait_ups(&p, 2);
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
}

static void wait_inside(void *arg, struct skein_conn *conn,
			enum skein_conn_state state)
{
	*(int *)arg = state == SKEIN_CONN_READY ? skein_conn_wait(conn, 0) : 1;
}

static void dial_nobody(struct pair *p, struct skein_conn **conn)
{
	char addr[NOBODY_LEN];
	int port = nobody_at(addr);

	assert_true(port >= 0);
	assert_int_equal(skein_conn_open_async(p->client, addr, NULL, conn), 0);
	assert_int_equal(skein_conn_wait(*conn, PATIENCE), -ECONNREFUSED);
	close(port);
}

/* From the start of a connection to its end. */
static void test_wait(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_conn *conn, *none;
	int inside = 1, rc;
	struct pair p;

	pair_open(&p, NULL, NULL);
	attr.on_state = wait_inside;
	attr.arg = &inside;
	assert_int_equal(skein_conn_open_async(p.client,
					       skein_listener_addr(p.listener),
					       &attr, &conn),
			 0);
	/* One round hardly ever brings it. */
	rc = skein_conn_wait(conn, 0);
	if (rc)
		assert_int_equal(rc, -ETIMEDOUT);
	else
		assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	assert_int_equal(skein_conn_wait(conn, SKEIN_S(20)), 0);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	assert_int_equal(skein_conn_wait(conn, 0), 0);
	assert_int_equal(inside, 0);
	wait_ups(&p, 1);
	dial_nobody(&p, &none);
	skein_conn_close(none, 0);
	skein_listener_close(p.listener);
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		skein_ctx_progress(p.client);
	assert_true(skein_conn_wait(conn, SKEIN_FOREVER) < 0);
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
}

/* Shards are served by their engines. */
static void test_shards(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_listener_attr l = {.size = sizeof(l), .on_conn = on_conn};
	struct skein_engine *engines[3];
	struct skein_listener *sharded;
	struct skein_conn *conn;
	struct pair p;

	pair_open(&p, "k", "k");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(skein_engine_new(p.server, SKEIN_WAIT_ADAPTIVE,
						  &engines[i]),
				 0);
		assert_int_equal(engine_background_start(engines[i]->e), 0);
	}
	l.arg = &p;
	l.engines = engines;
	l.engine_count = 3;
	assert_int_equal(
		skein_listener_open(p.server, "127.0.0.1:0", &l, &sharded), 0);
	for (unsigned i = 0; i < 6; i++) {
		attr.shard = i;
		assert_int_equal(skein_conn_open(p.client,
						 skein_listener_addr(sharded),
						 &attr, &conn),
				 0);
		wait_ups(&p, (int)i + 1);
		assert_int_equal(skein_conn_shard(p.accepted), i);
		assert_ptr_equal(p.accepted->eng, engines[i % 3]);
	}
	pair_close(&p);
	assert_int_equal(p.ends, 6);
}

/* Whatever way the same host is written, and whichever port is free. */
static void test_addresses(void **state)
{
	static const struct {
		const char *listen, *host;
	} cases[] = {
		{"[::1]:0", "[::1]"}, {"127.0.0.1:0", "localhost"},
		{"127.0.0.1:0", ""},  {"localhost:0", "localhost"},
		{":0", "127.0.0.1"},
	};
	struct skein_listener *listener;
	struct skein_mem *shared;
	struct skein_remote r = {.size = sizeof(r)};
	struct skein_conn *conn;
	struct pair p;
	char addr[80];
	const char *port;
	uint64_t old;
	int rc;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_mem_new(p.server, 64, &shared), 0);
	assert_int_equal(skein_mem_share(shared, "word", SKEIN_MEM_ATOMIC), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rc = skein_listener_open(p.server, cases[i].listen, NULL,
					 &listener);
		if (rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT) {
			print_message("no %s here\n", cases[i].listen);
			continue;
		}
		assert_int_equal(rc, 0);
		port = strrchr(skein_listener_addr(listener), ':');
		assert_string_not_equal(port, ":0");
		snprintf(addr, sizeof(addr), "%s%s", cases[i].host, port);
		assert_int_equal(skein_conn_open(p.client, addr, NULL, &conn),
				 0);
		assert_int_equal(skein_mem_find(conn, "word", PATIENCE, &r), 0);
		assert_int_equal(
			skein_mem_fetch_add(conn, &r, 0, 1, PATIENCE, &old), 0);
		assert_int_equal(old, *(uint64_t *)skein_mem_addr(shared) - 1);
		skein_conn_close(conn, SKEIN_S(1));
		skein_listener_close(listener);
	}
	pair_close(&p);
}

/* A name with two addresses: nobody listens on the first. */
static void test_second_address(void **state)
{
	struct sockaddr_storage any, dead;
	struct skein_conn *conn;
	struct conn_dial *d;
	struct pair p;
	int fd, n;

	pair_open(&p, NULL, NULL);
	assert_int_equal(env_resolve(p.client->env, "127.0.0.1", "0", true,
				     &any, 1, &n),
			 0);
	assert_int_equal(env_sock_listen(p.client->env, &any, 1, &fd), 0);
	assert_int_equal(env_sock_name(p.client->env, fd, &dead), 0);
	env_sock_close(p.client->env, fd);
	assert_int_equal(skein_conn_open_async(p.client,
					       skein_listener_addr(p.listener),
					       NULL, &conn),
			 0);
	/* Nobody runs its engine yet: as if the resolver had said both. */
	d = conn->dial;
	d->addrs[1] = d->addrs[0];
	d->addrs[0] = dead;
	d->n = 2;
	while (skein_conn_get_state(conn) == SKEIN_CONN_CONNECTING)
		skein_ctx_progress(p.client);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	assert_int_equal(d->i, 1);
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_nobody_comes),
		cmocka_unit_test(test_handshake_sleeps),
		cmocka_unit_test(test_bye_sleeps),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_join_early),
		cmocka_unit_test(test_join_refused),
		cmocka_unit_test(test_join_abandoned),
		cmocka_unit_test(test_server_closes),
		cmocka_unit_test(test_simultaneous_close),
		cmocka_unit_test(test_simultaneous_open),
		cmocka_unit_test(test_reconnect),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_shards),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_second_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
