/* SPDX-License-Identifier: MIT */
/*
 * Calls that a thread makes outside done(), in a simulated world: with few under
 * way each leaves at once; later ones gather, and leave in the engine's next
 * round, whichever thread runs it and whatever for. In the order in which they
 * were made, each once.
 */
#include "cm_sim.h"
#include "conn/ctx.h"
#include "rpc/client/lane_client.h"

#include <skein/skein.h>
#include <string.h>

#define NOW 1
#define PIN 2
#define MS 1000000ull
#define SEEN 256

struct play {
	struct two t;
	void (*client)(struct play *p);
	bool background;
	struct skein_engine *engine; /* the server's */
	struct skein_rpc_req *pins[RPC_GATHER_FROM];
	unsigned n_pins;
	uint32_t seen[SEEN]; /* requests, as they were executed */
	unsigned n_seen;
	bool over;

	struct skein_ctx *ctx;
	struct skein_conn *conn;
	struct skein_engine *client_engine;
	uint32_t made;
	unsigned done, ok, not_sent, canceled;
	bool ended;
};

/* --- the server --------------------------------------------------------- */

static int on_now(struct skein_rpc_req *req, void *arg)
{
	struct play *p = arg;

	assert_true(p->n_seen < SEEN);
	memcpy(&p->seen[p->n_seen++], skein_rpc_req_data(req), 4);
	return 0;
}

static int on_pin(struct skein_rpc_req *req, void *arg)
{
	struct play *p = arg;

	on_now(req, arg);
	assert_true(p->n_pins < RPC_GATHER_FROM);
	return skein_rpc_defer(req, &p->pins[p->n_pins++]);
}

static void server(void *arg)
{
	struct play *p = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL};
	struct skein_listener *listener;
	struct skein_mem *area;
	struct skein_ctx *ctx;

	assert_int_equal(ctx_open_env(p->t.env[0], &attr, &ctx), 0);
	p->engine = skein_ctx_engine(ctx);
	assert_int_equal(skein_rpc_handle(ctx, NOW, on_now, p), 0);
	assert_int_equal(skein_rpc_handle(ctx, PIN, on_pin, p), 0);
	assert_int_equal(skein_mem_new(ctx, 4096, &area), 0);
	assert_int_equal(skein_mem_share(area, "area", SKEIN_MEM_WRITE), 0);
	assert_int_equal(skein_listener_open(ctx, ":7000", NULL, &listener), 0);
	while (!p->over)
		skein_engine_run(p->engine, 20000);
	skein_mem_free(area);
	skein_ctx_close(ctx);
}

/* --- the client --------------------------------------------------------- */

static void on_done(void *arg, const struct skein_rpc_result *res)
{
	struct play *p = arg;

	p->done++;
	p->ok += res->outcome == SKEIN_DONE && !res->status;
	p->not_sent += res->outcome == SKEIN_NOT_SENT;
	p->canceled += res->status == -ECANCELED;
}

static void call_for(struct play *p, uint16_t id, uint64_t timeout_ns)
{
	assert_int_equal(skein_rpc_call_async(p->conn, id, &p->made, 4, 0,
					      timeout_ns, on_done, p),
			 0);
	p->made++;
}

static void call(struct play *p, uint16_t id)
{
	call_for(p, id, SKEIN_S(10));
}

/* Time for what has left to arrive. Nobody runs this end's engine. */
static void away(struct play *p)
{
	sim_sleep(p->t.w, 5 * MS);
}

/* The next call of the thread would gather. */
static void have_company(struct play *p)
{
	while (p->made < RPC_GATHER_FROM)
		call(p, PIN);
	away(p);
	assert_int_equal(p->n_seen, RPC_GATHER_FROM);
}

static void unpin(struct play *p)
{
	while (p->n_pins)
		assert_int_equal(skein_rpc_answer(p->pins[--p->n_pins], 0), 0);
}

/* All that was made has been executed, in this order, and has ended well. */
static void all_well(struct play *p)
{
	unpin(p);
	while (p->done < p->made)
		assert_true(skein_rpc_reap(p->conn, SKEIN_S(10)) >= 0);
	assert_int_equal(p->ok, p->made);
	assert_int_equal(p->n_seen, p->made);
	for (unsigned i = 0; i < p->n_seen; i++)
		assert_int_equal(p->seen[i], i);
}

static void client(void *arg)
{
	struct play *p = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL,
				      .background = p->background};

	sim_sleep(p->t.w, MS);
	assert_int_equal(ctx_open_env(p->t.env[1], &attr, &p->ctx), 0);
	p->client_engine = skein_ctx_engine(p->ctx);
	assert_int_equal(skein_conn_open(p->ctx, "n1:7000", NULL, &p->conn), 0);
	p->client(p);
	if (p->conn)
		skein_conn_close(p->conn, SKEIN_S(1));
	skein_ctx_close(p->ctx);
	p->over = true;
	p->ended = true;
}

static struct play *run(struct play *p)
{
	two_up(&p->t, 1, 4);
	assert_int_equal(sim_spawn(p->t.proc[0], "server", server, p), 0);
	assert_int_equal(sim_spawn(p->t.proc[1], "client", client, p), 0);
	sim_run(p->t.w, 60000 * MS);
	assert_true(p->ended);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sim_proc_bytes(p->t.proc[i]), 0);
	two_down(&p->t);
	return p;
}

/* --- when a call leaves ------------------------------------------------- */

/* The first ones at once, each alone. Then none, while nobody runs the engine;
 * the 16th lets them go. */
static void numbers(struct play *p)
{
	struct skein_rpc_stats was = {.size = sizeof(was)}, st = was;

	for (unsigned i = 0; i < RPC_GATHER_FROM; i++) {
		call(p, PIN);
		away(p);
		assert_int_equal(p->n_seen, i + 1);
	}
	assert_int_equal(skein_rpc_get_stats(p->conn, &was), 0);
	for (unsigned i = 1; i < COMBINER_BOUND; i++) {
		call(p, NOW);
		away(p);
		assert_int_equal(p->n_seen, RPC_GATHER_FROM);
	}
	call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, RPC_GATHER_FROM + COMBINER_BOUND);
	assert_int_equal(skein_rpc_get_stats(p->conn, &st), 0);
	assert_int_equal(st.messages_sent - was.messages_sent, 1);
	/* Once more, though the engine has not run since. */
	call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, RPC_GATHER_FROM + COMBINER_BOUND);
	all_well(p);
	/* With all answered a call is alone again. */
	call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, p->made);
	all_well(p);
}

static void test_numbers(void **state)
{
	struct play p = {.client = numbers};

	run(&p);
}

/* --- what else the thread does lets it go ------------------------------- */

static void progress(struct play *p)
{
	skein_engine_progress(p->client_engine);
}

static void runs(struct play *p)
{
	skein_engine_run(p->client_engine, 1000);
}

static void reaps(struct play *p)
{
	skein_rpc_reap(p->conn, 0);
}

static void calls_and_waits(struct play *p)
{
	assert_int_equal(skein_rpc_call(p->conn, NOW, &p->made, 4, NULL, 0,
					SKEIN_S(1), NULL),
			 0);
	p->made++;
	p->done++;
	p->ok++;
}

static void calls_batch(struct play *p)
{
	struct skein_rpc_entry e = {.id = NOW,
				    .req = &p->made,
				    .req_len = 4,
				    .timeout_ns = SKEIN_S(1),
				    .done = on_done,
				    .arg = p};
	unsigned n;

	assert_int_equal(skein_rpc_call_batch(p->conn, &e, 1, &n), 0);
	p->made++;
}

/* A longer request than the gathered ones may have. */
static void calls_long(struct play *p)
{
	uint32_t req[(COMBINER_INLINE + 4) / 4] = {p->made};

	assert_int_equal(skein_rpc_call_async(p->conn, NOW, req, sizeof(req), 0,
					      SKEIN_S(1), on_done, p),
			 0);
	p->made++;
}

static void cancels_another(struct play *p)
{
	assert_int_equal(skein_rpc_cancel(p->conn, on_done, NULL), -ENOENT);
}

static void writes(struct play *p)
{
	struct skein_remote area = {.size = sizeof(area)};

	assert_int_equal(skein_mem_find(p->conn, "area", SKEIN_S(1), &area), 0);
}

static void closes(struct play *p)
{
	unpin(p);
	skein_conn_close(p->conn, SKEIN_S(1));
	p->conn = NULL;
}

static void (*const ways[])(struct play *p) = {
	progress,	 runs,	      reaps,
	calls_and_waits, calls_batch, calls_long,
	cancels_another, writes,      closes,
};

static unsigned way;

/* Two gathered calls; then the thread comes back in each of the ways. */
static void comes_back(struct play *p)
{
	have_company(p);
	call(p, NOW);
	call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, p->made - 2);
	ways[way](p);
	away(p);
	assert_int_equal(p->n_seen, p->made);
	if (p->conn)
		all_well(p);
	assert_int_equal(p->ok, p->made);
}

static void test_comes_back(void **state)
{
	for (way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
		struct play p = {.client = comes_back};

		run(&p);
	}
}

/* A loop of the application that sleeps on the engine's fd. */
static void arms(struct play *p)
{
	have_company(p);
	while (skein_engine_arm(p->client_engine))
		skein_engine_progress(p->client_engine);
	call(p, NOW);
	assert_int_equal(skein_engine_arm(p->client_engine), 1);
	skein_engine_progress(p->client_engine);
	away(p);
	assert_int_equal(p->n_seen, p->made);
	all_well(p);
}

static void test_arms(void **state)
{
	struct play p = {.client = arms};

	run(&p);
}

/* --- another thread ----------------------------------------------------- */

static void one_round(void *arg)
{
	skein_engine_progress(((struct play *)arg)->client_engine);
}

/* The thread stays away. Any other one's round lets its calls go; it runs their
 * done() when it comes back. */
static void others_round(struct play *p)
{
	struct env_thread *th;

	have_company(p);
	for (unsigned i = 0; i < 3; i++)
		call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, RPC_GATHER_FROM);
	assert_int_equal(
		env_thread_start(p->t.env[1], "other", one_round, p, &th), 0);
	env_thread_join(p->t.env[1], th);
	away(p);
	assert_int_equal(p->n_seen, p->made);
	assert_int_equal(p->done, 0);
	/* It finds that the owner has sent them, and gathers anew. */
	call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, p->made - 1);
	all_well(p);
}

static void test_others_round(void **state)
{
	struct play p = {.client = others_round};

	run(&p);
}

static void runs_until_over(void *arg)
{
	struct play *p = arg;

	while (!p->over)
		skein_engine_run(p->client_engine, MS);
}

/* While another thread runs the engine each call leaves at once. */
static void owner_is_there(struct play *p)
{
	struct rpc_thread *s;
	struct env_thread *th;

	have_company(p);
	call(p, NOW); /* gathered, and sent by the owner */
	assert_int_equal(env_thread_start(p->t.env[1], "owner", runs_until_over,
					  p, &th),
			 0);
	sim_sleep(p->t.w, MS / 2);
	s = rpc_thread_of(conn_thread_find(p->conn));
	for (unsigned i = 0; i < 8; i++) {
		call(p, NOW);
		assert_int_equal(s->gather->n, 0);
		sim_sleep(p->t.w, 10000);
	}
	away(p);
	assert_int_equal(p->n_seen, p->made);
	all_well(p);
	p->over = true;
	env_thread_join(p->t.env[1], th);
}

static void test_owner_is_there(void **state)
{
	struct play p = {.client = owner_is_there};

	run(&p);
}

/* The background thread comes back to the engine by itself. */
static void background(struct play *p)
{
	uint64_t begun;

	for (unsigned i = 0; i < RPC_GATHER_FROM; i++)
		call(p, PIN);
	away(p);
	skein_engine_progress(p->client_engine);
	begun = env_now_ns(p->t.env[1]);
	for (unsigned i = 0; i < 3; i++)
		call(p, NOW);
	while (p->n_seen < p->made)
		sim_sleep(p->t.w, 10000);
	assert_true(env_now_ns(p->t.env[1]) - begun < 3 * MS);
	all_well(p);
}

static void test_background(void **state)
{
	struct play p = {.client = background, .background = true};

	run(&p);
}

static void has_company_and_ends(void *arg)
{
	struct play *p = arg;

	have_company(p);
	for (unsigned i = 0; i < 3; i++)
		call(p, NOW);
}

/* The thread ends behind its calls. */
static void thread_ends(struct play *p)
{
	struct env_thread *th;

	assert_int_equal(env_thread_start(p->t.env[1], "ends",
					  has_company_and_ends, p, &th),
			 0);
	env_thread_join(p->t.env[1], th);
	skein_engine_progress(p->client_engine);
	away(p);
	assert_int_equal(p->n_seen, p->made);
	unpin(p);
	while (p->done < p->made)
		skein_engine_run(p->client_engine, MS);
	assert_int_equal(p->ok, p->made);
	/* Another thread may have its record, which gathers nothing. */
	call(p, NOW);
	away(p);
	assert_int_equal(p->n_seen, p->made);
	all_well(p);
}

static void test_thread_ends(void **state)
{
	struct play p = {.client = thread_ends};

	run(&p);
}

/* --- ends --------------------------------------------------------------- */

/* A gathered call is given up: it has left by then. */
static void given_up(struct play *p)
{
	have_company(p);
	call(p, NOW);
	for (unsigned i = 0; i < p->made; i++)
		assert_int_equal(skein_rpc_cancel(p->conn, on_done, p), 0);
	while (p->done < p->made)
		skein_rpc_reap(p->conn, MS);
	assert_int_equal(p->canceled, p->made);
	assert_int_equal(p->not_sent, 0);
	p->n_pins = 0;
}

static void test_given_up(void **state)
{
	struct play p = {.client = given_up};

	run(&p);
}

static void cancels_all(void *arg)
{
	struct play *p = arg;

	for (unsigned i = 0; i < p->made; i++)
		assert_int_equal(skein_rpc_cancel(p->conn, on_done, p), 0);
}

/* ... by another thread: that comes behind it. */
static void given_up_by_other(struct play *p)
{
	struct env_thread *th;

	have_company(p);
	call(p, NOW);
	assert_int_equal(
		env_thread_start(p->t.env[1], "other", cancels_all, p, &th), 0);
	env_thread_join(p->t.env[1], th);
	skein_rpc_reap(p->conn, 0);
	assert_int_equal(p->canceled, p->made);
	assert_int_equal(p->not_sent, 0);
	p->n_pins = 0;
}

static void test_given_up_by_other(void **state)
{
	struct play p = {.client = given_up_by_other};

	run(&p);
}

/* The time of a gathered call begins when it leaves. */
static void late(struct play *p)
{
	have_company(p);
	call_for(p, NOW, 2 * MS);
	away(p);
	assert_int_equal(p->n_seen, p->made - 1);
	all_well(p);
}

static void test_late(void **state)
{
	struct play p = {.client = late};

	run(&p);
}

/* The server dies: what was gathered ends as not sent, once, in its thread. */
static void server_dies(struct play *p)
{
	struct env_thread *th;

	have_company(p);
	sim_proc_kill(p->t.proc[0]);
	p->n_pins = 0;
	for (unsigned i = 0; i < 3; i++)
		call(p, NOW);
	for (int i = 0;
	     i < 1000 && skein_conn_get_state(p->conn) != SKEIN_CONN_BROKEN;
	     i++) {
		assert_int_equal(env_thread_start(p->t.env[1], "other",
						  one_round, p, &th),
				 0);
		env_thread_join(p->t.env[1], th);
		sim_sleep(p->t.w, 10 * MS);
	}
	assert_int_equal(skein_conn_get_state(p->conn), SKEIN_CONN_BROKEN);
	assert_int_equal(p->done, 0);
	skein_rpc_reap(p->conn, SKEIN_S(1));
	assert_int_equal(p->done, p->made);
	assert_int_equal(p->ok, 0);
}

static void test_server_dies(void **state)
{
	struct play p = {.client = server_dies};

	run(&p);
}

/* They cannot be sent any more, as another thread's round finds: they end in the
 * thread that made them. */
static void unsendable(struct play *p)
{
	struct engine *e = conn_engine(p->conn);
	struct env_thread *th;

	have_company(p);
	for (unsigned i = 0; i < 3; i++)
		call(p, NOW);
	assert_true(engine_try_enter(e));
	conn_sendq_close(p->conn);
	engine_leave(e);
	assert_int_equal(
		env_thread_start(p->t.env[1], "other", one_round, p, &th), 0);
	env_thread_join(p->t.env[1], th);
	assert_int_equal(p->done, 0);
	assert_int_equal(skein_rpc_reap(p->conn, 0), 3);
	assert_int_equal(p->not_sent, 3);
	p->n_pins = 0;
}

static void test_unsendable(void **state)
{
	struct play p = {.client = unsendable};

	run(&p);
}

/* Closed at once, without time to drain: each call ends all the same. */
static void closed_at_once(struct play *p)
{
	have_company(p);
	for (unsigned i = 0; i < 3; i++)
		call(p, NOW);
	skein_conn_close(p->conn, 1);
	p->conn = NULL;
	p->n_pins = 0;
	assert_int_equal(p->done, p->made);
}

static void test_closed_at_once(void **state)
{
	struct play p = {.client = closed_at_once};

	run(&p);
}

/* Less room than gathered calls: the owner keeps them, and they leave when there
 * is some. */
static void no_room(struct play *p)
{
	have_company(p);
	for (unsigned i = 1; i < COMBINER_BOUND; i++)
		call(p, NOW);
	skein_engine_progress(p->client_engine);
	all_well(p);
}

static void test_no_room(void **state)
{
	struct play p = {.client = no_room};

	setenv("SKEIN_RPC_WINDOW", "8", 1);
	run(&p);
	unsetenv("SKEIN_RPC_WINDOW");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_comes_back),
		cmocka_unit_test(test_arms),
		cmocka_unit_test(test_others_round),
		cmocka_unit_test(test_owner_is_there),
		cmocka_unit_test(test_background),
		cmocka_unit_test(test_thread_ends),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_given_up_by_other),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_server_dies),
		cmocka_unit_test(test_unsendable),
		cmocka_unit_test(test_closed_at_once),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
