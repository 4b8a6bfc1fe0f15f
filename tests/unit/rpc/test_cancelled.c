/* SPDX-License-Identifier: MIT */
/*
 * test_cancelled.c - blocking calls on a handle, of a thread for which a
 * cancellation is pending the whole time: at whatever comes up in a call (a sleep, a
 * peer that sleeps, code of the application that runs in the caller's round,
 * others that call), it goes on, and leaves neither queue nor engine to one who
 * is no more.
 */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conn/conn.h"
#include "env/engine/engine.h"
#include "unit/cm.h"
#include "unit/rpc/cancel.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define ECHO 1
#define SLOW 2 /* answered by the helper, some time later */
#define FULL 3 /* answered by as much as there is room for; ever more */
#define PATIENCE patience_ns(30)
#define LARGE (200u << 10)
#define CALLERS 4
#define HELD_MAX 8

struct world {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct skein_rpc_req *_Atomic held[HELD_MAX];
	atomic_bool rest; /* the helper answers nothing */
	atomic_bool wait; /* with the calls, and without a call of the kernel */
	atomic_bool stop, enough;
	pthread_t helper;
	/* code of the application that has run in a caller's round */
	atomic_int seen;
};

/* Set in a caller. */
static _Thread_local bool doomed;

/* Code of the application, as it may be: with a point of cancellation. */
static void by_the_way(struct world *w)
{
	if (!doomed)
		return;
	pthread_testcancel();
	atomic_fetch_add(&w->seen, 1);
}

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);

	by_the_way(arg);
	if (len > skein_rpc_resp_max(req))
		len = skein_rpc_resp_max(req);
	memcpy(skein_rpc_resp_buf(req, len), skein_rpc_req_data(req), len);
	return 0;
}

static int on_full(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_resp_max(req);

	memset(skein_rpc_resp_buf(req, len), 1, len);
	return 0;
}

static int on_slow(struct skein_rpc_req *req, void *arg)
{
	struct world *w = arg;
	struct skein_rpc_req *later, *none;
	int rc = skein_rpc_defer(req, &later);

	for (unsigned i = 0; !rc && i < HELD_MAX; i++) {
		none = NULL;
		if (atomic_compare_exchange_strong(&w->held[i], &none, later))
			break;
	}
	return rc;
}

static void *help(void *arg)
{
	struct world *w = arg;
	struct skein_rpc_req *req;

	while (!atomic_load(&w->stop)) {
		usleep(20000);
		for (unsigned i = 0; i < HELD_MAX; i++) {
			if (atomic_load(&w->rest))
				break;
			req = atomic_exchange(&w->held[i], NULL);
			if (req)
				skein_rpc_answer(req, 0);
		}
	}
	return NULL;
}

/* Which device it is the harsh run wants to know. */
static void on_log(void *arg, enum skein_log_level level, const char *line)
{
	if (level == SKEIN_LOG_INFO)
		fprintf(stderr, "skein: info: %s\n", line);
	by_the_way(arg);
}

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	by_the_way(arg);
}

static void world_open(struct world *w, enum skein_wait client,
		       enum skein_wait server)
{
	struct skein_ctx_attr ctx = {.size = sizeof(ctx),
				     .device = "soft",
				     .log = on_log,
				     .log_arg = w,
				     .log_level = SKEIN_LOG_INFO,
				     .wait = server,
				     .background = true};
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = 1};

	memset(w, 0, sizeof(*w));
	assert_int_equal(skein_ctx_open(&ctx, &w->server), 0);
	ctx.background = false;
	ctx.wait = client;
	assert_int_equal(skein_ctx_open(&ctx, &w->client), 0);
	assert_int_equal(skein_rpc_handle(w->server, ECHO, on_echo, w), 0);
	assert_int_equal(skein_rpc_handle(w->client, ECHO, on_echo, w), 0);
	assert_int_equal(skein_rpc_handle(w->server, SLOW, on_slow, w), 0);
	assert_int_equal(skein_rpc_handle(w->server, FULL, on_full, w), 0);
	assert_int_equal(skein_listener_open(w->server, "127.0.0.1:0", NULL,
					     &w->listener),
			 0);
	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener),
					 &attr, &w->conn),
			 0);
	assert_int_equal(pthread_create(&w->helper, NULL, help, w), 0);
}

static void world_close(struct world *w)
{
	atomic_store(&w->stop, true);
	pthread_join(w->helper, NULL);
	skein_conn_close(w->conn, SKEIN_S(1));
	skein_ctx_close(w->client);
	skein_ctx_close(w->server);
}

static int call(struct world *w, uint16_t id, size_t len)
{
	uint8_t *buf = calloc(1, len);
	int rc;

	rc = skein_rpc_call(w->conn, id, buf, id == FULL ? 1 : len, buf, len,
			    PATIENCE, NULL);
	free(buf);
	return rc;
}

/* --- callers ------------------------------------------------------------- */

struct caller {
	struct world *w;
	pthread_t id;
	unsigned calls;
	size_t len;
	uint16_t to;
	int rc; /* of all calls together */
	atomic_bool doomed, through;
};

static void *caller_main(void *arg)
{
	struct caller *c = arg;

	pthread_cleanup_push(cancel_frames_gone, NULL);
	/* Its thread record: from now on nothing is made for it. */
	c->rc = call(c->w, ECHO, 8);
	doomed = true;
	pthread_cancel(pthread_self());
	atomic_store(&c->doomed, true);
	while (atomic_load(&c->w->wait))
		sched_yield();
	for (unsigned i = 0;
	     i < c->calls && !c->rc && !atomic_load(&c->w->enough); i++)
		c->rc = call(c->w, c->to, c->to == FULL ? c->len << i : c->len);
	atomic_store(&c->through, true);
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

static void caller_start(struct caller *c, struct world *w, uint16_t to,
			 unsigned calls, size_t len)
{
	*c = (struct caller){.w = w, .to = to, .calls = calls, .len = len};
	assert_int_equal(pthread_create(&c->id, NULL, caller_main, c), 0);
}

static void caller_end(struct caller *c)
{
	void *ret;

	pthread_join(c->id, &ret);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_true(atomic_load(&c->through));
}

/* The queue and the engine are nobody's. */
static void assert_goes_on(struct world *w)
{
	assert_true(engine_try_enter(conn_engine(w->conn)));
	engine_leave(conn_engine(w->conn));
	assert_int_equal(call(w, ECHO, 8), 0);
}

static void one_caller(enum skein_wait client, enum skein_wait server,
		       uint16_t to, unsigned calls, size_t len)
{
	struct caller c;
	struct world w;

	world_open(&w, client, server);
	caller_start(&c, &w, to, calls, len);
	caller_end(&c);
	assert_int_equal(c.rc, 0);
	assert_goes_on(&w);
	world_close(&w);
}

/* --- tests ---------------------------------------------------------------- */

/* Questions for credits and their answers, and beats, go along. */
static void test_lone(void **state)
{
	one_caller(SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE, ECHO, 2000, 64);
}

/* It sleeps, or naps. */
static void test_sleeps(void **state)
{
	one_caller(SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE, SLOW, 3, 8);
	one_caller(SKEIN_WAIT_POLL, SKEIN_WAIT_ADAPTIVE, SLOW, 3, 8);
	one_caller(SKEIN_WAIT_EVENT, SKEIN_WAIT_ADAPTIVE, ECHO, 100, 8);
}

/* Each request wakes the server. */
static void test_peer_sleeps(void **state)
{
	one_caller(SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_EVENT, ECHO, 200, 8);
}

/* Memory is made, each time for more, and given back. */
static void test_large(void **state)
{
	one_caller(SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE, ECHO, 5, LARGE);
	one_caller(SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE, FULL, 5, LARGE);
}

/* They lead and follow, wait for who runs the engine, and for room. */
static void test_crowd(void **state)
{
	struct caller c[CALLERS];
	struct world w;

	world_open(&w, SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE);
	for (unsigned i = 0; i < CALLERS; i++)
		caller_start(&c[i], &w, ECHO, 300, 8000);
	for (unsigned i = 0; i < CALLERS; i++) {
		caller_end(&c[i]);
		assert_int_equal(c[i].rc, 0);
	}
	assert_goes_on(&w);
	world_close(&w);
}

/* Handlers, and what the application hears of connections, in its rounds. */
static void serves(uint16_t to)
{
	struct skein_listener_attr lattr = {.size = sizeof(lattr),
					    .on_conn = on_conn};
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_listener *listener;
	struct skein_conn *back;
	struct caller c;
	struct world w;
	char buf[8] = "";

	world_open(&w, SKEIN_WAIT_POLL, SKEIN_WAIT_ADAPTIVE);
	lattr.arg = &w;
	assert_int_equal(skein_listener_open(w.client, "127.0.0.1:0", &lattr,
					     &listener),
			 0);
	caller_start(&c, &w, to, UINT_MAX, 8);
	while (!atomic_load(&c.doomed))
		usleep(1000);
	assert_int_equal(skein_conn_open(w.server,
					 skein_listener_addr(listener), &attr,
					 &back),
			 0);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(skein_rpc_call(back, ECHO, buf, 8, buf, 8,
						PATIENCE, NULL),
				 0);
	skein_conn_close(back, SKEIN_S(1));
	atomic_store(&w.enough, true);
	caller_end(&c);
	assert_int_equal(c.rc, 0);
	assert_true(atomic_load(&w.seen) > 50);
	assert_goes_on(&w);
	world_close(&w);
}

static void test_serves(void **state)
{
	serves(SLOW);
	serves(ECHO);
}

static void on_left(void *arg, const struct skein_rpc_result *res)
{
	by_the_way(arg);
}

struct leaver {
	struct world *w;
	uint16_t to;
	int rc;
};

/* Does not ask for its answer. */
static void *leaver_main(void *arg)
{
	struct leaver *l = arg;

	l->rc = skein_rpc_call_async(l->w->conn, l->to, "x", 1, 8, PATIENCE,
				     on_left, l->w);
	if (l->to == ECHO)
		usleep(20000); /* it is there */
	return NULL;
}

/* The calls of a thread that has ended are told in its rounds: as they come, or
 * all at once if they had come before. */
static void others_end(uint16_t to)
{
	struct leaver l;
	struct caller c;
	struct world w;
	pthread_t t;

	world_open(&w, SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE);
	atomic_store(&w.rest, true);
	caller_start(&c, &w, ECHO, UINT_MAX, 8);
	while (!atomic_load(&c.doomed))
		usleep(1000);
	l = (struct leaver){.w = &w, .to = to};
	assert_int_equal(pthread_create(&t, NULL, leaver_main, &l), 0);
	pthread_join(t, NULL);
	assert_int_equal(l.rc, 0);
	atomic_store(&w.rest, false);
	while (!atomic_load(&w.seen) && !atomic_load(&c.through))
		usleep(1000);
	atomic_store(&w.enough, true);
	caller_end(&c);
	assert_int_equal(c.rc, 0);
	assert_int_equal(atomic_load(&w.seen), 1);
	assert_goes_on(&w);
	world_close(&w);
}

static void test_others_end(void **state)
{
	others_end(SLOW);
	others_end(ECHO);
}

static void on_any(void *arg, const struct skein_rpc_result *res)
{
	++*(unsigned *)arg;
}

/* It waits for room that others have taken. */
static void test_room_waiter(void **state)
{
	unsigned sent = 0, ended = 0, begun;
	struct skein_rpc_entry e = {.id = SLOW,
				    .req = "x",
				    .req_len = 1,
				    .resp_max = 8,
				    .timeout_ns = PATIENCE,
				    .done = on_any,
				    .arg = &ended};
	struct caller c;
	struct world w;

	setenv("SKEIN_RPC_WINDOW", "4", 1);
	world_open(&w, SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE);
	unsetenv("SKEIN_RPC_WINDOW");
	atomic_store(&w.rest, true);
	atomic_store(&w.wait, true);
	caller_start(&c, &w, ECHO, 100, 8);
	while (!atomic_load(&c.doomed))
		usleep(1000);
	while (!skein_rpc_call_batch(w.conn, &e, 1, &begun))
		sent++;
	assert_int_equal(sent, 4);
	atomic_store(&w.wait, false);
	usleep(50000);
	assert_false(atomic_load(&c.through));
	atomic_store(&w.rest, false);
	caller_end(&c);
	assert_int_equal(c.rc, 0);
	while (ended < sent)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_goes_on(&w);
	world_close(&w);
}

/* The connection ends in its round, which says so to the log. */
static void test_breaks(void **state)
{
	struct caller c;
	struct world w;

	world_open(&w, SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_ADAPTIVE);
	caller_start(&c, &w, SLOW, UINT_MAX, 8);
	while (!atomic_load(&c.doomed))
		usleep(1000);
	atomic_store(&w.stop, true);
	pthread_join(w.helper, NULL);
	skein_ctx_close(w.server);
	caller_end(&c);
	assert_int_not_equal(c.rc, 0);
	assert_true(atomic_load(&w.seen) > 0);
	assert_true(engine_try_enter(conn_engine(w.conn)));
	engine_leave(conn_engine(w.conn));
	skein_conn_close(w.conn, SKEIN_S(1));
	skein_ctx_close(w.client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lone),
		cmocka_unit_test(test_sleeps),
		cmocka_unit_test(test_peer_sleeps),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_serves),
		cmocka_unit_test(test_others_end),
		cmocka_unit_test(test_room_waiter),
		cmocka_unit_test(test_breaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
