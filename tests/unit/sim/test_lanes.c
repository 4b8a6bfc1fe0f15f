/* SPDX-License-Identifier: MIT */
/*
 * Handles of several lanes in a simulated world: opened, used by threads that
 * come and go, and closed, while links are cut, hosts stand still, threads
 * stall and the server dies or closes. Whatever happens, everything ends, is told
 * in pairs, and leaves nothing.
 *
 * Argument: how many seeds (default 60).
 */
#include "cm_sim.h"

#include "base/prng.h"
#include "conn/state.h"

#include <skein/skein.h>
#include <string.h>

#define ENGINES 3
#define VISITORS 3
#define HANDLES 4

static unsigned long seeds = 60;

struct play {
	struct two t;
	struct prng r; /* the script's */
	struct skein_listener *listener;
	struct skein_engine *engines[ENGINES];
	int ups, ends, opened, failed, broken, reconnected;
	bool closes, client_done, server_done;
};

struct serving {
	struct play *p;
	struct skein_engine *eng;
};

static void serves(void *arg)
{
	struct serving *s = arg;

	skein_engine_run(s->eng, SKEIN_FOREVER);
}

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct play *p = arg;

	if (state == SKEIN_CONN_READY)
		p->ups++;
	else
		p->ends++;
}

static void server(void *arg)
{
	struct play *p = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_listener_attr l = {.size = sizeof(l),
					.engines = p->engines,
					.engine_count = ENGINES,
					.handshake_timeout_ns = SKEIN_MS(300),
					.conns_max = 20,
					.on_conn = on_conn,
					.arg = p};
	struct env_thread *threads[ENGINES];
	struct serving s[ENGINES];
	struct skein_ctx *ctx;

	assert_int_equal(ctx_open_env(p->t.env[0], &attr, &ctx), 0);
	for (unsigned i = 0; i < ENGINES; i++) {
		assert_int_equal(skein_engine_new(ctx, SKEIN_WAIT_EVENT,
						  &p->engines[i]),
				 0);
		s[i] = (struct serving){p, p->engines[i]};
		assert_int_equal(env_thread_start(p->t.env[0], "engine", serves,
						  &s[i], &threads[i]),
				 0);
	}
	assert_int_equal(skein_listener_open(ctx, ":7000", &l, &p->listener),
			 0);
	if (p->closes) {
		sim_sleep(p->t.w, prng_below(&p->r, 400000000));
		skein_listener_close(p->listener);
	}
	for (unsigned i = 0; i < ENGINES; i++)
		env_thread_join(p->t.env[0], threads[i]);
	skein_ctx_close(ctx);
	p->server_done = true;
}

struct visitor {
	struct play *p;
	struct skein_conn *conn;
	uint64_t stay;
};

static void visits(void *arg)
{
	struct visitor *v = arg;
	struct conn_thread *rec, *again;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(conn_thread(v->conn, &rec), 0);
		assert_ptr_equal(conn_thread_find(v->conn), rec);
		sim_sleep(v->p->t.w, v->stay);
		assert_int_equal(conn_thread(v->conn, &again), 0);
		assert_ptr_equal(again, rec);
	}
}

static void use_handle(struct play *p, struct skein_conn *conn)
{
	struct visitor v[VISITORS];
	struct env_thread *threads[VISITORS];

	for (int i = 0; i < VISITORS; i++) {
		v[i] = (struct visitor){p, conn, prng_below(&p->r, 20000000)};
		assert_int_equal(env_thread_start(p->t.env[1], "visitor",
						  visits, &v[i], &threads[i]),
				 0);
	}
	for (int i = 0; i < VISITORS; i++)
		env_thread_join(p->t.env[1], threads[i]);
	assert_true(conn_threads(conn) <= VISITORS);
}

static void on_state(void *arg, struct skein_conn *conn,
		     enum skein_conn_state state)
{
	struct play *p = arg;

	p->broken += state == SKEIN_CONN_BROKEN;
	p->reconnected += state == SKEIN_CONN_CONNECTING;
}

static void client(void *arg)
{
	struct play *p = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr), .background = true};
	struct skein_conn_attr c = {.size = sizeof(c),
				    .timeout_ns = SKEIN_MS(300),
				    .retries = 5,
				    .on_state = on_state,
				    .arg = p};
	struct skein_conn *conn;
	struct skein_ctx *ctx;

	assert_int_equal(ctx_open_env(p->t.env[1], &attr, &ctx), 0);
	sim_sleep(p->t.w, 10000000);
	for (int i = 0; i < HANDLES; i++) {
		c.qps = 1 + (unsigned)prng_below(&p->r, 8);
		c.shard = (unsigned)prng_below(&p->r, ENGINES);
		c.reconnect = prng_below(&p->r, 2);
		if (prng_below(&p->r, 4) == 0) {
			/* Closed at any point of its way up. */
			if (skein_conn_open_async(ctx, "n1:7000", &c, &conn))
				continue;
			sim_sleep(p->t.w, prng_below(&p->r, 3000000));
		} else if (skein_conn_open(ctx, "n1:7000", &c, &conn)) {
			p->failed++;
			continue;
		} else {
			p->opened++;
			use_handle(p, conn);
		}
		skein_conn_close(conn, prng_below(&p->r, 2) * SKEIN_MS(50));
	}
	skein_ctx_close(ctx);
	p->client_done = true;
}

static void mischief(struct play *p)
{
	unsigned which = (unsigned)prng_below(&p->r, 2);
	uint64_t for_ns = prng_below(&p->r, 200000000);

	switch (prng_below(&p->r, 6)) {
	case 0:
		sim_node_cut(p->t.node[which], true);
		sim_run(p->t.w, sim_now(p->t.w) + for_ns);
		sim_node_cut(p->t.node[which], false);
		break;
	case 1:
		sim_node_pause(p->t.node[which], sim_now(p->t.w) + for_ns);
		break;
	case 2:
		if (sim_proc_alive(p->t.proc[which]))
			sim_thread_stall(p->t.proc[which],
					 (unsigned)prng_below(&p->r, 4),
					 sim_now(p->t.w) + for_ns);
		break;
	case 3:
		if (prng_below(&p->r, 8) == 0)
			sim_proc_kill(p->t.proc[0]);
		break;
	default:
		break;
	}
	sim_run(p->t.w, sim_now(p->t.w) + prng_below(&p->r, 60000000));
}

static void run(uint64_t seed, struct play *sum)
{
	struct play p = {0};
	bool alive;

	prng_init(&p.r, seed);
	p.closes = prng_below(&p.r, 4) == 0;
	two_up(&p.t, seed, 2);
	p.t.env[0]->log = p.t.env[1]->log = NULL;
	assert_int_equal(sim_spawn(p.t.proc[0], "server", server, &p), 0);
	assert_int_equal(sim_spawn(p.t.proc[1], "client", client, &p), 0);
	sim_run(p.t.w, 10000000);
	for (int i = 0; i < 20; i++)
		mischief(&p);
	while (!p.client_done && sim_now(p.t.w) < 60000000000)
		sim_run(p.t.w, sim_now(p.t.w) + 10000000);
	if (!p.client_done)
		sim_proc_report(p.t.proc[1], (void *)puts, NULL);
	assert_true(p.client_done);
	alive = sim_proc_alive(p.t.proc[0]);
	for (int i = 0; i < ENGINES && alive; i++)
		skein_engine_stop(p.engines[i]);
	for (int i = 0; i < 3000 && alive && !p.server_done; i++)
		sim_run(p.t.w, sim_now(p.t.w) + 10000000);
	assert_true(p.server_done || !alive);
	if (alive)
		assert_int_equal(p.ups, p.ends);
	for (int i = alive ? 0 : 1; i < 2; i++) {
		assert_int_equal(sim_proc_bytes(p.t.proc[i]), 0);
		assert_int_equal(sim_proc_fds(p.t.proc[i]), 0);
	}
	two_down(&p.t);
	sum->ups += p.ups;
	sum->opened += p.opened;
	sum->failed += p.failed;
	sum->broken += p.broken;
	sum->reconnected += p.reconnected;
}

static void test_seeds(void **state)
{
	struct play sum = {0};

	for (uint64_t seed = 1; seed <= seeds; seed++)
		run(seed, &sum);
	printf("%lu seeds: %d opened, %d accepted, %d failed, %d broken, %d "
	       "opened again\n",
	       seeds, sum.opened, sum.ups, sum.failed, sum.broken,
	       sum.reconnected);
	assert_true(sum.opened && sum.failed && sum.broken && sum.reconnected);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};

	if (argc > 1)
		seeds = strtoul(argv[1], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
