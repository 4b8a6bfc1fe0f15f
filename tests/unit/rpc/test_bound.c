/* SPDX-License-Identifier: MIT */
/*
 * test_bound.c - asynchronous calls with a latency bound: how they are gathered,
 * when they leave, and how many there may be. Two processes. No assertion is
 * about how long anything takes: the bound is so long that it always holds, or
 * so short that it never does.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "served.h"
#include "rpc/client/lane_client.h"

enum {
	ECHO = 1
};

#define NEVER_LATE SKEIN_S(1000)
#define ALWAYS_LATE 1 /* ns */
#define BIG_LEN COMBINER_INLINE

static struct skein_ctx *ctx;
static struct skein_conn *conn;
static pid_t pid;

struct tally {
	unsigned done, not_sent, status_ok;
};

static int echo(struct skein_rpc_req *req, void *arg)
{
	static uint32_t served;

	served++;
	memcpy(skein_rpc_resp_buf(req, 4), &served, 4);
	return 0;
}

static int setup(struct skein_ctx *served)
{
	return skein_rpc_handle(served, ECHO, echo, NULL);
}

static void begin(uint64_t bound_ns)
{
	struct skein_ctx_attr a = {.size = sizeof(a),
				   .device = test_device(),
				   .wait = SKEIN_WAIT_POLL};
	struct skein_conn_attr ca = {.size = sizeof(ca),
				     .latency_bound_ns = bound_ns};
	char addr[SERVED_ADDR];

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	assert_int_equal(skein_ctx_open(&a, &ctx), 0);
	assert_int_equal(skein_conn_open(ctx, addr, &ca, &conn), 0);
}

static void end(void)
{
	skein_conn_close(conn, SKEIN_S(5));
	skein_ctx_close(ctx);
	served_stop(pid);
}

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct tally *t = arg;

	t->done++;
	t->not_sent += res->outcome == SKEIN_NOT_SENT;
	t->status_ok += res->outcome == SKEIN_DONE && !res->status;
}

static struct skein_rpc_stats stats(void)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};

	assert_int_equal(skein_rpc_get_stats(conn, &st), 0);
	return st;
}

static int call(struct tally *t, uint32_t len)
{
	static const uint8_t data[BIG_LEN];

	return skein_rpc_call_async(conn, ECHO, data, len, 4, SKEIN_S(60), done,
				    t);
}

/* The number by which the server knows the call. */
static uint32_t call_and_wait(void)
{
	uint32_t n = 0, resp = 0;

	assert_int_equal(skein_rpc_call(conn, ECHO, &n, 4, &resp, 4,
					SKEIN_S(60), NULL),
			 0);
	return resp;
}

/* As many calls as there may be, until batches have so many; then all have
 * ended. */
static void grow_to(unsigned size)
{
	struct tally t = {0};
	unsigned made = 0;
	int rc;

	while (stats().batch < size) {
		while (!(rc = call(&t, 4)))
			made++;
		assert_int_equal(rc, -EAGAIN);
		skein_rpc_reap(conn, SKEIN_S(60));
	}
	while (t.done < made)
		skein_rpc_reap(conn, SKEIN_S(60));
	assert_int_equal(t.status_ok, made);
}

/* Without a bound a call leaves at once, if few are under way, and nothing is
 * measured. */
static void test_none(void **state)
{
	struct skein_rpc_stats st;
	struct tally t = {0};

	begin(0);
	for (unsigned i = 1; i <= RPC_GATHER_FROM; i++) {
		assert_int_equal(call(&t, 4), 0);
		assert_int_equal(stats().messages_sent, i);
	}
	for (unsigned i = RPC_GATHER_FROM; i < 40; i++)
		assert_int_equal(call(&t, 4), 0);
	while (t.done < 40)
		skein_rpc_reap(conn, SKEIN_S(60));
	st = stats();
	assert_int_equal(st.batch | st.timed | st.late | st.bound_unmet, 0);
	end();
}

/* Calls that keep the bound: batches of up to 16, each a message. */
static void test_grows(void **state)
{
	struct skein_rpc_stats st, was;
	struct tally t = {0};

	begin(NEVER_LATE);
	grow_to(COMBINER_BOUND);
	st = stats();
	assert_int_equal(st.late | st.bound_unmet, 0);
	assert_true(st.timed >= (COMBINER_BOUND - 1) * TUNER_WINDOW);
	was = st;
	for (unsigned i = 0; i < 2 * COMBINER_BOUND; i++)
		assert_int_equal(call(&t, 4), 0);
	assert_int_equal(call(&t, 4), -EAGAIN);
	st = stats();
	assert_int_equal(st.messages_sent - was.messages_sent, 2);
	assert_int_equal(st.degrees[SKEIN_RPC_DEGREES - 1] -
				 was.degrees[SKEIN_RPC_DEGREES - 1],
			 2);
	while (t.done < 2 * COMBINER_BOUND)
		skein_ctx_progress(ctx);
	assert_int_equal(stats().timed - was.timed, 2); /* the oldest */
	end();
}

/* L: 2,048 bytes are a batch. */
static void test_bytes(void **state)
{
	struct skein_rpc_stats was;
	struct tally t = {0};

	begin(NEVER_LATE);
	grow_to(COMBINER_BOUND);
	was = stats();
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(call(&t, BIG_LEN), 0);
	assert_int_equal(stats().messages_sent, was.messages_sent);
	assert_int_equal(call(&t, BIG_LEN), 0);
	assert_int_equal(stats().messages_sent, was.messages_sent + 1);
	while (t.done < 9)
		skein_rpc_reap(conn, SKEIN_S(60));
	end();
}

/* A gathered call leaves when its thread makes progress, runs the engine, reaps,
 * or calls and waits: and that call does not wait for company. */
static void test_leaves(void **state)
{
	struct skein_rpc_stats was;
	struct tally t = {0};
	uint32_t before;

	begin(NEVER_LATE);
	grow_to(4);
	for (unsigned way = 0; way < 4; way++) {
		before = call_and_wait();
		was = stats();
		assert_int_equal(call(&t, 4), 0);
		assert_int_equal(stats().messages_sent, was.messages_sent);
		if (way == 0)
			skein_ctx_progress(ctx);
		else if (way == 1)
			skein_engine_run(skein_ctx_engine(ctx), SKEIN_MS(1));
		else if (way == 2)
			skein_rpc_reap(conn, SKEIN_S(60));
		else /* it is the younger one */
			assert_int_equal(call_and_wait(), before + 2);
		assert_true(stats().messages_sent > was.messages_sent);
		while (t.done < way + 1)
			skein_rpc_reap(conn, SKEIN_S(60));
	}
	assert_int_equal(t.status_ok, 4);
	end();
}

/* It can be given up; it ends with the connection at the latest. */
static void test_given_up(void **state)
{
	struct tally t = {0};

	begin(NEVER_LATE);
	grow_to(4);
	assert_int_equal(call(&t, 4), 0);
	assert_int_equal(skein_rpc_cancel(conn, done, &t), 0);
	while (!t.done)
		skein_rpc_reap(conn, SKEIN_S(60));
	assert_int_equal(t.status_ok, 0);
	t = (struct tally){0};
	assert_int_equal(call(&t, 4), 0);
	end();
	assert_int_equal(t.done, 1);
	assert_int_equal(t.not_sent, 1);
}

static void *ends_early(void *arg)
{
	struct tally *t = arg;

	grow_to(4);
	assert_int_equal(call(t, 4), 0);
	return NULL;
}

/* The thread ends with a gathered call. */
static void test_thread_ends(void **state)
{
	struct tally t = {0};
	pthread_t th;

	begin(NEVER_LATE);
	assert_int_equal(pthread_create(&th, NULL, ends_early, &t), 0);
	pthread_join(th, NULL);
	while (!__atomic_load_n(&t.done, __ATOMIC_RELAXED))
		skein_ctx_progress(ctx);
	assert_int_equal(t.not_sent, 1);
	end();
}

static void *grows(void *arg)
{
	grow_to(8);
	return arg;
}

/* Threads that share the connection have a tuner each; one of them runs the
 * engine for all. */
static void test_threads(void **state)
{
	pthread_t th[3];

	begin(NEVER_LATE);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&th[i], NULL, grows, NULL), 0);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	assert_in_range(stats().batch, 8, COMBINER_BOUND);
	assert_int_equal(stats().late, 0);
	end();
}

/* The bound cannot be met: batches of one call, two under way, and a count. */
static void test_unmet(void **state)
{
	struct skein_rpc_stats st;
	struct tally t = {0};
	unsigned made = 0;

	begin(ALWAYS_LATE);
	while (made < 300) {
		if (call(&t, 4))
			skein_rpc_reap(conn, SKEIN_S(60));
		else
			made++;
		assert_true(made - t.done <= RPC_BATCHES);
	}
	while (t.done < made)
		skein_rpc_reap(conn, SKEIN_S(60));
	st = stats();
	assert_int_equal(st.batch, 1);
	assert_int_equal(st.timed, made);
	assert_int_equal(st.late, made);
	assert_int_equal(st.bound_unmet, made / 4);
	assert_int_equal(st.degrees[0], made);
	end();
}

/* Wrong values are refused. */
static void test_refused(void **state)
{
	struct skein_conn_attr ca = {.size = sizeof(ca),
				     .latency_bound_ns = 1000,
				     .latency_tolerance = 51};
	struct skein_conn *other;

	begin(0);
	assert_int_equal(skein_conn_open(ctx, "127.0.0.1:1", &ca, &other),
			 -ERANGE);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_leaves),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_thread_ends),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_unmet),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
