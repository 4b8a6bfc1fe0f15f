/* SPDX-License-Identifier: MIT */
/*
 * test_client.c - the edges of calling: the window, full rings, deadlines by
 * an injected clock, withdrawn calls, break, short memory, coalescing, the
 * wire's size, and garbage from the other end.
 */
#include <errno.h>
#include <string.h>

#include "env/env.h"
#include "unit/cm.h"
#include "pair.h"

#define MS 1000000ull

static struct skein_env *env;

static int served;

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	served++;
	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static void setup(struct pair *p, struct pair_opts opts)
{
	served = 0;
	opts.seed = 5;
	pair_init(p, &opts);
	assert_int_equal(rpc_handlers_add(&p->handlers, env, 1, echo, NULL), 0);
}

static void teardown(struct pair *p)
{
	pair_fini(p);
	rpc_handlers_fini(&p->handlers, env);
}

static int call(struct pair *p, size_t len, uint64_t timeout,
		struct pair_tally *e)
{
	static uint8_t data[100000];

	return pair_call(p, 1, data, len, len, timeout, pair_count, e);
}

static void test_window(void **state)
{
	struct pair_tally e = {0};
	struct pair p;
	int n = 0;

	setup(&p, (struct pair_opts){.geom = {4096, 4096, 64}});
	while (call(&p, 8, SKEIN_FOREVER, &e) == 0)
		n++;
	assert_int_equal(n, PAIR_WINDOW);
	pair_exchange(&p);
	assert_int_equal(e.done, n);
	assert_int_equal(call(&p, 8, SKEIN_FOREVER, &e), 0);
	assert_int_equal(pair_flush(&p), 0);
	teardown(&p);
	/* and the end of that call was told at the break */
	assert_int_equal(e.unknown, 1);
}

static void test_full_ring(void **state)
{
	struct pair_tally e = {0};
	struct pair p;
	int n = 0, rc;

	setup(&p, (struct pair_opts){.geom = {32, 1024, 16}});
	while ((rc = call(&p, 100, SKEIN_FOREVER, &e)) == 0)
		n++;
	assert_int_equal(rc, -EAGAIN);
	assert_true(n > 8 && n < PAIR_WINDOW);
	assert_true(p.ends[0].port.stats.full > 0);
	pair_exchange(&p);
	assert_int_equal(e.done, n);
	assert_int_equal(call(&p, 100, SKEIN_FOREVER, &e), 0);
	teardown(&p);
}

static void test_full_response_space(void **state)
{
	struct pair_tally e = {0};
	struct pair p;
	int n = 0, rc;

	setup(&p, (struct pair_opts){.geom = {1024, 32, 16}});
	while ((rc = call(&p, 64, SKEIN_FOREVER, &e)) == 0)
		n++;
	assert_int_equal(rc, -EAGAIN);
	assert_int_equal(n, 16);
	pair_exchange(&p);
	assert_int_equal(e.done, n);
	teardown(&p);
}

/* Calls of one round leave in one message, and so do their answers. */
static void test_coalescing(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){.geom = {1024, 1024, 64}});
	for (int i = 0; i < 8; i++)
		assert_int_equal(call(&p, 64, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 8);
	assert_int_equal(p.ends[0].port.stats.messages_sent, 1);
	assert_int_equal(p.ends[1].port.stats.messages_sent, 1);
	assert_int_equal(p.ends[0].port.stats.bytes_sent, 32 + 8 * 88);
	assert_int_equal(p.ends[1].port.stats.bytes_sent, 32 + 8 * 80);
	teardown(&p);
}

static void test_two_lines(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){0});
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 1);
	assert_int_equal(e.len, 64);
	assert_int_equal(p.ends[0].port.stats.bytes_sent, 120);
	assert_int_equal(p.ends[1].port.stats.bytes_sent, 112);
	assert_int_equal(p.ends[0].port.stats.head_reads, 0);
	teardown(&p);
}

/* Sent and not answered in time: unknown; the late answer is dropped, and its
 * space is not reused before. */
static void test_deadline_sent(void **state)
{
	struct pair_tally e = {0}, other = {0};
	struct pair p;

	setup(&p, (struct pair_opts){0});
	assert_int_equal(call(&p, 64, 5 * MS, &e), 0);
	assert_true(pair_poll(&p, p.now_ns) >= 0);
	pair_poll(&p, p.now_ns + 5 * MS - 1);
	assert_int_equal(e.unknown, 0);
	pair_poll(&p, p.now_ns + 5 * MS);
	assert_int_equal(e.unknown, 1);
	assert_int_equal(e.status, -ETIMEDOUT);
	assert_true(rpc_client_busy(&p.client));
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &other), 0);
	pair_exchange(&p);
	assert_int_equal(served, 2);
	assert_int_equal(e.done, 0);
	assert_int_equal(other.done, 1);
	assert_false(rpc_client_busy(&p.client));
	teardown(&p);
}

/* A caller of an earlier version has taken a pair of its message back, whose call
 * is dead: it is not executed, and the next ones are. */
static void test_skipped(void **state)
{
	struct pair_tally e = {0}, other = {0};
	struct rpc_req_meta *meta;
	struct pair p;

	setup(&p, (struct pair_opts){0});
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &other), 0);
	meta = (void *)(p.client.tx.open + p.client.tx.open_len);
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &e), 0);
	meta->flags |= RPC_REQ_SKIP;
	p.slots[1].done = NULL;
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &other), 0);
	pair_exchange(&p);
	assert_int_equal(served, 2);
	assert_int_equal(other.done, 2);
	assert_int_equal(e.done + e.unknown, 0);
	assert_false(rpc_client_busy(&p.client));
	teardown(&p);
}

/* A call made long after the last round gets its whole time. */
static void test_deadline_stale_clock(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){0});
	pair_poll(&p, p.now_ns);
	assert_int_equal(call(&p, 64, 5 * MS, &e), 0);
	p.now_ns += 1000 * MS; /* the application was busy */
	pair_poll(&p, p.now_ns);
	assert_int_equal(e.unknown + e.not_sent, 0);
	pair_poll(&p, p.now_ns + 4 * MS);
	assert_int_equal(e.unknown, 0);
	pair_poll(&p, p.now_ns + 5 * MS);
	assert_int_equal(e.unknown, 1);
	teardown(&p);
}

static void test_break(void **state)
{
	struct pair_tally sent = {0};
	struct pair p;

	setup(&p, (struct pair_opts){0});
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &sent), 0);
	pair_poll(&p, p.now_ns);
	rpc_client_break(&p.client, -ECONNRESET);
	assert_int_equal(sent.unknown, 1);
	assert_int_equal(sent.status, -ECONNRESET);
	assert_int_equal(call(&p, 64, SKEIN_FOREVER, &sent), -ENOTCONN);
	teardown(&p);
	assert_int_equal(sent.unknown, 1);
}

static void test_short_memory(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){0});
	p.ends[0].buf_fails = true;
	assert_int_equal(call(&p, 5000, SKEIN_FOREVER, &e), -ENOMEM);
	p.ends[0].buf_fails = false;
	p.ends[1].buf_fails = true; /* the server cannot take it */
	assert_int_equal(call(&p, 5000, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 1);
	assert_int_equal(e.status, -ENOMEM);
	assert_int_equal(served, 0);
	p.ends[1].buf_fails = false;
	assert_int_equal(call(&p, 5000, SKEIN_FOREVER, &e), 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 2);
	assert_int_equal(e.status, 0);
	assert_int_equal(e.len, 5000);
	/* Nothing is held when all has been consumed. */
	assert_int_equal(p.ends[0].bufs_used, 0);
	assert_int_equal(p.ends[1].bufs_used, 0);
	teardown(&p);
}

static void test_no_handler(void **state)
{
	struct pair_tally e = {0};
	struct pair p;

	setup(&p, (struct pair_opts){0});
	assert_int_equal(pair_call(&p, 999, "x", 1, 8, SKEIN_FOREVER,
				   pair_count, &e),
			 0);
	pair_exchange(&p);
	assert_int_equal(e.done, 1);
	assert_int_equal(e.status, -SKEIN_ENOHANDLER);
	assert_int_equal(rpc_handlers_add(&p.handlers, env, 1, echo, NULL),
			 -EEXIST);
	teardown(&p);
}

/* A response that cannot be right ends the connection, not the process. */
static void test_garbage_response(void **state)
{
	static const struct {
		uint32_t at, len;
		uint64_t value;
	} patches[] = {
		{0, 4, 16},	 /* len */
		{4, 2, 2},	 /* more answers than calls */
		{4, 2, 0},	 /* none */
		{16, 4, 1000},	 /* a Head beyond what was sent */
		{24, 4, 65},	 /* larger than asked for */
		{24 + 8, 4, 7},	 /* another call's */
		{24 + 4, 2, 1},	 /* status */
		{24 + 14, 2, 1}, /* large */
	};
	struct pair_tally e = {0};
	struct pair p;

	for (unsigned i = 0; i < sizeof(patches) / sizeof(patches[0]); i++) {
		setup(&p, (struct pair_opts){0});
		assert_int_equal(call(&p, 64, SKEIN_FOREVER, &e), 0);
		pair_poll(&p, p.now_ns);
		pair_settle(&p);
		rpc_server_poll(&p.server);
		pair_settle(&p);
		memcpy(p.ends[0].port.base +
			       rpc_geom_resp(&p.ends[0].port.geom) +
			       patches[i].at,
		       &patches[i].value, patches[i].len);
		assert_int_equal(pair_poll(&p, p.now_ns), -SKEIN_EPEER);
		teardown(&p);
	}
	/* The one before the answer too many was in order. */
	assert_int_equal(e.done, 1);
	assert_int_equal(e.unknown, sizeof(patches) / sizeof(patches[0]) - 1);
}

/* What a server of many threads may send: at pos, the answers to these calls,
 * 64 bytes each that say whose they are. */
static void answers(struct pair *p, uint64_t pos, const uint32_t *seqs,
		    uint16_t n)
{
	struct rpc_port *port = &p->ends[0].port;
	uint8_t *at = port->base + rpc_geom_resp(&port->geom) + pos * RPC_LINE;
	uint32_t len = sizeof(struct rpc_hdr);

	for (unsigned i = 0; i < n; i++) {
		struct rpc_resp_meta meta = {.size = 64, .seq = seqs[i]};

		memcpy(at + len, &meta, sizeof(meta));
		memset(at + len + sizeof(meta), (int)seqs[i], 64);
		len += (uint32_t)sizeof(meta) + 64;
	}
	len += RPC_TAIL_LEN;
	rpc_msg_seal(at, len, n, 0, rpc_canary(&port->secret_in, pos),
		     RPC_TAIL_CANARY);
}

static unsigned order[8], ordered;

static void note(void *arg, const struct skein_rpc_result *res)
{
	assert_int_equal(res->outcome, SKEIN_DONE);
	assert_int_equal(*(const uint8_t *)res->data, (uintptr_t)arg);
	order[ordered++] = (unsigned)(uintptr_t)arg;
}

/* Answers in any order: each goes to its call, and a call's place in the window
 * is used anew only when those before it are answered. */
static void test_any_order(void **state)
{
	static const uint32_t first[] = {2, 0}, then[] = {3}, last[] = {1};
	static uint8_t data[64];
	struct pair p;
	struct pair_tally e = {0};
	int n;

	setup(&p, (struct pair_opts){.geom = {4096, 4096, 64}});
	ordered = 0;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pair_call(&p, 1, data, 64, 64, SKEIN_FOREVER,
					   note, (void *)i),
				 0);
	assert_true(pair_poll(&p, p.now_ns) >= 0);
	answers(&p, 0, first, 2);
	assert_true(pair_poll(&p, p.now_ns) > 0);
	assert_int_equal(ordered, 2);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 0);
	answers(&p, 4, then, 1);
	assert_true(pair_poll(&p, p.now_ns) > 0);
	assert_int_equal(order[2], 3);
	/* 1, 2 and 3 are still in the window */
	for (n = 0; call(&p, 8, SKEIN_FOREVER, &e) == 0; n++)
		;
	assert_int_equal(n, PAIR_WINDOW - 3);
	answers(&p, 6, last, 1);
	assert_true(pair_poll(&p, p.now_ns) > 0);
	assert_int_equal(ordered, 4);
	assert_int_equal(order[3], 1);
	for (n = 0; call(&p, 8, SKEIN_FOREVER, &e) == 0; n++)
		;
	assert_int_equal(n, 3);
	teardown(&p);
}

/* Each call is answered once. */
static void test_answered_twice(void **state)
{
	static const uint32_t twice[] = {1, 1}, late[] = {1, 0, 1};
	static uint8_t data[64];
	struct pair p;

	for (int round = 0; round < 2; round++) {
		setup(&p, (struct pair_opts){.geom = {4096, 4096, 64}});
		ordered = 0;
		for (uintptr_t i = 0; i < 4; i++)
			pair_call(&p, 1, data, 64, 64, SKEIN_FOREVER, note,
				  (void *)i);
		assert_true(pair_poll(&p, p.now_ns) >= 0);
		answers(&p, 0, round ? late : twice, round ? 3 : 2);
		assert_int_equal(pair_poll(&p, p.now_ns), -SKEIN_EPEER);
		assert_int_equal(ordered, round ? 2 : 1);
		p.client.rx.broken = -ECONNRESET; /* ends nothing twice */
		teardown(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_full_ring),
		cmocka_unit_test(test_full_response_space),
		cmocka_unit_test(test_coalescing),
		cmocka_unit_test(test_two_lines),
		cmocka_unit_test(test_deadline_sent),
		cmocka_unit_test(test_skipped),
		cmocka_unit_test(test_deadline_stale_clock),
		cmocka_unit_test(test_break),
		cmocka_unit_test(test_short_memory),
		cmocka_unit_test(test_no_handler),
		cmocka_unit_test(test_garbage_response),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_answered_twice),
	};
	int rc = env_real_new(&env);

	if (rc)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
