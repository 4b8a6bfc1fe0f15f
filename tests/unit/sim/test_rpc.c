/* SPDX-License-Identifier: MIT */
/*
 * The whole library in a simulated world: a server and clients over the
 * simulated device, in each wait mode; the same seed gives the same events;
 * after an orderly end nothing is left; after a kill the others know; how many
 * QPs may be active its device says.
 */
#include "cm_sim.h"
#include "conn/ctx.h"
#include "dev/sim/link.h"
#include "dev/sim/model.h"
#include "rpc/state.h"

#include <skein/skein.h>
#include <string.h>

#define ECHO 1
#define CALLS 300

struct app {
	struct two *t;
	struct skein_env *env;
	enum skein_wait wait;
	struct skein_engine *engine;
	unsigned done, served;
	uint64_t lat_sum, lat_max;
	uint64_t from, to; /* when it made its calls */
	int rc;
	enum skein_outcome outcome;
	bool ended;
};

static int echo(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	((struct app *)arg)->served++;
	if (!resp)
		return -EMSGSIZE;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static void server(void *arg)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_listener *listener;
	struct app *a = arg;
	struct skein_ctx *ctx;

	attr.wait = a->wait;
	assert_int_equal(ctx_open_env(a->env, &attr, &ctx), 0);
	a->engine = skein_ctx_engine(ctx);
	assert_int_equal(skein_rpc_handle(ctx, ECHO, echo, a), 0);
	assert_int_equal(skein_listener_open(ctx, ":7000", NULL, &listener), 0);
	assert_int_equal(skein_engine_run(a->engine, SKEIN_FOREVER), 0);
	skein_ctx_close(ctx);
	a->ended = true;
}

static void one_call(struct app *a, struct skein_conn *conn, unsigned i)
{
	unsigned char out[3000], in[3000];
	struct skein_rpc_result res = {0};
	size_t len = i % 5 ? i % 200 : 10 * i;
	uint64_t begun = env_now_ns(a->env), took;

	for (size_t k = 0; k < len; k++)
		out[k] = (unsigned char)(i * 31 + k);
	a->rc = skein_rpc_call(conn, ECHO, out, len, in, sizeof(in),
			       SKEIN_MS(100), &res);
	a->outcome = res.outcome;
	if (a->rc)
		return;
	took = env_now_ns(a->env) - begun;
	assert_int_equal(res.len, len);
	assert_memory_equal(in, out, len);
	a->lat_sum += took;
	a->lat_max = took > a->lat_max ? took : a->lat_max;
	a->done++;
}

static void client(void *arg)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_conn *conn;
	struct app *a = arg;
	struct skein_ctx *ctx;

	sim_sleep(a->t->w, 30000000);
	attr.wait = a->wait;
	assert_int_equal(ctx_open_env(a->env, &attr, &ctx), 0);
	a->rc = skein_conn_open(ctx, "n1:7000", NULL, &conn);
	a->from = env_now_ns(a->env);
	for (unsigned i = 0; i < CALLS && !a->rc; i++)
		one_call(a, conn, i);
	a->to = env_now_ns(a->env);
	skein_ctx_close(ctx);
	a->ended = true;
}

static void up(struct two *t, struct app a[2], enum skein_wait wait)
{
	two_up(t, 1, 2);
	for (int i = 0; i < 2; i++) {
		a[i] = (struct app){.t = t, .env = t->env[i], .wait = wait};
		assert_int_equal(sim_spawn(t->proc[i], i ? "client" : "server",
					   i ? client : server, &a[i]),
				 0);
	}
}

static uint64_t echo_run(enum skein_wait wait, bool say)
{
	struct app a[2];
	uint64_t hash;
	struct two t;

	up(&t, a, wait);
	while (!a[1].ended && sim_now(t.w) < 10000000000)
		sim_run(t.w, sim_now(t.w) + 10000000);
	assert_true(a[1].ended);
	assert_int_equal(a[1].done, CALLS);
	assert_int_equal(a[0].served, CALLS);
	skein_engine_stop(a[0].engine);
	assert_int_equal(sim_run(t.w, 20000000000), SIM_END_QUIET);
	assert_true(a[0].ended);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sim_proc_bytes(t.proc[i]), 0);
		assert_int_equal(sim_proc_fds(t.proc[i]), 0);
	}
	if (say)
		printf("mode %d: %lu ns a call, at most %lu; %lu events\n",
		       wait, (unsigned long)(a[1].lat_sum / CALLS),
		       (unsigned long)a[1].lat_max,
		       (unsigned long)sim_events(t.w));
	hash = sim_hash(t.w);
	two_down(&t);
	return hash;
}

static void test_echo(void **state)
{
	for (int wait = SKEIN_WAIT_ADAPTIVE; wait <= SKEIN_WAIT_EVENT; wait++) {
		uint64_t hash = echo_run((enum skein_wait)wait, true);

		assert_int_equal(hash, echo_run((enum skein_wait)wait, false));
	}
}

/* When an undisturbed client makes its calls. */
static void learn_span(uint64_t *from, uint64_t *to)
{
	struct app a[2];
	struct two t;

	up(&t, a, SKEIN_WAIT_POLL);
	sim_run(t.w, 5000000000);
	assert_int_equal(a[1].done, CALLS);
	*from = a[1].from;
	*to = a[1].to;
	two_down(&t);
}

/* The server dies among the calls: the client's call ends, in time, and says
 * that it may have been executed or was not sent. */
static void test_kill(void **state)
{
	unsigned before = 0, among = 0, after = 0;
	struct app a[2];
	uint64_t from, to;
	struct two t;

	learn_span(&from, &to);
	for (uint64_t at = from - 1000000; at < to + 100000; at += 8000) {
		up(&t, a, SKEIN_WAIT_POLL);
		t.env[1]->log = NULL; /* it has reason to complain */
		sim_run(t.w, at);
		sim_proc_kill(t.proc[0]);
		sim_run(t.w, at + 5000000000);
		if (!a[1].ended) {
			sim_proc_report(t.proc[1], (void *)puts, NULL);
			fail();
		}
		if (a[1].done < CALLS)
			assert_int_not_equal(a[1].rc, 0);
		before += !a[1].done;
		among += a[1].done && a[1].done < CALLS;
		after += a[1].done == CALLS;
		two_down(&t);
	}
	printf("killed before, among and after the calls: %u, %u, %u\n", before,
	       among, after);
	assert_true(before && among && after);
}

struct bounds {
	struct two t;
	uint32_t bound;
};

static void bounds_main(void *arg)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct bounds *b = arg;
	struct skein_ctx *ctx;
	struct rpc_ctx *rx;

	assert_int_equal(ctx_open_env(b->t.env[0], &attr, &ctx), 0);
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	b->bound = rx->aqp.max;
	skein_ctx_close(ctx);
}

/* MAX_AQP of a context on this NIC. */
static uint32_t bound_on(const struct nic_model *model)
{
	struct bounds b = {.bound = 0};

	two_up(&b.t, 1, 1);
	sim_net_set_model(b.t.w, model);
	assert_int_equal(sim_spawn(b.t.proc[0], "p", bounds_main, &b), 0);
	sim_run(b.t.w, SKEIN_S(10));
	two_down(&b.t);
	return b.bound;
}

static void test_max_aqp(void **state)
{
	char err[160];
	struct nic_model m;

	assert_int_equal(nic_model_find("connectx3", &m), 0);
	assert_int_equal(bound_on(&m), m.ctx_entries);
	assert_int_equal(
		nic_model_set(&m, "ctx_entries", "700", err, sizeof(err)), 0);
	assert_int_equal(bound_on(&m), 700);
	/* An attribute that the caller sets is taken. */
	setenv("SKEIN_MAX_AQP", "33", 1);
	assert_int_equal(bound_on(&m), 33);
	unsetenv("SKEIN_MAX_AQP");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_kill),
		cmocka_unit_test(test_max_aqp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
