/* SPDX-License-Identifier: MIT */
/*
 * test_handle.c - calls of many threads on a handle of few QPs, over the
 * software device, to another process: blocking and asynchronous, small and
 * large; threads that end, are cancelled, or never ask for their answers; a
 * server that stops and one that is killed. Every call ends once, with its own
 * answer.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "conn/ctx.h"
#include "unit/patience.h"
#include "served.h"

#define CALL 1
#define THREADS_MAX 64
#define LEN_MAX (200u << 10)

/* A request: how long the result shall be, and whose it is. */
struct ask {
	uint32_t resp_len;
	uint32_t thread;
	uint32_t seq;
	uint32_t last; /* byte of the payload */
};

static int on_call(struct skein_rpc_req *req, void *arg)
{
	static uint32_t seen[THREADS_MAX];
	const uint8_t *data = skein_rpc_req_data(req);
	size_t len = skein_rpc_req_len(req);
	struct ask ask;
	uint8_t *resp;

	memcpy(&ask, data, sizeof(ask));
	if (len < sizeof(ask) || ask.thread >= THREADS_MAX)
		return -EBADMSG;
	if (len > sizeof(ask) && data[len - 1] != (uint8_t)ask.last)
		return -EBADMSG;
	/* FIFO: of a thread nothing overtakes, whichever way it went. */
	if (ask.seq && ask.seq <= seen[ask.thread])
		return -EILSEQ;
	seen[ask.thread] = ask.seq;
	resp = skein_rpc_resp_buf(req, ask.resp_len);
	if (!resp)
		return -ENOMEM;
	memset(resp, (int)ask.seq, ask.resp_len);
	memcpy(resp, &ask, sizeof(ask));
	return 0;
}

static int serve(struct skein_ctx *ctx)
{
	return skein_rpc_handle(ctx, CALL, on_call, NULL);
}

struct live {
	pid_t server;
	struct skein_ctx *ctx;
	struct skein_conn *conn;
	unsigned calls; /* of a thread */
	size_t len_max;
	size_t resp_max; /* of asynchronous calls */
	atomic_uint ended, refused, lost, not_sent;
};

static void live_start(struct live *l, unsigned qps, enum skein_wait wait,
		       bool background)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .wait = wait,
				      .background = background};
	struct skein_conn_attr conn = {.size = sizeof(conn), .qps = qps};
	char addr[SERVED_ADDR];

	memset(l, 0, sizeof(*l));
	l->resp_max = LEN_MAX;
	l->server = served_start(wait, serve, addr);
	assert_int_equal(skein_ctx_open(&attr, &l->ctx), 0);
	assert_int_equal(skein_conn_open(l->ctx, addr, &conn, &l->conn), 0);
}

static void live_stop(struct live *l)
{
	skein_conn_close(l->conn, SKEIN_S(1));
	skein_ctx_close(l->ctx);
	served_stop(l->server);
}

struct thread {
	struct live *l;
	uint32_t n;
	uint32_t sent, answered; /* asynchronous */
	pthread_t id, self;
	struct prng rng;
	uint8_t *buf, *resp;
};

static void thread_init(struct thread *t, struct live *l, uint32_t n)
{
	memset(t, 0, sizeof(*t));
	t->l = l;
	t->n = n;
	prng_init(&t->rng, n + 1);
	t->buf = calloc(1, LEN_MAX);
	t->resp = malloc(LEN_MAX);
}

static void thread_fini(struct thread *t)
{
	free(t->buf);
	free(t->resp);
}

static void threads_run(struct thread *t, unsigned n, void *(*fn)(void *arg))
{
	for (unsigned i = 0; i < n; i++)
		if (pthread_create(&t[i].id, NULL, fn, &t[i]))
			abort();
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i].id, NULL);
}

/* assert() of cmocka is the main thread's only. */
#define MUST(x)                                                                \
	do {                                                                   \
		if (!(x)) {                                                    \
			fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, \
				#x);                                           \
			abort();                                               \
		}                                                              \
	} while (0)

static size_t some_len(struct thread *t)
{
	size_t most = t->l->len_max;

	if (most && !prng_below(&t->rng, 8))
		return sizeof(struct ask) + prng_below(&t->rng, most);
	return sizeof(struct ask) + prng_below(&t->rng, 120);
}

static size_t ask_fill(struct thread *t, uint32_t seq)
{
	struct ask ask = {(uint32_t)some_len(t), t->n, seq, seq};
	size_t len = some_len(t);

	memcpy(t->buf, &ask, sizeof(ask));
	if (len > sizeof(ask))
		t->buf[len - 1] = (uint8_t)seq;
	return len;
}

static bool answer_is(const struct skein_rpc_result *res, uint32_t thread,
		      uint32_t seq)
{
	const uint8_t *data = res->data;
	struct ask ask;

	if (res->len < sizeof(ask))
		return false;
	memcpy(&ask, data, sizeof(ask));
	return ask.thread == thread && ask.seq == seq &&
	       ask.resp_len == res->len &&
	       (res->len == sizeof(ask) || data[res->len - 1] == (uint8_t)seq);
}

/* --- blocking ----------------------------------------------------------- */

static void *calls_main(void *arg)
{
	struct thread *t = arg;
	struct skein_rpc_result res;
	size_t len;
	int rc;

	for (uint32_t n = 1; n <= t->l->calls; n++) {
		len = ask_fill(t, n);
		rc = skein_rpc_call(t->l->conn, CALL, t->buf, len, t->resp,
				    LEN_MAX, patience_ns(60), &res);
		MUST(rc == 0 && res.outcome == SKEIN_DONE);
		MUST(answer_is(&res, t->n, n));
		atomic_fetch_add(&t->l->ended, 1);
	}
	return NULL;
}

static void run_calls(unsigned qps, unsigned threads, unsigned calls,
		      enum skein_wait wait, bool background, size_t len_max,
		      void *(*fn)(void *arg))
{
	struct thread t[THREADS_MAX];
	struct skein_rpc_stats st = {.size = sizeof(st)};
	struct live l;

	live_start(&l, qps, wait, background);
	l.calls = calls;
	l.len_max = len_max;
	for (unsigned i = 0; i < threads; i++)
		thread_init(&t[i], &l, i);
	threads_run(t, threads, fn);
	assert_int_equal(atomic_load(&l.ended), threads * calls);
	assert_int_equal(skein_rpc_get_stats(l.conn, &st), 0);
	assert_int_equal(st.calls, threads * calls);
	assert_int_equal(st.lanes, qps);
	/* what was granted and not used; at most 2 C a lane */
	assert_true(st.credits <= 64ull * qps);
	for (unsigned i = 0; i < threads; i++)
		thread_fini(&t[i]);
	live_stop(&l);
}

static void test_blocking(void **state)
{
	run_calls(1, 1, 300, SKEIN_WAIT_POLL, false, 0, calls_main);
	run_calls(3, 6, 300, SKEIN_WAIT_ADAPTIVE, false, 0, calls_main);
	run_calls(2, 4, 200, SKEIN_WAIT_ADAPTIVE, true, 0, calls_main);
}

static void test_blocking_large(void **state)
{
	run_calls(2, 4, 60, SKEIN_WAIT_ADAPTIVE, false, 12000, calls_main);
	run_calls(2, 3, 40, SKEIN_WAIT_ADAPTIVE, false, 150000, calls_main);
}

/* However many they are, and however they wait, all get on. */
static void test_wait_modes(void **state)
{
	static const enum skein_wait modes[] = {
		SKEIN_WAIT_ADAPTIVE, SKEIN_WAIT_POLL, SKEIN_WAIT_EVENT};

	for (unsigned i = 0; i < 3; i++)
		run_calls(2, THREADS_MAX, 20, modes[i], false, 0, calls_main);
}

/* --- asynchronous ------------------------------------------------------- */

struct call {
	struct thread *t;
	uint32_t seq;
};

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	struct call *call = arg;
	struct thread *t = call->t;

	MUST(res->outcome == SKEIN_DONE && !res->status);
	MUST(answer_is(res, t->n, call->seq));
	/* in its thread, in the order of its calls */
	MUST(pthread_equal(pthread_self(), t->self));
	MUST(++t->answered == call->seq);
	atomic_fetch_add(&t->l->ended, 1);
	free(call);
}

static int call_async(struct thread *t, uint32_t seq, uint64_t timeout,
		      skein_rpc_done_fn *done)
{
	struct call *call = malloc(sizeof(*call));
	size_t len = ask_fill(t, seq);
	int rc;

	*call = (struct call){t, seq};
	rc = skein_rpc_call_async(t->l->conn, CALL, t->buf, len, t->l->resp_max,
				  timeout, done, call);
	if (rc)
		free(call);
	return rc;
}

/* As call_async(), but it leaves at once. */
static int call_now(struct thread *t, uint64_t timeout, skein_rpc_done_fn *done)
{
	struct skein_rpc_entry e = {.id = CALL,
				    .req = t->buf,
				    .req_len = ask_fill(t, 0),
				    .resp_max = t->l->resp_max,
				    .timeout_ns = timeout,
				    .done = done};
	struct call *call = malloc(sizeof(*call));
	unsigned begun;
	int rc;

	*call = (struct call){t, 0};
	e.arg = call;
	rc = skein_rpc_call_batch(t->l->conn, &e, 1, &begun);
	if (rc)
		free(call);
	return rc;
}

static void *async_main(void *arg)
{
	struct thread *t = arg;
	int rc;

	t->self = pthread_self();
	while (t->answered < t->l->calls) {
		rc = t->sent < t->l->calls && t->sent - t->answered < 8
			     ? call_async(t, t->sent + 1, patience_ns(60),
					  call_done)
			     : -EAGAIN;
		t->sent += !rc;
		MUST(!rc || rc == -EAGAIN);
		if (rc)
			MUST(skein_rpc_reap(t->l->conn, patience_ns(60)) >= 0);
	}
	MUST(skein_rpc_reap(t->l->conn, 0) == 0);
	return NULL;
}

static void test_async(void **state)
{
	run_calls(1, 1, 500, SKEIN_WAIT_POLL, false, 0, async_main);
	run_calls(3, 6, 400, SKEIN_WAIT_ADAPTIVE, false, 0, async_main);
	run_calls(2, 4, 300, SKEIN_WAIT_EVENT, true, 0, async_main);
}

static void test_async_large(void **state)
{
	run_calls(2, 3, 60, SKEIN_WAIT_ADAPTIVE, false, 12000, async_main);
	run_calls(2, 3, 30, SKEIN_WAIT_ADAPTIVE, false, 150000, async_main);
}

/* --- several at once ----------------------------------------------------- */

#define BATCH 40u /* more than a message has */

/* Calls from + 1 on, each with bytes of its own until they have begun. Returns
 * how many have. */
static unsigned batch_call(struct thread *t, uint32_t from, unsigned n,
			   skein_rpc_done_fn *done)
{
	struct skein_rpc_entry entries[BATCH] = {0};
	struct call *call;
	unsigned i, begun = 0;
	size_t len;
	int rc;

	for (i = 0; i < n; i++) {
		call = malloc(sizeof(*call));
		*call = (struct call){t, from + i + 1};
		len = ask_fill(t, from + i + 1);
		entries[i] =
			(struct skein_rpc_entry){.id = CALL,
						 .req = malloc(len),
						 .req_len = len,
						 .resp_max = t->l->resp_max,
						 .timeout_ns = patience_ns(60),
						 .done = done,
						 .arg = call};
		memcpy((void *)(uintptr_t)entries[i].req, t->buf, len);
	}
	rc = skein_rpc_call_batch(t->l->conn, entries, n, &begun);
	MUST(rc == 0 ? begun || !n : rc == -EAGAIN && !begun);
	for (i = 0; i < n; i++) {
		free((void *)(uintptr_t)entries[i].req);
		if (i >= begun)
			free(entries[i].arg);
	}
	return begun;
}

static void *batch_main(void *arg)
{
	struct thread *t = arg;
	unsigned n;

	t->self = pthread_self();
	while (t->answered < t->l->calls) {
		n = prng_below(&t->rng, BATCH + 1);
		if (n > t->l->calls - t->sent)
			n = t->l->calls - t->sent;
		n = batch_call(t, t->sent, n, call_done);
		t->sent += n;
		/* now and then one by itself, or one that waits */
		if (t->sent < t->l->calls && !prng_below(&t->rng, 4))
			t->sent += !call_async(t, t->sent + 1, patience_ns(60),
					       call_done);
		MUST(skein_rpc_reap(t->l->conn, n ? 0 : patience_ns(60)) >= 0);
	}
	MUST(skein_rpc_reap(t->l->conn, 0) == 0);
	return NULL;
}

static void test_batch(void **state)
{
	run_calls(1, 1, 500, SKEIN_WAIT_POLL, false, 0, batch_main);
	run_calls(1, 8, 400, SKEIN_WAIT_POLL, false, 0, batch_main);
	run_calls(3, 6, 400, SKEIN_WAIT_ADAPTIVE, false, 0, batch_main);
	run_calls(2, 4, 300, SKEIN_WAIT_EVENT, true, 0, batch_main);
}

static void test_batch_large(void **state)
{
	run_calls(2, 3, 60, SKEIN_WAIT_ADAPTIVE, false, 12000, batch_main);
	run_calls(2, 3, 30, SKEIN_WAIT_ADAPTIVE, false, 150000, batch_main);
}

/* One message while there is room for all, as many as there are credits for, and
 * none without; what none of is wanted, or one is too long, changes nothing. */
static void test_batch_room(void **state)
{
	struct skein_rpc_entry entry = {.id = CALL,
					.req_len = SKEIN_RPC_LEN_MAX + 1ull};
	struct skein_rpc_stats before = {.size = sizeof(before)};
	struct skein_rpc_stats st = {.size = sizeof(st)};
	struct thread own;
	unsigned n, begun = 7, sent = 0;
	struct live l;

	live_start(&l, 2, SKEIN_WAIT_ADAPTIVE, false);
	l.calls = UINT32_MAX;
	l.resp_max = 256;
	thread_init(&own, &l, 0);
	own.self = pthread_self();
	assert_int_equal(skein_rpc_call_batch(l.conn, &entry, 1, &begun),
			 -EMSGSIZE);
	assert_int_equal(begun, 7);
	assert_int_equal(skein_rpc_call_batch(l.conn, NULL, 0, &begun), 0);
	assert_int_equal(begun, 0);
	assert_int_equal(skein_rpc_get_stats(l.conn, &before), 0);
	assert_int_equal(batch_call(&own, 0, 8, call_done), 8);
	assert_int_equal(skein_rpc_get_stats(l.conn, &st), 0);
	assert_int_equal(st.calls - before.calls, 8);
	assert_int_equal(st.messages_sent - before.messages_sent, 1);
	assert_int_equal(st.degrees[7] - before.degrees[7], 1);
	while (own.answered < 8)
		assert_true(skein_rpc_reap(l.conn, patience_ns(60)) >= 0);
	assert_int_equal(skein_rpc_get_stats(l.conn, &before), 0);
	kill(l.server, SIGSTOP);
	while ((n = batch_call(&own, 8 + sent, BATCH, call_done)))
		sent += n;
	assert_int_equal(skein_rpc_get_stats(l.conn, &st), 0);
	n = (unsigned)(st.messages_sent - before.messages_sent);
	assert_in_range(n, 1, before.credits + 32);
	assert_in_range(sent, n + 1, 16 * n);
	kill(l.server, SIGCONT);
	while (own.answered < 8 + sent)
		assert_true(skein_rpc_reap(l.conn, patience_ns(60)) >= 0);
	thread_fini(&own);
	live_stop(&l);
}

static void *sleeper_main(void *arg)
{
	struct thread *t = arg;
	int n;

	t->self = pthread_self();
	while (t->answered < t->l->calls) {
		if (t->sent == t->answered)
			t->sent += batch_call(t, t->sent, 8, call_done);
		/* longer than the engine is run: it must be told */
		n = skein_rpc_reap(t->l->conn, SKEIN_S(100));
		MUST(n > 0);
	}
	skein_engine_stop(skein_ctx_engine(t->l->ctx));
	return NULL;
}

/* Another thread runs the engine and never leaves: who sleeps is woken by the
 * round that answers its calls, though that has ended all of them by then. */
static void test_batch_asleep(void **state)
{
	struct thread t;
	struct live l;

	live_start(&l, 1, SKEIN_WAIT_EVENT, false);
	l.calls = 80;
	l.resp_max = 256;
	thread_init(&t, &l, 0);
	assert_int_equal(pthread_create(&t.id, NULL, sleeper_main, &t), 0);
	assert_int_equal(
		skein_engine_run(skein_ctx_engine(l.ctx), patience_ns(60)), 0);
	pthread_join(t.id, NULL);
	assert_int_equal(atomic_load(&l.ended), 80);
	thread_fini(&t);
	live_stop(&l);
}

/* On a connection of its own they are flushed. */
static void test_batch_private(void **state)
{
	struct skein_rpc_stats before = {.size = sizeof(before)};
	struct skein_rpc_stats st = {.size = sizeof(st)};
	struct thread own;
	struct live l;

	live_start(&l, 0, SKEIN_WAIT_POLL, false);
	l.resp_max = 256;
	thread_init(&own, &l, 0);
	own.self = pthread_self();
	assert_int_equal(skein_rpc_get_stats(l.conn, &before), 0);
	assert_int_equal(batch_call(&own, 0, 8, call_done), 8);
	assert_int_equal(skein_rpc_get_stats(l.conn, &st), 0);
	assert_int_equal(st.calls - before.calls, 8);
	assert_int_equal(st.messages_sent - before.messages_sent, 1);
	while (own.answered < 8)
		skein_ctx_progress(l.ctx);
	thread_fini(&own);
	live_stop(&l);
}

/* --- ends --------------------------------------------------------------- */

static void end_done(void *arg, const struct skein_rpc_result *res)
{
	struct call *call = arg;
	struct live *l = call->t->l;

	if (res->outcome == SKEIN_UNKNOWN)
		atomic_fetch_add(&l->lost, 1);
	else if (res->outcome == SKEIN_NOT_SENT)
		atomic_fetch_add(&l->not_sent, 1);
	atomic_fetch_add(&l->ended, 1);
	free(call);
}

/* Makes calls and goes. */
static void *leaver_main(void *arg)
{
	struct thread *t = arg;

	for (uint32_t n = 1; n <= 10; n++)
		if (call_async(t, 0, patience_ns(60), end_done) == 0)
			t->sent++;
	return NULL;
}

static void test_thread_exit(void **state)
{
	struct thread t[8];
	unsigned sent = 0;
	struct thread own;
	struct live l;

	live_start(&l, 2, SKEIN_WAIT_ADAPTIVE, false);
	for (unsigned round = 0; round < 5; round++) {
		for (unsigned i = 0; i < 8; i++)
			thread_init(&t[i], &l, i);
		threads_run(t, 8, leaver_main);
		for (unsigned i = 0; i < 8; i++) {
			sent += t[i].sent;
			thread_fini(&t[i]);
		}
		/* The thread that runs the engine ends them. */
		thread_init(&own, &l, 9);
		l.calls = 1;
		while (atomic_load(&l.ended) < sent)
			assert_true(skein_ctx_progress(l.ctx) >= 0);
		thread_fini(&own);
	}
	assert_int_equal(atomic_load(&l.ended), sent);
	assert_true(sent >= 8 * 5);
	live_stop(&l);
	assert_int_equal(atomic_load(&l.ended), sent);
}

/* Answers that nobody has asked for are told when the handle closes. */
static void test_unreaped(void **state)
{
	struct thread own;
	struct live l;

	live_start(&l, 2, SKEIN_WAIT_ADAPTIVE, false);
	thread_init(&own, &l, 0);
	for (uint32_t n = 1; n <= 20; n++)
		assert_int_equal(call_async(&own, n, patience_ns(60), end_done),
				 0);
	live_stop(&l);
	assert_int_equal(atomic_load(&l.ended), 20);
	thread_fini(&own);
}

/* AddressSanitizer does not see that a cancelled thread's frames are gone, and
 * takes the C library's next ones for overflows. */
static void frames_gone(void *arg)
{
#ifdef __SANITIZE_ADDRESS__
	void __asan_handle_no_return(void);

	__asan_handle_no_return();
#endif
}

static void *cancelled_main(void *arg)
{
	struct thread *t = arg;
	struct skein_rpc_result res;
	size_t len;

	pthread_cleanup_push(frames_gone, NULL);
	for (;;) {
		len = ask_fill(t, 0);
		MUST(!skein_rpc_call(t->l->conn, CALL, t->buf, len, t->resp,
				     LEN_MAX, patience_ns(60), &res));
		atomic_fetch_add(&t->l->ended, 1);
		pthread_testcancel();
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void test_cancel(void **state)
{
	struct thread t[4];
	struct live l;
	void *ret;

	live_start(&l, 2, SKEIN_WAIT_ADAPTIVE, false);
	for (unsigned i = 0; i < 4; i++) {
		thread_init(&t[i], &l, i);
		assert_int_equal(pthread_create(&t[i].id, NULL, cancelled_main,
						&t[i]),
				 0);
	}
	while (atomic_load(&l.ended) < 40)
		sched_yield();
	for (unsigned i = 0; i < 4; i++)
		pthread_cancel(t[i].id);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(t[i].id, &ret);
		assert_ptr_equal(ret, PTHREAD_CANCELED);
		thread_fini(&t[i]);
	}
	live_stop(&l);
}

/* Until the connection is gone. */
static void *doomed_main(void *arg)
{
	struct thread *t = arg;
	struct skein_rpc_result res;
	size_t len;
	int rc;

	do {
		if (call_async(t, 0, patience_ns(60), end_done) == 0)
			t->sent++;
		len = ask_fill(t, 0);
		rc = skein_rpc_call(t->l->conn, CALL, t->buf, len, t->resp,
				    LEN_MAX, patience_ns(60), &res);
		MUST(rc == 0 || res.outcome != SKEIN_DONE);
		if (!rc)
			atomic_fetch_add(&t->l->refused, 1);
	} while (!rc);
	return NULL;
}

static void test_killed(void **state)
{
	struct thread t[6];
	unsigned sent = 0;
	struct live l;

	live_start(&l, 3, SKEIN_WAIT_ADAPTIVE, false);
	for (unsigned i = 0; i < 6; i++) {
		thread_init(&t[i], &l, i);
		assert_int_equal(
			pthread_create(&t[i].id, NULL, doomed_main, &t[i]), 0);
	}
	while (atomic_load(&l.refused) < 60)
		sched_yield();
	kill(l.server, SIGKILL);
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(t[i].id, NULL);
		sent += t[i].sent;
		thread_fini(&t[i]);
	}
	live_stop(&l);
	assert_int_equal(atomic_load(&l.ended), sent);
}

/* A server that does not answer: calls end when their time is up, as unknown;
 * with room for no more, as not sent. */
static void test_deadlines(void **state)
{
	struct skein_rpc_result res;
	struct thread own;
	uint64_t once = SKEIN_MS(5), each = patience_ns(1);
	unsigned sent = 0;
	struct live l;
	size_t len;
	int rc;

	live_start(&l, 2, SKEIN_WAIT_ADAPTIVE, false);
	thread_init(&own, &l, 0);
	l.resp_max = 256;
	/* A server that answers has met all lanes: none is in its handshake when
	 * it stops. */
	len = ask_fill(&own, 0);
	assert_int_equal(skein_rpc_call(l.conn, CALL, own.buf, len, own.resp,
					LEN_MAX, patience_ns(60), &res),
			 0);
	kill(l.server, SIGSTOP);
	len = ask_fill(&own, 0);
	/* a call that was not sent before its deadline is made again */
	do {
		rc = skein_rpc_call(l.conn, CALL, own.buf, len, own.resp,
				    LEN_MAX, once, &res);
		assert_int_equal(rc, -ETIMEDOUT);
		once *= 2;
	} while (res.outcome == SKEIN_NOT_SENT && once < patience_ns(30));
	assert_int_equal(res.outcome, SKEIN_UNKNOWN);
	/* until the credits are spent, which none gives back before it ends */
	while (call_now(&own, each, end_done) == 0)
		sent++;
	assert_int_equal(sent, 30);
	len = ask_fill(&own, 0);
	rc = skein_rpc_call(l.conn, CALL, own.buf, len, own.resp, LEN_MAX,
			    SKEIN_MS(5), &res);
	assert_int_equal(rc, -ETIMEDOUT);
	assert_int_equal(res.outcome, SKEIN_NOT_SENT);
	while (atomic_load(&l.ended) < sent)
		assert_true(skein_rpc_reap(l.conn, patience_ns(60)) >= 0);
	assert_int_equal(atomic_load(&l.lost), sent);
	kill(l.server, SIGCONT);
	len = ask_fill(&own, 0);
	rc = skein_rpc_call(l.conn, CALL, own.buf, len, own.resp, LEN_MAX,
			    patience_ns(60), &res);
	assert_int_equal(rc, 0);
	thread_fini(&own);
	live_stop(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking),
		cmocka_unit_test(test_blocking_large),
		cmocka_unit_test(test_wait_modes),
		cmocka_unit_test(test_async),
		cmocka_unit_test(test_async_large),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_batch_large),
		cmocka_unit_test(test_batch_room),
		cmocka_unit_test(test_batch_asleep),
		cmocka_unit_test(test_batch_private),
		cmocka_unit_test(test_thread_exit),
		cmocka_unit_test(test_unreaped),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_deadlines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
