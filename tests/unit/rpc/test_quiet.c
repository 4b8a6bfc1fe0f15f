/* SPDX-License-Identifier: MIT */
/*
 * test_quiet.c - connections that say nothing, and the first call behind a
 * silence. Both ends are driven in turns by one thread, which counts rounds.
 */
#include "unit/cm.h"

#include "conn/eng.h"
#include "rpc/share.h"
#include "unit/device.h"
#include <skein/skein.h>

#define CONNS 24u
#define ECHO 7
#define LAP (CONNS / POLLS_SWEEP)

struct ends {
	struct skein_ctx *server, *client;
	struct skein_listener *l;
	struct skein_conn *conns[CONNS];
	struct polls *polls; /* the server's */
	unsigned done;
};

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	assert_int_equal(res->status, 0);
	++*(unsigned *)arg;
}

static struct skein_ctx *ctx_new(enum skein_wait wait)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = test_device(), .wait = wait};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static void turns(struct ends *e)
{
	skein_ctx_progress(e->client);
	skein_ctx_progress(e->server);
}

/* The server's rounds until the answer is there. */
static unsigned call_rounds(struct ends *e, unsigned i)
{
	unsigned rounds = 0;

	e->done = 0;
	assert_int_equal(skein_rpc_call_async(e->conns[i], ECHO, NULL, 0, 0,
					      SKEIN_S(60), on_done, &e->done),
			 0);
	while (!e->done) {
		skein_ctx_progress(e->server);
		rounds++;
		skein_ctx_progress(e->client);
	}
	return rounds;
}

static void ends_open(struct ends *e, enum skein_wait wait)
{
	*e = (struct ends){.server = ctx_new(wait), .client = ctx_new(wait)};
	assert_int_equal(skein_rpc_handle(e->server, ECHO, on_echo, NULL), 0);
	assert_int_equal(
		skein_listener_open(e->server, "127.0.0.1:0", NULL, &e->l), 0);
	e->polls = &skein_ctx_engine(e->server)->polls;
	for (unsigned i = 0; i < CONNS; i++)
		assert_int_equal(skein_conn_open_async(
					 e->client, skein_listener_addr(e->l),
					 NULL, &e->conns[i]),
				 0);
	for (unsigned i = 0; i < CONNS; i++)
		while (skein_conn_get_state(e->conns[i]) != SKEIN_CONN_READY)
			turns(e);
	/* What is mapped at its first use is mapped. */
	for (unsigned i = 0; i < CONNS; i++)
		call_rounds(e, i);
}

static void ends_close(struct ends *e)
{
	struct skein_engine *eng = skein_ctx_engine(e->server);

	for (unsigned i = 0; i < CONNS; i++)
		skein_conn_close(e->conns[i], 0);
	while (atomic_load(&eng->n_conns))
		turns(e);
	skein_ctx_close(e->client);
	skein_ctx_close(e->server);
}

static void all_silent(struct ends *e)
{
	while (e->polls->active)
		turns(e);
}

/* As if the peers were of those that do not know RPC_CTL_QUIET. */
static void forget(struct ends *e)
{
	for (unsigned i = 0; i < e->polls->n; i++)
		((struct rpc_conn *)e->polls->e[i]->state)->tells_quiet = false;
}

static uint64_t wakeups(struct ends *e, unsigned i)
{
	struct rpc_conn *rc = rpc_conn_of(e->conns[i]);

	return rc->share->wakeups;
}

/* An immediate comes with the first message behind a silence, and with no other:
 * the round that takes it in is followed by the one that answers. The client's
 * engine has had no round since the last call. */
static void test_immediate(void **state)
{
	struct polls *callers;
	struct ends e;

	ends_open(&e, SKEIN_WAIT_POLL);
	callers = &skein_ctx_engine(e.client)->polls;
	for (int lap = 0; lap < 2; lap++) {
		while (e.polls->active)
			skein_ctx_progress(e.server);
		for (unsigned i = 0; i < CONNS; i++) {
			uint64_t before = wakeups(&e, i);

			assert_in_range(call_rounds(&e, i), 1, 3);
			assert_int_equal(wakeups(&e, i), before + 1);
			assert_int_equal(call_rounds(&e, i), 1);
			assert_int_equal(wakeups(&e, i), before + 1);
		}
	}
	/* At both ends, and a caller that rests is polled from its call on. */
	while (e.polls->active || callers->active)
		turns(&e);
	assert_int_equal(callers->n - callers->swept, CONNS);
	assert_in_range(call_rounds(&e, 3), 1, 3);
	assert_int_equal(callers->active, 1);
	assert_int_equal(e.polls->active, 1);
	ends_close(&e);
}

/* The sweep finds each of them within a lap, whatever the order. */
static void test_swept(void **state)
{
	uint64_t before;
	struct ends e;

	ends_open(&e, SKEIN_WAIT_POLL);
	forget(&e);
	all_silent(&e);
	assert_int_equal(e.polls->swept, CONNS);
	for (unsigned i = 0; i < CONNS; i++) {
		unsigned k = i * 7 % CONNS;

		assert_in_range(call_rounds(&e, k), 1, LAP + 2);
		/* From here on rounds look at it. */
		assert_int_equal(call_rounds(&e, k), 1);
	}
	all_silent(&e);
	before = wakeups(&e, 0);
	assert_in_range(call_rounds(&e, 0), 1, LAP + 2);
	assert_int_equal(wakeups(&e, 0), before);
	ends_close(&e);
}

/* Asleep, with leave to: nothing looks at them, and a call wakes. */
static void test_notified(void **state)
{
	struct skein_engine *eng;
	struct ends e;

	ends_open(&e, SKEIN_WAIT_EVENT);
	eng = skein_ctx_engine(e.server);
	while (e.polls->active || e.polls->swept) {
		(void)skein_engine_arm(eng);
		turns(&e);
	}
	assert_int_equal(e.polls->n, CONNS);
	/* The round that polls the CQ, the next one, and CQs that have turns. */
	for (unsigned i = 0; i < CONNS; i++)
		assert_in_range(call_rounds(&e, i), 1, 4);
	ends_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_immediate),
		cmocka_unit_test(test_swept),
		cmocka_unit_test(test_notified),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
