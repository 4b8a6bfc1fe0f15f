/* SPDX-License-Identifier: MIT */
/*
 * test_deferred.c - requests that are answered later: a slow one holds up no
 * other, whatever their number; the bound of those in other hands; the end of
 * the connection while others have them; garbage; short memory. (Random
 * schedules of the same: test_schedules.c.)
 */
#include <errno.h>
#include <string.h>

#include "env/env.h"
#include "unit/cm.h"
#include "pair.h"

#define MS 1000000ull
#define ECHO 1
#define LATER 2

static struct skein_env *env;

static struct skein_rpc_req *held[PAIR_WINDOW + 1];
static unsigned held_count;

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static int later(struct skein_rpc_req *req, void *arg)
{
	int rc = skein_rpc_defer(req, &held[held_count]);

	held_count += !rc;
	return rc;
}

static void setup(struct pair *p, struct pair_opts opts)
{
	held_count = 0;
	opts.seed = 5;
	opts.env = env;
	pair_init(p, &opts);
	assert_int_equal(rpc_handlers_add(&p->handlers, env, ECHO, echo, NULL),
			 0);
	assert_int_equal(
		rpc_handlers_add(&p->handlers, env, LATER, later, NULL), 0);
}

static void teardown(struct pair *p)
{
	pair_fini(p);
	rpc_handlers_fini(&p->handlers, env);
}

static int call(struct pair *p, unsigned id, const void *data, size_t len,
		uint64_t timeout, struct pair_tally *e)
{
	return pair_call(p, (uint16_t)id, data, len, len, timeout, pair_count,
			 e);
}

/* Ten windows of calls overtake one that is slow; so does its own kind. */
static void test_overtaken(void **state)
{
	struct pair_tally slow = {0}, other = {0}, fast = {0};
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {64, 64, 16}});
	assert_int_equal(call(&p, LATER, "slowslow", 8, SKEIN_FOREVER, &slow),
			 0);
	assert_int_equal(call(&p, LATER, "otherone", 8, 5 * MS, &other), 0);
	for (int i = 0; i < 10 * PAIR_WINDOW; i++) {
		assert_int_equal(
			call(&p, ECHO, "fastfast", 8, SKEIN_FOREVER, &fast), 0);
		pair_exchange(&p);
		assert_int_equal(fast.done, i + 1);
	}
	assert_int_equal(held_count, 2);
	assert_true(rpc_client_busy(&p.client));
	assert_true(rpc_server_busy(&p.server));
	assert_false(rpc_server_has_work(&p.server));
	/* A parked call still has its deadline. */
	assert_true(p.client.rx.calls.earliest_ns <= p.now_ns + 5 * MS);
	p.now_ns += 5 * MS;
	pair_exchange(&p);
	assert_int_equal(other.unknown, 1);
	assert_int_equal(slow.done + slow.unknown, 0);
	assert_int_equal(skein_rpc_answer(held[1], 0), 0);
	assert_true(p.ends[1].woken);
	assert_true(rpc_server_has_work(&p.server));
	assert_int_equal(echo(held[0], NULL), 0);
	assert_int_equal(skein_rpc_answer(held[0], 0), 0);
	pair_exchange(&p);
	assert_int_equal(slow.done, 1);
	assert_memory_equal(slow.data, "slowslow", 8);
	assert_int_equal(other.done, 0);
	assert_false(rpc_client_busy(&p.client));
	assert_false(rpc_server_busy(&p.server));
	teardown(&p);
}

/* One round of the calling end, in which it wants a call of 100 bytes. */
static int round_with_call(struct pair *p, struct pair_tally *e)
{
	static const uint8_t data[100];

	p->now_ns += 1000;
	assert_true(pair_poll(p, p->now_ns) >= 0);
	pair_settle(p);
	return call(p, LATER, data, sizeof(data), SKEIN_FOREVER, e);
}

/* The server reads requests and answers none: READs alone tell the caller where
 * Head is. They are few while it stands still, for a READ is progress, and an end
 * that makes progress in each round keeps the core which the server waits for. */
static void test_head_reads(void **state)
{
	struct pair_tally e = {0};
	uint64_t reads, stands;
	struct pair p;
	int n = 0;

	setup(&p, (struct pair_opts){.geom = {32, 1024, 16}});
	while (!round_with_call(&p, &e))
		n++;
	assert_in_range(n, 4, 16);
	stands = p.now_ns;
	while (p.now_ns < stands + 10 * MS)
		assert_int_equal(round_with_call(&p, &e), -EAGAIN);
	/* gaps of 5, 10, 20 us, ... and then of 1 ms */
	reads = p.ends[0].port.stats.head_reads;
	assert_in_range(reads, 10, 20);
	assert_true(rpc_client_head_next(&p.client) <= p.now_ns + MS);
	assert_true(rpc_server_poll(&p.server) >= 0);
	assert_int_equal(held_count, n);
	stands = p.now_ns;
	while (round_with_call(&p, &e))
		assert_true(p.now_ns <= stands + MS + 2000);
	/* Short gaps again; and none is READ when nobody lacks room. */
	assert_true(rpc_client_head_next(&p.client) == ENV_NEVER);
	assert_int_equal(p.ends[0].port.stats.head_reads, reads + 1);
	while (!round_with_call(&p, &e))
		n++;
	assert_true(rpc_client_head_next(&p.client) <= p.now_ns + 5000);
	teardown(&p);
}

struct burst {
	struct pair *p;
	struct pair_tally slow, fast;
};

/* Inside a round: a slow call, and so many behind it that it is parked before
 * any round has seen it. */
static void on_burst(void *arg, const struct skein_rpc_result *res)
{
	struct burst *b = arg;
	struct pair *p = b->p;

	assert_int_equal(call(p, LATER, "slowslow", 8, 5 * MS, &b->slow), 0);
	for (int i = 0; i < PAIR_WINDOW / 2 + 1; i++)
		assert_int_equal(
			call(p, ECHO, "fast", 4, SKEIN_FOREVER, &b->fast), 0);
	assert_int_equal(pair_flush(p), 0);
	pair_settle(p);
	assert_true(rpc_server_poll(&p->server) > 0);
	pair_settle(p);
}

/* Its time begins with the round all the same. */
static void test_overtaken_in_a_round(void **state)
{
	struct burst b = {0};
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {512, 512, 16}});
	b.p = &p;
	p.now_ns = 1000 * MS;
	assert_int_equal(
		pair_call(&p, ECHO, "x", 1, 1, SKEIN_FOREVER, on_burst, &b), 0);
	assert_int_equal(pair_flush(&p), 0);
	pair_settle(&p);
	assert_true(rpc_server_poll(&p.server) > 0);
	pair_settle(&p);
	assert_true(pair_poll(&p, p.now_ns) > 0);
	assert_int_equal(b.fast.done, PAIR_WINDOW / 2 + 1);
	assert_int_equal(p.client.rx.park.n, 1);
	assert_true(p.client.rx.calls.earliest_ns <= p.now_ns + 5 * MS);
	p.now_ns += 5 * MS - 1;
	pair_poll(&p, p.now_ns);
	assert_int_equal(b.slow.unknown, 0);
	p.now_ns++;
	pair_poll(&p, p.now_ns);
	assert_int_equal(b.slow.unknown, 1);
	assert_int_equal(b.slow.status, -ETIMEDOUT);
	skein_rpc_answer(held[0], 0);
	pair_exchange(&p);
	assert_int_equal(b.slow.done, 0);
	assert_false(rpc_client_busy(&p.client));
	teardown(&p);
}

static bool is_it(const struct rpc_wanted *w, skein_rpc_done_fn *done,
		  const void *arg)
{
	return done == w->done && arg == w->arg;
}

static int cancel(struct rpc_client *c, skein_rpc_done_fn *done, void *arg)
{
	return rpc_client_cancel(c, &(struct rpc_wanted){is_it, done, arg});
}

static void test_cancel(void **state)
{
	struct pair_tally parked = {0}, sent = {0}, fast = {0};
	struct rpc_client *c;
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {64, 64, 16}});
	c = &p.client;
	assert_int_equal(call(&p, LATER, "12345678", 8, 5 * MS, &parked), 0);
	assert_int_equal(call(&p, LATER, "12345678", 8, 5 * MS, &parked), 0);
	for (int i = 0; i < 3 * PAIR_WINDOW; i++) {
		assert_int_equal(call(&p, ECHO, "x", 1, 5 * MS, &fast), 0);
		pair_exchange(&p);
	}
	assert_int_equal(c->rx.park.n, 2);
	assert_int_equal(call(&p, LATER, "12345678", 8, 5 * MS, &sent), 0);
	pair_exchange(&p);
	assert_int_equal(cancel(c, pair_count, &p), -ENOENT);
	assert_int_equal(cancel(c, pair_count, &fast), -ENOENT);
	assert_int_equal(cancel(c, pair_count, &parked), 0);
	assert_int_equal(parked.unknown, 1);
	assert_int_equal(parked.status, -ECANCELED);
	assert_int_equal(cancel(c, pair_count, &sent), 0);
	assert_int_equal(sent.unknown, 1);
	assert_int_equal(cancel(c, pair_count, &sent), -ENOENT);
	assert_int_equal(held_count, 3);
	for (int i = 0; i < 3; i++)
		skein_rpc_answer(held[i], 0);
	pair_exchange(&p);
	assert_int_equal(parked.done, 1);
	assert_int_equal(parked.unknown, 1);
	assert_int_equal(sent.done, 0);
	assert_false(rpc_client_busy(c));
	teardown(&p);
}

/* Answers that are ready together leave together, workers' and others'. */
static void test_one_message(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {256, 256, 64}});
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			call(&p, LATER, "12345678", 8, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(held_count, 4);
	assert_int_equal(p.ends[1].port.stats.messages_sent, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(call(&p, ECHO, "x", 1, SKEIN_FOREVER, &e), 0);
	assert_int_equal(pair_flush(&p), 0);
	pair_settle(&p);
	for (int i = 3; i >= 0; i--)
		skein_rpc_answer(held[i], 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 7);
	assert_int_equal(p.ends[1].port.stats.messages_sent, 1);
	teardown(&p);
}

/* As many as the bound allows; the next request waits, without noise. */
static void test_bound(void **state)
{
	struct pair_tally e = {0}, fast = {0};
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {256, 256, 64}, .later_max = 4});
	for (int i = 0; i < 6; i++)
		assert_int_equal(
			call(&p, LATER, "12345678", 8, SKEIN_FOREVER, &e), 0);
	assert_int_equal(call(&p, ECHO, "x", 1, SKEIN_FOREVER, &fast), 0);
	pair_exchange(&p);
	assert_int_equal(held_count, 4);
	assert_int_equal(fast.done, 0);
	assert_false(rpc_server_has_work(&p.server));
	skein_rpc_answer(held[0], -ENOENT);
	pair_exchange(&p);
	assert_int_equal(e.status, -ENOENT);
	assert_int_equal(held_count, 5);
	skein_rpc_answer(held[4], 0);
	skein_rpc_answer(held[2], 0);
	pair_exchange(&p);
	assert_int_equal(held_count, 6);
	assert_int_equal(fast.done, 1);
	for (int i = 1; i < 6; i++)
		if (i != 2 && i != 4)
			skein_rpc_answer(held[i], 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 6);
	teardown(&p);
}

/* Bytes count too, but one request is always taken. */
static void test_bound_of_bytes(void **state)
{
	static const uint8_t data[900];
	struct pair_tally e = {0};
	struct pair p;

	setup(&p,
	      (struct pair_opts){.geom = {256, 256, 64}, .later_len = 3000});
	for (int i = 0; i < 8; i++)
		assert_int_equal(call(&p, LATER, data, 900, SKEIN_FOREVER, &e),
				 0);
	pair_exchange(&p);
	assert_true(held_count >= 1 && held_count < 4);
	for (unsigned i = 0; i < 8; i++) {
		assert_true(i < held_count);
		skein_rpc_answer(held[i], 0);
		pair_exchange(&p);
	}
	assert_int_equal(e.done, 8);
	teardown(&p);
}

/* The connection breaks: who answers then, or never, does no harm; a large
 * request's bytes stay as long as its handler has them. */
static void test_orphans(void **state)
{
	static uint8_t data[5000];
	struct pair_tally e = {0};
	struct pair p;

	memset(data, 0x5a, sizeof(data));
	setup(&p, (struct pair_opts){.geom = {256, 256, 16}});
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			call(&p, LATER, "12345678", 8, SKEIN_FOREVER, &e), 0);
	assert_int_equal(call(&p, LATER, data, 5000, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(held_count, 4);
	assert_int_equal(p.ends[1].bufs_used, 1);
	skein_rpc_answer(held[0], 0); /* not collected yet */
	rpc_server_break(&p.server, -ECONNRESET);
	assert_int_equal(p.ends[1].bufs_used, 0);
	rpc_client_break(&p.client, -ECONNRESET);
	assert_int_equal(e.unknown, 4);
	assert_memory_equal(skein_rpc_req_data(held[3]), data, 5000);
	assert_non_null(skein_rpc_resp_buf(held[3], 5000));
	assert_int_equal(skein_rpc_answer(held[3], 0), -ENOTCONN);
	assert_int_equal(skein_rpc_answer(held[1], 0), -ENOTCONN);
	/* held[2] goes with the context */
	teardown(&p);
}

/* Sends an answer that nobody asked for, once more. */
static int again(struct skein_rpc_req *req, void *arg)
{
	req->meta.seq--;
	return 0;
}

static int wrong_thread(struct skein_rpc_req *req, void *arg)
{
	req->meta.thread++;
	return 0;
}

static void garbage(skein_rpc_fn *fn)
{
	struct pair_tally e = {0};
	struct pair p;
	int rc = 0;

	setup(&p, (struct pair_opts){.geom = {256, 256, 64}});
	assert_int_equal(rpc_handlers_add(&p.handlers, env, 3, fn, NULL), 0);
	/* the first is open, so that there is a window to be wrong in */
	assert_int_equal(call(&p, LATER, "x", 1, SKEIN_FOREVER, &e), 0);
	assert_int_equal(call(&p, ECHO, "x", 1, SKEIN_FOREVER, &e), 0);
	assert_int_equal(call(&p, 3, "x", 1, SKEIN_FOREVER, &e), 0);
	for (int i = 0; i < 4 && rc >= 0; i++) {
		rc = pair_poll(&p, p.now_ns);
		pair_settle(&p);
		assert_true(rpc_server_poll(&p.server) >= 0);
		pair_settle(&p);
	}
	assert_int_equal(rc, -SKEIN_EPEER);
	teardown(&p);
}

static void test_garbage(void **state)
{
	garbage(again);
	garbage(wrong_thread);
}

/* Without memory a request is not put off, and its caller is told. */
static bool no_memory(void *arg)
{
	return true;
}

static void test_short_memory(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {256, 256, 64}});
	for (int i = 0; i < 2; i++) {
		env->alloc_fails = no_memory;
		assert_int_equal(
			call(&p, LATER, "12345678", 8, SKEIN_FOREVER, &e), 0);
		pair_exchange(&p);
		env->alloc_fails = NULL;
		assert_int_equal(e.status, -ENOMEM);
		assert_int_equal(held_count, 0);
	}
	assert_int_equal(call(&p, LATER, "12345678", 8, SKEIN_FOREVER, &e), 0);
	assert_int_equal(call(&p, ECHO, "x", 1, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(held_count, 1);
	skein_rpc_answer(held[0], 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 4);
	assert_int_equal(e.status, 0);
	/* and where nobody set it up */
	p.server.later.env = NULL;
	assert_int_equal(call(&p, LATER, "x", 1, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(e.status, -EOPNOTSUPP);
	teardown(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overtaken),
		cmocka_unit_test(test_overtaken_in_a_round),
		cmocka_unit_test(test_head_reads),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_one_message),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_bound_of_bytes),
		cmocka_unit_test(test_orphans),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_short_memory),
	};
	int rc = env_real_new(&env);

	if (rc)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
