/* SPDX-License-Identifier: MIT */
/*
 * test_event.c - sleeping between calls: docs/protocol/rpc.md, section 8.
 */
#include "unit/cm.h"

#include "conn/eng.h"
#include "env/engine/engine.h"
#include "rpc/event.h"
#include "rpc/state.h"
#include <skein/skein.h>

enum {
	NOOP = 1
};

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

static int on_noop(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

/* A call ended while the client dozed. With nothing under way the end of the
 * doze may not keep the engine from sleeping. */
static void test_rest_after_doze(void **state)
{
	struct skein_ctx *server = ctx_new(true), *client = ctx_new(false);
	struct skein_engine *eng = skein_ctx_engine(client);
	struct skein_listener *l;
	struct skein_conn *conn;
	struct rpc_event *ev;

	assert_int_equal(skein_rpc_handle(server, NOOP, on_noop, NULL), 0);
	assert_int_equal(skein_listener_open(server, "127.0.0.1:0", NULL, &l),
			 0);
	assert_int_equal(skein_conn_open(client, skein_listener_addr(l), NULL,
					 &conn),
			 0);
	assert_int_equal(skein_rpc_call(conn, NOOP, NULL, 0, NULL, 0,
					SKEIN_S(10), NULL),
			 0);
	ev = &rpc_conn_of(conn)->port.event;
	ev->doze_end_ns = 1;
	conn_active(conn);
	skein_engine_arm(eng);
	assert_int_equal(ev->doze_end_ns, 0);
	skein_conn_close(conn, SKEIN_S(1));
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static void test_doze(void **state)
{
	struct rpc_event ev = {0};
	uint64_t now = SKEIN_S(1);

	assert_false(rpc_event_want_sleep(&ev, now));
	assert_true(ev.owe_ask);
	ev.owe_ask = false;
	assert_false(rpc_event_want_sleep(&ev, now));
	now += RPC_EVENT_PATIENCE_NS;
	assert_true(rpc_event_want_sleep(&ev, now));
	assert_true(ev.doze_end_ns > now);
	rpc_event_rest(&ev);
	assert_int_equal(ev.doze_end_ns, 0);
}

/* An engine that wants to sleep asks all of its peers at once: with as many
 * turns as peers it would take that much longer. */
static void test_all_ask(void **state)
{
	enum {
		CONNS = 5
	};
	struct skein_ctx *server = ctx_new(false), *client = ctx_new(false);
	struct skein_listener *l;
	struct skein_conn *conns[CONNS];
	struct skein_engine *eng = skein_ctx_engine(server);
	unsigned i, asked = 0;

	assert_int_equal(skein_listener_open(server, "127.0.0.1:0", NULL, &l),
			 0);
	for (i = 0; i < CONNS; i++)
		assert_int_equal(skein_conn_open_async(client,
						       skein_listener_addr(l),
						       NULL, &conns[i]),
				 0);
	while (eng->polls.n < CONNS) {
		skein_ctx_progress(client);
		skein_ctx_progress(server);
	}
	assert_int_equal(skein_engine_arm(eng), 1);
	for (i = 0; i < eng->polls.n; i++)
		asked += ((struct rpc_conn *)eng->polls.e[i]->state)
				 ->port.event.rx == RPC_RX_ASKED;
	assert_int_equal(asked, CONNS);
	for (i = 0; i < CONNS; i++)
		skein_conn_close(conns[i], 0);
	while (atomic_load(&eng->n_conns)) {
		skein_ctx_progress(client);
		skein_ctx_progress(server);
	}
	skein_ctx_close(client);
	skein_ctx_close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doze),
		cmocka_unit_test(test_rest_after_doze),
		cmocka_unit_test(test_all_ask),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
