/* SPDX-License-Identifier: MIT */
/*
 * test_quiet.c - connections that say nothing, and the first call behind a
 * silence. Both ends are driven in turns by one thread, which counts rounds.
 */
#include "unit/cm.h"

#include "conn/eng.h"
#include "rpc/client/lane_client.h"
#include "unit/device.h"
#include <skein/skein.h>

/* Their server has three CQs, which have turns. */
#define CONNS 72u
#define ECHO 7
#define LAP (CONNS / POLLS_SWEEP)
/* By an immediate: until its CQ has its turn, and the round after. */
#define SOON(e) (skein_ctx_engine((e)->server)->n_cqs + 1)

struct ends {
	struct skein_ctx *server, *client;
	struct skein_listener *l;
	struct skein_conn *conns[CONNS];
	struct polls *polls; /* the server's */
	unsigned done, served;
};

static int on_echo(struct skein_rpc_req *req, void *arg)
{
	++*(unsigned *)arg;
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
		assert_in_range(++rounds, 1, 1000000);
		skein_ctx_progress(e->client);
	}
	return rounds;
}

static void ends_open(struct ends *e, enum skein_wait wait)
{
	*e = (struct ends){.server = ctx_new(wait), .client = ctx_new(wait)};
	assert_int_equal(skein_rpc_handle(e->server, ECHO, on_echo, &e->served),
			 0);
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

	return rc->lane_client->wakeups;
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
	assert_int_equal(skein_ctx_engine(e.server)->n_cqs, 3);
	for (int lap = 0; lap < 2; lap++) {
		while (e.polls->active)
			skein_ctx_progress(e.server);
		for (unsigned i = 0; i < CONNS; i++) {
			uint64_t before = wakeups(&e, i);

			assert_in_range(call_rounds(&e, i), 1, SOON(&e));
			assert_int_equal(wakeups(&e, i), before + 1);
			assert_int_equal(call_rounds(&e, i), 1);
			assert_int_equal(wakeups(&e, i), before + 1);
		}
	}
	/* At both ends, and a caller that rests is polled from its call on. */
	while (e.polls->active || callers->active)
		turns(&e);
	assert_int_equal(callers->n - callers->swept, CONNS);
	assert_in_range(call_rounds(&e, 3), 1, SOON(&e));
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
	for (unsigned i = 0; i < CONNS; i++)
		assert_in_range(call_rounds(&e, i), 1, SOON(&e));
	ends_close(&e);
}

/* When the last of the server's connections stops dozing. */
static uint64_t doze_end(struct ends *e)
{
	uint64_t end = 0;

	for (unsigned i = 0; i < e->polls->n; i++) {
		struct rpc_conn *rc = e->polls->e[i]->state;

		if (rc->port.event.doze_end_ns > end)
			end = rc->port.event.doze_end_ns;
	}
	return end;
}

/* The server sleeps, and peers of which nobody runs the engine have not granted
 * it: it looks at all of them when its doze ends, not at a few. */
static void test_dozing(void **state)
{
	struct skein_engine *eng;
	uint64_t deadline, end;
	struct ends e;

	ends_open(&e, SKEIN_WAIT_EVENT);
	eng = skein_ctx_engine(e.server);
	forget(&e);
	while (e.polls->active)
		skein_ctx_progress(e.server);
	assert_int_equal(e.polls->swept, CONNS);
	assert_int_equal(engine_enter(eng->e, ENV_NEVER), 0);
	do
		engine_poll(eng->e);
	while (engine_arm(eng->e, &deadline));
	end = doze_end(&e);
	assert_in_range(deadline, 1, end);
	assert_true(end <= engine_now_ns(eng->e) + RPC_EVENT_DOZE_MAX_NS);
	engine_disarm(eng->e);
	e.served = e.done = 0;
	assert_int_equal(skein_rpc_call_async(e.conns[CONNS / 2], ECHO, NULL, 0,
					      0, SKEIN_S(60), on_done, &e.done),
			 0);
	while (env_now_ns(eng->env) < end)
		;
	/* As a sleep that times out: a round, and the next attempt to sleep. */
	engine_poll(eng->e);
	if (!e.served)
		assert_int_equal(engine_arm(eng->e, &deadline), 1);
	engine_poll(eng->e);
	assert_int_equal(e.served, 1);
	engine_leave(eng->e);
	while (!e.done)
		turns(&e);
	ends_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_immediate),
		cmocka_unit_test(test_swept),
		cmocka_unit_test(test_notified),
		cmocka_unit_test(test_dozing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
