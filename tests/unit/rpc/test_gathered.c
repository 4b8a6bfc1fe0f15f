/* SPDX-License-Identifier: MIT */
/*
 * test_gathered.c - calls that leave together: those that done() makes, how many
 * messages they take; and those that a thread makes outside, while another
 * thread runs the engine on and off. Two processes. tests/unit/sim/test_gather.c
 * has when the latter leave.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "served.h"
#include "rpc/client/gather.h"

enum {
	ECHO = 1,
	IN_ORDER = 2, /* numbers from 0 on, each once; else -EILSEQ */
};

static struct skein_ctx *ctx;
static struct skein_conn *conn;
static pid_t pid;

struct tally {
	unsigned made, done, ok;
	unsigned again; /* calls that each done() makes */
};

static int echo(struct skein_rpc_req *req, void *arg)
{
	memcpy(skein_rpc_resp_buf(req, 4), skein_rpc_req_data(req), 4);
	return 0;
}

static int in_order(struct skein_rpc_req *req, void *arg)
{
	static uint32_t next;
	uint32_t n;

	memcpy(&n, skein_rpc_req_data(req), 4);
	return n == next++ ? 0 : -EILSEQ;
}

static int setup(struct skein_ctx *served)
{
	int rc = skein_rpc_handle(served, ECHO, echo, NULL);

	return rc ? rc : skein_rpc_handle(served, IN_ORDER, in_order, NULL);
}

static void begin_with(const struct skein_conn_attr *attr)
{
	struct skein_ctx_attr a = {.size = sizeof(a),
				   .device = test_device(),
				   .wait = SKEIN_WAIT_POLL};
	char addr[SERVED_ADDR];

	pid = served_start(SKEIN_WAIT_ADAPTIVE, setup, addr);
	assert_int_equal(skein_ctx_open(&a, &ctx), 0);
	assert_int_equal(skein_conn_open(ctx, addr, attr, &conn), 0);
}

static void begin(void)
{
	begin_with(NULL);
}

static void end(void)
{
	skein_conn_close(conn, SKEIN_S(60));
	skein_ctx_close(ctx);
	served_stop(pid);
}

static struct skein_rpc_stats stats(void)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};

	assert_int_equal(skein_rpc_get_stats(conn, &st), 0);
	return st;
}

static void call(struct tally *t);

static void done(void *arg, const struct skein_rpc_result *res)
{
	struct tally *t = arg;

	t->ok += res->outcome == SKEIN_DONE && !res->status;
	__atomic_store_n(&t->done, t->done + 1, __ATOMIC_RELEASE);
	if (t->again) {
		t->again--;
		call(t);
	}
}

static void call(struct tally *t)
{
	assert_int_equal(skein_rpc_call_async(conn, ECHO, "1234", 4, 4,
					      SKEIN_S(600), done, t),
			 0);
	t->made++;
}

/* Calls made inside done() leave together behind the round: 16 answers come in
 * few messages, and so many calls leave in as few. */
static void test_inside(void **state)
{
	struct skein_rpc_stats was, st;
	struct tally t = {.again = 64 * COMBINER_BOUND};
	struct skein_rpc_entry e[COMBINER_BOUND];
	unsigned n;

	begin();
	for (n = 0; n < COMBINER_BOUND; n++)
		e[n] = (struct skein_rpc_entry){.id = ECHO,
						.req = "1234",
						.req_len = 4,
						.resp_max = 4,
						.timeout_ns = SKEIN_S(600),
						.done = done,
						.arg = &t};
	assert_int_equal(skein_rpc_call_batch(conn, e, COMBINER_BOUND, &n), 0);
	assert_int_equal(n, COMBINER_BOUND);
	t.made = n;
	was = stats();
	while (t.done < t.made)
		skein_ctx_progress(ctx);
	st = stats();
	assert_int_equal(st.calls - was.calls, 64 * COMBINER_BOUND);
	assert_true(st.messages_sent - was.messages_sent <=
		    st.messages_received - was.messages_received);
	end();
}

static int call_number(struct tally *t)
{
	uint32_t n = t->made;
	int rc = skein_rpc_call_async(conn, IN_ORDER, &n, 4, 0, SKEIN_S(600),
				      done, t);

	t->made += !rc;
	return rc;
}

static atomic_bool over;

/* Runs the engine for a while, and leaves it for a while. */
static void *on_and_off(void *arg)
{
	for (unsigned i = 1; !atomic_load(&over); i++) {
		skein_ctx_progress(ctx);
		for (unsigned k = i % 64; k; k--)
			sched_yield();
	}
	return NULL;
}

#define CALLS 20000u
#define WINDOW 40u

/* The thread gathers while the other one may send: each call is executed once,
 * in order. */
static void test_two_threads(void **state)
{
	struct skein_rpc_stats st;
	struct tally t = {0};
	pthread_t th;
	int rc;

	begin();
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&th, NULL, on_and_off, NULL), 0);
	while (t.done < CALLS) {
		rc = 0;
		while (!rc && t.made < CALLS && t.made - t.done < WINDOW)
			rc = call_number(&t);
		assert_true(!rc || rc == -EAGAIN);
		if (t.made % 3)
			skein_rpc_reap(conn, 0);
		else
			skein_ctx_progress(ctx);
	}
	atomic_store(&over, true);
	pthread_join(th, NULL);
	assert_int_equal(t.ok, CALLS);
	st = stats();
	assert_int_equal(st.calls, CALLS);
	assert_true(st.messages_sent < CALLS);
	end();
}

static void *gathers_and_ends(void *arg)
{
	struct tally *t = arg;

	for (unsigned i = 0; i < RPC_GATHER_FROM + 3; i++)
		call(t);
	return NULL;
}

/* A thread gathers and ends behind the closures of a round; the poll() of
 * that round meets its record. It stays the thread's until the calls have left: another
 * thread's closure would be the one that is posted. */
static void test_ends(void **state)
{
	struct tally t = {0};
	struct rpc_thread *s = NULL;
	pthread_t th;

	begin();
	assert_int_equal(pthread_create(&th, NULL, gathers_and_ends, &t), 0);
	pthread_join(th, NULL);
	for (unsigned i = 0; i < conn_threads(conn); i++) {
		s = rpc_thread_of(conn_thread_at(conn, i));
		if (s && s->gather && s->gather->n)
			break;
	}
	assert_true(s && s->gather && s->gather->n == 3);
	assert_int_equal(rpc_thread_sweep(s), 0);
	assert_false(atomic_load(&s->swept));
	assert_int_equal(pthread_create(&th, NULL, gathers_and_ends, &t), 0);
	pthread_join(th, NULL);
	while (t.done < t.made)
		skein_ctx_progress(ctx);
	assert_int_equal(t.ok, 2 * (RPC_GATHER_FROM + 3));
	assert_true(atomic_load(&s->swept));
	end();
}

/* The scheduler wants the thread on the other lane when a part of the gathered
 * calls has left, one a message. The rest does not go by that lane: it may
 * overtake. */
static void test_moves_between(void **state)
{
	struct skein_conn_attr attr = {
		.size = sizeof(attr), .qps = 2, .combine = 1};
	struct tally t = {0};
	struct conn_thread *rec;
	struct rpc_thread *s;
	unsigned sent;
	uint16_t lane;

	begin_with(&attr);
	assert_int_equal(call_number(&t), 0);
	while (!t.done)
		skein_ctx_progress(ctx);
	assert_int_equal(conn_thread(conn, &rec), 0);
	s = rpc_thread_of(rec);
	s->gathers++; /* as in a done() */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(call_number(&t), 0);
	s->gathers--;
	assert_int_equal(s->gather->n, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(rpc_thread_send_counted(s, true,
							 s->gather->req + i,
							 3 - i, &sent),
				 0);
		assert_int_equal(sent, 1);
		lane = i ? lane : atomic_load(&rec->lane);
		assert_int_equal(atomic_load(&rec->lane), lane);
		atomic_store(&rec->lane_wanted, !lane);
	}
	s->gather->n = s->gather->len = 0;
	while (t.done < t.made)
		skein_ctx_progress(ctx);
	assert_int_equal(t.ok, 4);
	end();
}

/* A child of fork() has what the parent gathered, and sends none of it. */
static void test_forked(void **state)
{
	struct tally t = {0};
	int status;
	pid_t child;

	begin();
	for (unsigned i = 0; i < 2 * RPC_GATHER_FROM; i++)
		assert_int_equal(call_number(&t), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		skein_ctx_progress(ctx);
		if (skein_rpc_reap(conn, 0) != -SKEIN_EFORKED ||
		    call_number(&t) != -SKEIN_EFORKED)
			_exit(1);
		skein_conn_close(conn, SKEIN_S(1));
		_exit(t.done != 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	while (t.done < t.made)
		assert_true(skein_rpc_reap(conn, SKEIN_S(60)) >= 0);
	assert_int_equal(t.ok, t.made);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inside),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_moves_between),
		cmocka_unit_test(test_forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
