/* SPDX-License-Identifier: MIT */
/*
 * test_share_qps.c - the receiver's scheduler on connections: two handles of
 * four lanes share two active QPs, so most lanes are declined and rest; every
 * call is answered, and the serving end tells what it granted. How many may be
 * active where the device does not say. And how a thread that is alone asks for
 * credits.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"
#include "conn/handle.h"
#include "conn/ctx.h"
#include "rpc/state.h"
#include <skein/skein.h>

#define THREADS 4
#define CALLS 2000
#define LANES 4

static struct skein_conn *_Atomic served;

static int on_call(struct skein_rpc_req *req, void *arg)
{
	void *resp = skein_rpc_resp_buf(req, skein_rpc_req_len(req));

	/* lane 0, whatever lane it came by */
	served = skein_rpc_req_conn(req);
	memcpy(resp, skein_rpc_req_data(req), skein_rpc_req_len(req));
	return 0;
}

static void *calls_main(void *arg)
{
	struct skein_conn *conn = arg;
	uint64_t got;

	for (uint64_t i = 0; i < CALLS; i++) {
		got = 0;
		assert_int_equal(skein_rpc_call(conn, 1, &i, sizeof(i), &got,
						sizeof(got), SKEIN_S(60), NULL),
				 0);
		assert_true(got == i);
	}
	return NULL;
}

static void test_rest(void **state)
{
	struct skein_ctx_attr ca = {
		.size = sizeof(ca), .device = "soft", .background = true};
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = LANES};
	struct skein_ctx *server, *clients[2];
	struct skein_conn *conns[2];
	struct skein_listener *listener;
	pthread_t threads[2 * THREADS];
	struct skein_rpc_stats st = {.size = sizeof(st)};

	setenv("SKEIN_MAX_AQP", "2", 1);
	setenv("SKEIN_QP_INTERVAL", "1ms", 1);
	assert_int_equal(skein_ctx_open(&ca, &server), 0);
	assert_int_equal(skein_rpc_handle(server, 1, on_call, NULL), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(skein_ctx_open(&ca, &clients[i]), 0);
		assert_int_equal(skein_conn_open(clients[i],
						 skein_listener_addr(listener),
						 &attr, &conns[i]),
				 0);
	}
	for (int i = 0; i < 2 * THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, calls_main,
						conns[i % 2]),
				 0);
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(skein_rpc_get_stats(served, &st), 0);
	assert_int_equal(st.calls, THREADS * CALLS);
	assert_true(st.messages_received <= st.calls);
	assert_int_equal(st.lanes, LANES);
	assert_true(st.lanes_active >= 1 && st.lanes_active <= LANES);
	assert_true(st.credit_grants > 0);
	for (int i = 0; i < 2; i++) {
		skein_conn_close(conns[i], SKEIN_S(1));
		skein_ctx_close(clients[i]);
	}
	skein_ctx_close(server);
	print_message("%llu calls in %llu messages, %llu grants, %llu "
		      "declines, %u of %u lanes active\n",
		      (unsigned long long)st.calls,
		      (unsigned long long)st.messages_received,
		      (unsigned long long)st.credit_grants,
		      (unsigned long long)st.credit_declines, st.lanes_active,
		      st.lanes);
}

/* --- the question behind a call that leaves alone ----------------------- */

static struct {
	int (*post)(struct ibv_qp *qp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad);
	unsigned lists, refused;
} picky;

/* Of lists of two every other one is refused, as by a full queue. */
static int picky_post(struct ibv_qp *qp, struct ibv_send_wr *wr,
		      struct ibv_send_wr **bad)
{
	if (wr->next && picky.lists++ % 2 == 0) {
		picky.refused++;
		*bad = wr;
		return ENOMEM;
	}
	return picky.post(qp, wr, bad);
}

static void test_asks_alone(void **state)
{
	struct skein_ctx_attr ca = {
		.size = sizeof(ca), .device = "soft", .background = true};
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = 2};
	struct skein_listener *listener;
	struct skein_ctx *server, *client;
	struct skein_rpc_stats st = {.size = sizeof(st)};
	struct ibv_context *dev;
	struct skein_conn *conn;

	memset(&picky, 0, sizeof(picky));
	assert_int_equal(skein_ctx_open(&ca, &server), 0);
	assert_int_equal(skein_rpc_handle(server, 1, on_call, NULL), 0);
	assert_int_equal(
		skein_listener_open(server, "127.0.0.1:0", NULL, &listener), 0);
	ca.background = false;
	assert_int_equal(skein_ctx_open(&ca, &client), 0);
	assert_int_equal(skein_conn_open(client, skein_listener_addr(listener),
					 &attr, &conn),
			 0);
	dev = conn->qp->context;
	picky.post = dev->ops.post_send;
	dev->ops.post_send = picky_post;
	calls_main(conn);
	dev->ops.post_send = picky.post;
	assert_int_equal(skein_rpc_get_stats(conn, &st), 0);
	assert_int_equal(st.calls, CALLS);
	assert_int_equal(st.messages_sent, CALLS);
	/* A question each 32 calls, in one post with a message: each is tried
	 * twice. The last may be under way. */
	assert_in_range(picky.lists, 2 * (CALLS / 32), 2 * (CALLS / 32) + 4);
	assert_in_range(picky.refused, picky.lists / 2, picky.lists / 2 + 1);
	assert_in_range(st.credit_grants, picky.lists / 2 - 1,
			picky.lists / 2 + 1);
	assert_in_range(st.credits, 33, 80);
	skein_conn_close(conn, SKEIN_S(1));
	skein_ctx_close(client);
	skein_ctx_close(server);
}

static void test_default(void **state)
{
	struct skein_ctx_attr ca = {.size = sizeof(ca), .device = "soft"};
	struct skein_ctx *ctx;
	struct rpc_ctx *rx;

	assert_int_equal(skein_ctx_open(&ca, &ctx), 0);
	assert_int_equal(ctx->dev->caps.qp_fast, 0);
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	assert_int_equal(rx->aqp.max, QPSCHED_MAX_AQP);
	skein_ctx_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_default),
		cmocka_unit_test(test_asks_alone),
		cmocka_unit_test(test_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
