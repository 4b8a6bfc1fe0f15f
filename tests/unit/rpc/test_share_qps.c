/* SPDX-License-Identifier: MIT */
/*
 * test_share_qps.c - the receiver's scheduler on connections: two handles of
 * four lanes share two active QPs, so most lanes are declined and rest; every
 * call is answered, and the serving end tells what it granted. How many may be
 * active where the device does not say. How a thread that is alone asks for
 * credits. And what reaches both schedulers from end to end: the degrees of
 * messages, the sizes and numbers of requests.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "unit/cm.h"
#include "conn/state.h"
#include "conn/ctx.h"
#include "rpc/client/lane_client.h"
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

/* Lanes whose questions are granted, of all senders. */
static unsigned lanes_kept(struct skein_ctx *ctx)
{
	struct rpc_ctx *rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	struct list_node *s, *l;
	unsigned n = 0;

	env_mutex_lock(rx->aqp.env, &rx->aqp.lock);
	list_for_each(s, &rx->aqp.senders)
		list_for_each(l,
			      &container_of(s, struct aqp_sender, link)->lanes)
			n += atomic_load(
				&container_of(l, struct rpc_lane_server, link)
					 ->keep);
	env_mutex_unlock(rx->aqp.env, &rx->aqp.lock);
	return n;
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
	assert_int_equal(lanes_kept(server), 2); /* MAX_AQP */
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
	/* a recall is a message without calls, and costs no credit */
	assert_int_equal(st.messages_sent - st.recalls, CALLS);
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

/* --- what reaches the schedulers ---------------------------------------- */

#define BATCHES 100
#define BATCH 12

/* Neither scheduler runs by itself. */
static void set_still(bool on)
{
	static const char *const names[] = {"SKEIN_QP_INTERVAL",
					    "SKEIN_THREAD_INTERVAL"};

	for (int i = 0; i < 2; i++)
		if (on)
			setenv(names[i], "3600s", 1);
		else
			unsetenv(names[i]);
}

struct open_pair {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
};

/* The server runs by itself, the clients when they wait. */
static void server_open(struct open_pair *p)
{
	struct skein_ctx_attr ca = {
		.size = sizeof(ca), .device = "soft", .background = true};

	assert_int_equal(skein_ctx_open(&ca, &p->server), 0);
	assert_int_equal(skein_rpc_handle(p->server, 1, on_call, NULL), 0);
	assert_int_equal(skein_listener_open(p->server, "127.0.0.1:0", NULL,
					     &p->listener),
			 0);
}

static void client_open(struct open_pair *p)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = LANES};
	struct skein_ctx_attr ca = {.size = sizeof(ca), .device = "soft"};

	assert_int_equal(skein_ctx_open(&ca, &p->client), 0);
	assert_int_equal(skein_conn_open(p->client,
					 skein_listener_addr(p->listener),
					 &attr, &p->conn),
			 0);
}

static void client_close(struct open_pair *p)
{
	skein_conn_close(p->conn, SKEIN_S(1));
	skein_ctx_close(p->client);
}

static void answered(void *arg, const struct skein_rpc_result *res)
{
	assert_int_equal(res->status, 0);
	++*(unsigned *)arg;
}

/* As many messages, each of n calls. */
static void batches(struct skein_conn *conn, unsigned n)
{
	struct skein_rpc_entry e[BATCH];
	unsigned ended, begun;
	uint64_t req = 7;
	int rc;

	assert_true(n <= BATCH);
	for (unsigned i = 0; i < n; i++)
		e[i] = (struct skein_rpc_entry){.id = 1,
						.req = &req,
						.req_len = sizeof(req),
						.resp_max = sizeof(req),
						.timeout_ns = SKEIN_S(60),
						.done = answered,
						.arg = &ended};
	for (unsigned k = 0; k < BATCHES; k++) {
		ended = 0;
		/* It may have to wait until it is granted credits. */
		do
			rc = skein_rpc_call_batch(conn, e, n, &begun);
		while (rc == -EAGAIN && skein_rpc_reap(conn, SKEIN_MS(1)) >= 0);
		assert_int_equal(rc, 0);
		assert_int_equal(begun, n);
		while (ended < n)
			assert_true(skein_rpc_reap(conn, SKEIN_S(60)) >= 0);
	}
}

static struct rpc_ctx *rpc_of(struct skein_ctx *ctx)
{
	return conn_ctx_module(ctx, CONN_MODULE_RPC);
}

/* Two senders, of which one combines: MAX_AQP is shared by their degrees. */
static void test_degrees_arrive(void **state)
{
	struct open_pair a = {0}, b;
	struct aqp_stats st, one;
	struct aqp *aqp;

	setenv("SKEIN_MAX_AQP", "5", 1);
	set_still(true);
	server_open(&a);
	b = a;
	client_open(&a);
	client_open(&b);
	batches(a.conn, BATCH);
	assert_true(aqp_stats(&rpc_of(a.server)->aqp, served, &st));
	/* A question each 16 to 32 messages, each telling this median. */
	assert_in_range(st.questions, BATCHES / 32, BATCHES / 16);
	assert_int_equal(st.degrees, BATCH * st.questions);
	batches(b.conn, 1);
	assert_true(aqp_stats(&rpc_of(a.server)->aqp, served, &one));
	assert_in_range(one.questions, BATCHES / 32, BATCHES / 16);
	assert_int_equal(one.degrees, one.questions);
	/* The interval is over: 12 to 1 of five, at most four each. */
	aqp = &rpc_of(a.server)->aqp;
	aqp_share(aqp, aqp_due(aqp));
	assert_int_equal(aqp->count, 2);
	assert_int_equal(aqp->table[0].util, st.degrees);
	assert_int_equal(aqp->table[1].util, one.degrees);
	assert_int_equal(aqp->table[0].aqp, 4);
	assert_int_equal(aqp->table[1].aqp, 1);
	client_close(&a);
	client_close(&b);
	skein_ctx_close(a.server);
	set_still(false);
	unsetenv("SKEIN_MAX_AQP");
}

/* What one thread has sent, calls and memory operations. */
static void test_loads_arrive(void **state)
{
	struct skein_mem *local, *area;
	struct thrsched_thread *t;
	struct rpc_handle *h;
	struct skein_remote remote;
	struct open_pair p;
	uint8_t buf[100] = {0};
	uint64_t bytes = 0;

	set_still(true);
	server_open(&p);
	assert_int_equal(skein_mem_new(p.server, 4096, &area), 0);
	assert_int_equal(skein_mem_share(area, "area", SKEIN_MEM_WRITE), 0);
	client_open(&p);
	assert_int_equal(skein_mem_new(p.client, 4096, &local), 0);
	assert_int_equal(skein_mem_find(p.conn, "area", SKEIN_S(60), &remote),
			 0);
	h = rpc_conn_of(p.conn)->handle;
	/* The first round of the handle has it run. */
	assert_int_equal(skein_rpc_call(p.conn, 1, buf, 8, buf, 8, SKEIN_S(60),
					NULL),
			 0);
	rpc_handle_schedule(h);
	skein_ctx_progress(p.client);
	for (int i = 0; i < 50; i++, bytes += 100 + sizeof(struct rpc_req_meta))
		assert_int_equal(skein_rpc_call(p.conn, 1, buf, 100, buf, 100,
						SKEIN_S(60), NULL),
				 0);
	for (int i = 0; i < 80;
	     i++, bytes += 1000 + sizeof(struct rpc_req_meta))
		assert_int_equal(skein_mem_write(p.conn, local, 0, &remote, 0,
						 1000, SKEIN_S(60)),
				 0);
	rpc_handle_schedule(h);
	skein_ctx_progress(p.client);
	t = h->threads;
	assert_int_equal(t->requests, 130);
	assert_int_equal(t->bytes, bytes);
	assert_int_equal(t->median, 896); /* where the part of 1000 begins */
	/* Nothing since. */
	rpc_handle_schedule(h);
	skein_ctx_progress(p.client);
	assert_int_equal(t->requests, 0);
	assert_int_equal(t->bytes, 0);
	skein_mem_free(local);
	client_close(&p);
	skein_mem_free(area);
	skein_ctx_close(p.server);
	set_still(false);
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
		cmocka_unit_test(test_degrees_arrive),
		cmocka_unit_test(test_loads_arrive),
		cmocka_unit_test(test_asks_alone),
		cmocka_unit_test(test_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
