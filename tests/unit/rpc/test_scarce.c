/* SPDX-License-Identifier: MIT */
/*
 * test_scarce.c - the n-th allocation fails, for every n, at either end of an
 * RPC connection, while requests and responses of all sizes go by: a call ends
 * with the right bytes or with an error that says so, and the next one works.
 */
#include "unit/alloc_sweep.h"
#include "unit/patience.h"

#include "conn/ctx.h"

#include <skein/skein.h>
#include <stdlib.h>
#include <string.h>

#define CALL 1
#define PATIENCE patience_ns(20)
/* Its memory is made in pieces. */
#define LARGE 1100000u

struct world {
	struct skein_env *env;
	struct alloc_sweep sweep;
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	uint8_t *req, *resp;
};

static uint8_t at(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 9));
}

static void fill(uint8_t *buf, uint32_t seed, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = at(seed, i);
}

static bool right(const uint8_t *buf, uint32_t seed, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != at(seed, i))
			return false;
	return true;
}

struct ask {
	uint32_t resp_len, seed;
};

static int on_call(struct skein_rpc_req *req, void *arg)
{
	const uint8_t *data = skein_rpc_req_data(req);
	struct ask ask;
	void *resp;

	memcpy(&ask, data, sizeof(ask));
	if (!right(data + sizeof(ask), ask.seed,
		   skein_rpc_req_len(req) - sizeof(ask)))
		return -EBADMSG;
	resp = skein_rpc_resp_buf(req, ask.resp_len);
	if (!resp)
		return -ENOMEM;
	fill(resp, ask.seed + 1, ask.resp_len);
	return 0;
}

static int call(struct world *w, size_t req_len, uint32_t resp_len,
		uint32_t seed)
{
	struct ask ask = {resp_len, seed};
	struct skein_rpc_result res;
	int rc;

	memcpy(w->req, &ask, sizeof(ask));
	fill(w->req + sizeof(ask), seed, req_len - sizeof(ask));
	rc = skein_rpc_call(w->conn, CALL, w->req, req_len, w->resp, resp_len,
			    PATIENCE, &res);
	if (rc)
		return rc;
	assert_int_equal(res.outcome, SKEIN_DONE);
	assert_int_equal(res.len, resp_len);
	assert_true(right(w->resp, seed + 1, resp_len));
	return 0;
}

static void connect_to(struct world *w)
{
	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener), NULL,
					 &w->conn),
			 0);
	/* The server has it too. */
	assert_int_equal(call(w, 64, 64, 1), 0);
}

static void world_open(struct world *w)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};

	memset(w, 0, sizeof(*w));
	w->req = malloc(LARGE);
	w->resp = malloc(LARGE);
	assert_int_equal(env_real_new(&w->env), 0);
	w->env->log = NULL; /* the contexts share it */
	alloc_sweep_init(&w->sweep, w->env);
	assert_int_equal(ctx_open_env(w->env, &attr, &w->server), 0);
	attr.background = false;
	assert_int_equal(ctx_open_env(w->env, &attr, &w->client), 0);
	assert_int_equal(skein_rpc_handle(w->server, CALL, on_call, NULL), 0);
	assert_int_equal(skein_listener_open(w->server, "127.0.0.1:0", NULL,
					     &w->listener),
			 0);
	connect_to(w);
}

static void world_close(struct world *w)
{
	skein_conn_close(w->conn, SKEIN_S(1));
	skein_ctx_close(w->client);
	skein_ctx_close(w->server);
	env_real_free(w->env);
	free(w->req);
	free(w->resp);
}

/* Every kind of way out and home. */
static const struct {
	size_t req;
	uint32_t resp;
} sizes[] = {
	{64, 64}, {64, LARGE}, {LARGE, 64}, {LARGE, LARGE}, {64, 9000},
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void test_calls(void **state)
{
	unsigned i, missed = 0;
	struct world w;
	bool hit = true;
	int n, rc;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		/* A fresh one: what is made at the first use is swept too. */
		skein_conn_close(w.conn, SKEIN_S(1));
		connect_to(&w);
		alloc_sweep_begin(&w.sweep, n);
		for (i = 0; i < SIZES; i++) {
			rc = call(&w, sizes[i].req, sizes[i].resp,
				  (uint32_t)n + i);
			assert_true(rc == 0 || rc == -ENOMEM);
			missed += rc != 0;
		}
		hit = alloc_sweep_end(&w.sweep);
		/* None of it has broken the connection. */
		for (i = 0; i < SIZES; i++)
			assert_int_equal(
				call(&w, sizes[i].req, sizes[i].resp, i), 0);
	}
	assert_true(n > 10 && missed > 3);
	print_message("%d allocations, %u calls missed\n", n - 1, missed);
	world_close(&w);
}

/* --- many under way ----------------------------------------------------- */

struct many {
	int done, short_of;
	uint32_t len;
};

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	struct many *m = arg;

	m->done++;
	if (res->status == 0) {
		assert_int_equal(res->len, m->len);
		return;
	}
	assert_int_equal(res->status, -ENOMEM);
	m->short_of++;
}

/* Large responses behind each other: one that fails takes none with it. */
static void test_outstanding(void **state)
{
	struct many m = {.len = 100000};
	struct ask ask = {m.len, 7};
	struct world w;
	bool hit = true;
	int n, i, begun, rc;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		m.done = m.short_of = 0;
		alloc_sweep_begin(&w.sweep, n);
		for (i = begun = 0; i < 8; i++) {
			rc = skein_rpc_call_async(w.conn, CALL, &ask,
						  sizeof(ask), m.len, PATIENCE,
						  on_done, &m);
			assert_true(rc == 0 || rc == -ENOMEM);
			begun += rc == 0;
		}
		while (m.done < begun)
			skein_ctx_progress(w.client);
		hit = alloc_sweep_end(&w.sweep);
		assert_true(m.short_of <= 1);
		assert_int_equal(call(&w, 64, 64, 3), 0);
		/* The next round allocates anew. */
		skein_conn_close(w.conn, SKEIN_S(1));
		connect_to(&w);
	}
	assert_true(n > 5);
	world_close(&w);
}

/* --- what is kept ------------------------------------------------------- */

static void many_of(struct world *w, uint32_t len, unsigned n)
{
	struct many m = {.len = len};
	struct ask ask = {len, 7};

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(skein_rpc_call_async(w->conn, CALL, &ask,
						      sizeof(ask), len,
						      PATIENCE, on_done, &m),
				 0);
	while (m.done < (int)n)
		skein_ctx_progress(w->client);
	assert_int_equal(m.short_of, 0);
}

/* A size that is used again and again is registered once, though others fill
 * what is kept: each registration costs the peer a mapping. */
static void test_kept(void **state)
{
	unsigned before, i;
	struct world w;

	world_open(&w);
	many_of(&w, 60000, 24);
	many_of(&w, 120000, 1);
	before = atomic_load(&w.server->next_region) +
		 atomic_load(&w.client->next_region);
	for (i = 0; i < 100; i++)
		many_of(&w, 120000, 1);
	assert_in_range(atomic_load(&w.server->next_region) +
				atomic_load(&w.client->next_region) - before,
			0, 4);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_outstanding),
		cmocka_unit_test(test_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
