/* SPDX-License-Identifier: MIT */
/*
 * test_close.c - closing in every order: handles left to the context, handles
 * that nobody waits for, in every state, and inside callbacks.
 */
#include "unit/cm.h"
#include "unit/device.h"

#include "conn/setup/addr.h"
#include "conn/state.h"

#include <errno.h>
#include <skein/skein.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct pair {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	atomic_int ups, ends;
	_Atomic(struct skein_conn *) accepted; /* the last */
};

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct pair *p = arg;

	if (state == SKEIN_CONN_READY) {
		p->ups++;
		p->accepted = conn;
	} else {
		p->ends++;
	}
}

static struct skein_ctx *ctx_open(bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .background = background,
				      .device = test_device()};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static void pair_open(struct pair *p, bool background)
{
	struct skein_listener_attr l = {
		.size = sizeof(l), .on_conn = on_conn, .arg = p};

	memset(p, 0, sizeof(*p));
	p->server = ctx_open(true);
	p->client = ctx_open(background);
	assert_int_equal(skein_listener_open(p->server, "127.0.0.1:0", &l,
					     &p->listener),
			 0);
}

static void pair_close(struct pair *p, bool server_first)
{
	skein_ctx_close(server_first ? p->server : p->client);
	skein_ctx_close(server_first ? p->client : p->server);
	assert_int_equal(p->ups, p->ends);
}

static struct skein_conn *dial(struct pair *p)
{
	struct skein_conn *conn;

	assert_int_equal(skein_conn_open_async(p->client,
					       skein_listener_addr(p->listener),
					       NULL, &conn),
			 0);
	return conn;
}

static struct skein_conn *connect_to(struct pair *p)
{
	struct skein_conn *conn;

	assert_int_equal(skein_conn_open(p->client,
					 skein_listener_addr(p->listener), NULL,
					 &conn),
			 0);
	return conn;
}

static void progress(struct pair *p, int rounds)
{
	for (int i = 0; i < rounds; i++)
		skein_ctx_progress(p->client);
}

/* A handle that nobody waits for, and its context, at once. */
static void test_close_then_ctx(void **state)
{
	struct pair p;

	for (int i = 0; i < 8; i++) {
		pair_open(&p, i & 3);
		if (i & 4)
			connect_to(&p);
		if (i & 8)
			connect_to(&p);
		skein_conn_close(connect_to(&p), 0);
		if (!(i & 3))
			progress(&p, i);
		pair_close(&p, i & 2);
	}
}

/* In whatever state the attempt is. */
static void test_close_while_connecting(void **state)
{
	struct skein_conn *a, *b;
	struct pair p;

	for (int i = 0; i < 12; i++) {
		pair_open(&p, i & 4);
		a = dial(&p);
		b = dial(&p);
		progress(&p, i * i * 3);
		skein_conn_close(a, 0);
		if (i & 1)
			skein_conn_close(b, 0);
		if (i & 2)
			progress(&p, i);
		pair_close(&p, i & 4);
	}
}

/* One context is its own client. */
static void test_close_loopback(void **state)
{
	struct skein_listener_attr l = {.size = sizeof(l), .on_conn = on_conn};
	struct skein_conn *conn;
	struct pair p;

	for (int i = 0; i < 8; i++) {
		memset(&p, 0, sizeof(p));
		p.client = ctx_open(i & 1);
		l.arg = &p;
		assert_int_equal(skein_listener_open(p.client, "127.0.0.1:0",
						     &l, &p.listener),
				 0);
		conn = connect_to(&p);
		if (i & 2)
			skein_conn_close(conn, 0);
		if (i & 4)
			skein_conn_close(dial(&p), 0);
		if (i & 8)
			dial(&p);
		skein_ctx_close(p.client);
		assert_int_equal(p.ups, p.ends);
	}
}

struct wish {
	enum skein_conn_state when;
	atomic_bool closed;
};

static void close_on_state(void *arg, struct skein_conn *conn,
			   enum skein_conn_state state)
{
	struct wish *wish = arg;

	if (state != wish->when)
		return;
	skein_conn_close(conn, SKEIN_S(1));
	wish->closed = true;
}

/* Inside its own callback, with the context close right behind. */
static void test_close_in_callback(void **state)
{
	static const enum skein_conn_state when[] = {
		SKEIN_CONN_READY, SKEIN_CONN_BROKEN, SKEIN_CONN_CONNECTING};
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .on_state = close_on_state};
	struct skein_conn *conn;
	struct wish wish;
	struct pair p;

	for (int i = 0; i < 6; i++) {
		pair_open(&p, i & 1);
		wish.when = when[i % 3];
		wish.closed = false;
		attr.arg = &wish;
		attr.reconnect = i % 3 == 2;
		assert_int_equal(
			skein_conn_open_async(p.client,
					      skein_listener_addr(p.listener),
					      &attr, &conn),
			0);
		while (!p.ups)
			skein_ctx_progress(p.client);
		if (i % 3) { /* break it */
			skein_listener_close(p.listener);
			while (!p.ends || !wish.closed)
				skein_ctx_progress(p.client);
		}
		pair_close(&p, i & 1);
	}
}

/* A peer that does not answer any more, or never did. */
static void test_close_silent_peer(void **state)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct sockaddr_storage any, local;
	struct skein_conn *conn;
	struct skein_ctx *ctx;
	char addr[80];
	int fd, n;

	ctx = ctx_open(false);
	assert_int_equal(
		env_resolve(ctx->env, "127.0.0.1", "0", true, &any, 1, &n), 0);
	assert_int_equal(env_sock_listen(ctx->env, &any, 16, &fd), 0);
	assert_int_equal(env_sock_name(ctx->env, fd, &local), 0);
	conn_addr_format(&local, addr, sizeof(addr));
	assert_int_equal(skein_conn_open_async(ctx, addr, &attr, &conn), 0);
	for (int i = 0; i < 2000; i++)
		skein_ctx_progress(ctx);
	skein_conn_close(conn, 0);
	assert_int_equal(skein_conn_open_async(ctx, addr, &attr, &conn), 0);
	for (int i = 0; i < 2000; i++)
		skein_ctx_progress(ctx);
	skein_ctx_close(ctx);
}

struct napping {
	struct engine_call call;
	atomic_bool begun;
};

static void nap(struct engine_call *call)
{
	container_of(call, struct napping, call)->begun = true;
	usleep(500000);
}

static long sleeps(void)
{
	struct rusage ru;

	getrusage(RUSAGE_THREAD, &ru);
	return ru.ru_nvcsw;
}

/* While the peer is busy a context that closes sleeps; it does not wake up to
 * look. */
static void test_close_asleep(void **state)
{
	struct napping n = {.call.fn = nap};
	struct pair p;
	long before;

	pair_open(&p, false);
	connect_to(&p);
	while (!p.accepted)
		usleep(1000);
	engine_post(((struct skein_conn *)p.accepted)->eng->e, &n.call);
	while (!n.begun)
		usleep(1000);
	before = sleeps();
	skein_ctx_close(p.client);
	assert_in_range(sleeps() - before, 0, 50);
	skein_ctx_close(p.server);
}

struct breaking {
	struct engine_call call;
	struct skein_conn *conn;
	int err;
};

static void break_it(struct engine_call *call)
{
	struct breaking *b = container_of(call, struct breaking, call);

	conn_break(b->conn, b->err, "by the test");
}

/* What broke it at one end is said at the other, as the other's own. */
static void test_causes(void **state)
{
	static const struct {
		int here, there;
		const char *words;
	} cases[] = {
		{-ENOMEM, -SKEIN_ERESOURCE, "the peer is out of memory"},
		{-EMFILE, -SKEIN_ERESOURCE, "the peer is out of memory"},
		{-SKEIN_EPEER, -ECONNABORTED, "that this side sent what"},
		{-ETIMEDOUT, -ETIMEDOUT, "the peer has broken it"},
		{-EIO, -ECONNRESET, "its own log"},
		{-EACCES, -ECONNRESET, "its own log"},
	};
	struct skein_conn *conn;
	struct breaking b;
	const char *text;
	struct pair p;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pair_open(&p, false);
		conn = connect_to(&p);
		while (!atomic_load(&p.accepted))
			env_yield(p.client->env);
		b.conn = p.accepted;
		b.err = cases[i].here;
		b.call.fn = break_it;
		engine_post(p.server->engine->e, &b.call);
		while (skein_conn_get_state(conn) != SKEIN_CONN_BROKEN)
			skein_ctx_progress(p.client);
		assert_int_equal(skein_conn_error(conn, &text), cases[i].there);
		assert_non_null(strstr(text, cases[i].words));
		skein_conn_close(conn, SKEIN_S(1));
		pair_close(&p, false);
	}
}

/* Receive credits are owed and the send queue is full: rounds go on, since what
 * makes room comes in by them. */
static void test_no_room_for_credits(void **state)
{
	struct skein_conn *conn;
	struct pair p;
	uint32_t room;

	pair_open(&p, false);
	conn = connect_to(&p);
	progress(&p, 100);
	room = optable_room(&conn->ops);
	conn->ops.taken += room;
	conn->recv_owed = CONN_RECVS;
	eng_pend(conn->eng, conn);
	alarm(20);
	progress(&p, 100);
	alarm(0);
	/* None was given back. More may be owed: the server's thread goes to
	 * sleep when it likes, and says so. */
	assert_true(conn->recv_owed >= CONN_RECVS);
	assert_true(conn->eng->attention);
	conn->recv_owed = 0;
	conn->ops.taken -= room;
	progress(&p, 100);
	assert_false(conn->eng->attention);
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_then_ctx),
		cmocka_unit_test(test_close_while_connecting),
		cmocka_unit_test(test_close_loopback),
		cmocka_unit_test(test_close_in_callback),
		cmocka_unit_test(test_close_silent_peer),
		cmocka_unit_test(test_close_asleep),
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_no_room_for_credits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
