/* SPDX-License-Identifier: MIT */
/*
 * A thread of a handle goes from one lane to another, in a simulated world: what
 * it has left to the owner goes with it when its lane rests, what has ended
 * without an answer is not overtaken, and what reaches a lane that is down ends.
 */
#include "cm_sim.h"
#include "conn/state.h"
#include "rpc/client/lane_client.h"

#include <skein/skein.h>
#include <string.h>

#define ENGINES 2
#define NOW 1
#define LATER 2
#define EMPTY 3
#define LARGE (100u << 10)
#define MS 1000000ull

struct play {
	struct two t;
	void (*client)(struct play *p);
	struct skein_engine *engines[ENGINES];
	atomic_bool halted[ENGINES]; /* nobody runs it */
	atomic_bool over;
	struct skein_conn *served;
	struct skein_rpc_req *later;
	uint64_t order[64]; /* of requests, as they were executed */
	unsigned n_order;

	struct skein_ctx *ctx;
	struct skein_conn *conn;
	struct conn_thread *rec;
	bool ended;
};

/* --- the server --------------------------------------------------------- */

static int on_now(struct skein_rpc_req *req, void *arg)
{
	struct play *p = arg;

	p->served = skein_rpc_req_conn(req);
	assert_true(p->n_order < 64);
	memcpy(&p->order[p->n_order++], skein_rpc_req_data(req), 8);
	return 0;
}

static int on_later(struct skein_rpc_req *req, void *arg)
{
	on_now(req, arg);
	return skein_rpc_defer(req, &((struct play *)arg)->later);
}

static int on_empty(struct skein_rpc_req *req, void *arg)
{
	return 0;
}

struct serving {
	struct play *p;
	unsigned i;
};

static void serves(void *arg)
{
	struct serving *s = arg;

	while (!s->p->over) {
		if (s->p->halted[s->i])
			sim_sleep(s->p->t.w, 10000);
		else
			skein_engine_run(s->p->engines[s->i], 20000);
	}
}

static void server(void *arg)
{
	struct play *p = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr)};
	struct skein_listener_attr l = {.size = sizeof(l),
					.engines = p->engines,
					.engine_count = ENGINES};
	struct env_thread *threads[ENGINES];
	struct skein_listener *listener;
	struct serving s[ENGINES];
	struct skein_mem *area;
	struct skein_ctx *ctx;
	struct rpc_ctx *rx;

	assert_int_equal(ctx_open_env(p->t.env[0], &attr, &ctx), 0);
	/* Which lanes are active is the test's business. */
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	rx->aqp.interval_ns = SKEIN_S(3600);
	assert_int_equal(skein_rpc_handle(ctx, NOW, on_now, p), 0);
	assert_int_equal(skein_rpc_handle(ctx, LATER, on_later, p), 0);
	assert_int_equal(skein_rpc_handle(ctx, EMPTY, on_empty, p), 0);
	assert_int_equal(skein_mem_new(ctx, LARGE, &area), 0);
	assert_int_equal(skein_mem_share(area, "area", SKEIN_MEM_WRITE), 0);
	for (unsigned i = 0; i < ENGINES; i++) {
		assert_int_equal(skein_engine_new(ctx, SKEIN_WAIT_POLL,
						  &p->engines[i]),
				 0);
		s[i] = (struct serving){p, i};
		assert_int_equal(env_thread_start(p->t.env[0], "engine", serves,
						  &s[i], &threads[i]),
				 0);
	}
	assert_int_equal(skein_listener_open(ctx, ":7000", &l, &listener), 0);
	for (unsigned i = 0; i < ENGINES; i++)
		env_thread_join(p->t.env[0], threads[i]);
	skein_mem_free(area);
	skein_ctx_close(ctx);
}

/* --- the client --------------------------------------------------------- */

struct call {
	bool done;
	int status;
	enum skein_outcome outcome;
};

static void call_done(void *arg, const struct skein_rpc_result *res)
{
	*(struct call *)arg = (struct call){true, res->status, res->outcome};
}

static int start(struct play *p, struct call *c, uint16_t id, uint64_t n,
		 size_t len, uint64_t timeout_ns)
{
	uint8_t *buf = env_alloc(p->t.env[1], len);
	int rc;

	*c = (struct call){0};
	memset(buf, 0, len);
	memcpy(buf, &n, sizeof(n));
	rc = skein_rpc_call_async(p->conn, id, buf, len, 0, timeout_ns,
				  call_done, c);
	env_free(p->t.env[1], buf);
	return rc;
}

/* Until it has ended, or so long. */
static void await(struct play *p, const struct call *c, uint64_t ns)
{
	uint64_t end = sim_thread_now(p->t.w) + ns;

	while (!c->done && sim_thread_now(p->t.w) < end) {
		skein_rpc_reap(p->conn, 20000);
		sim_sleep(p->t.w, 1000);
	}
}

static struct rpc_conn *lane_of(struct play *p)
{
	return rpc_conn_of(conn_lane(p->conn, p->rec->lane));
}

static void client(void *arg)
{
	struct play *p = arg;
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .wait = SKEIN_WAIT_POLL};
	struct skein_conn_attr c = {.size = sizeof(c), .qps = ENGINES};
	struct rpc_ctx *rx;
	struct call call;

	assert_int_equal(ctx_open_env(p->t.env[1], &attr, &p->ctx), 0);
	rx = conn_ctx_module(p->ctx, CONN_MODULE_RPC);
	rx->conf.thread_interval_ns = SKEIN_S(3600);
	sim_sleep(p->t.w, MS);
	assert_int_equal(skein_conn_open(p->ctx, "n1:7000", &c, &p->conn), 0);
	assert_int_equal(conn_thread(p->conn, &p->rec), 0);
	assert_int_equal(start(p, &call, NOW, 0, 8, SKEIN_S(1)), 0);
	await(p, &call, SKEIN_S(1));
	assert_true(call.done && !call.status);
	p->client(p);
	skein_conn_close(p->conn, SKEIN_MS(10));
	skein_ctx_close(p->ctx);
	p->over = true;
	p->ended = true;
}

static void run(void (*fn)(struct play *p))
{
	struct play p = {.client = fn};

	two_up(&p.t, 1, 4);
	assert_int_equal(sim_spawn(p.t.proc[0], "server", server, &p), 0);
	assert_int_equal(sim_spawn(p.t.proc[1], "client", client, &p), 0);
	sim_run(p.t.w, 20000 * MS);
	assert_true(p.ended);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sim_proc_bytes(p.t.proc[i]), 0);
	two_down(&p.t);
}

/* --- a lane that rests -------------------------------------------------- */

/* The server declines when the thread's lane next asks. */
static void put_to_rest(struct play *p)
{
	struct rpc_conn *lane = lane_of(p);
	struct skein_conn *theirs = p->served->lanes->lane[p->rec->lane];
	struct call c;

	rpc_conn_of(theirs)->lane_server->keep = false;
	for (int i = 0; i < 64 && lane->lane_client->active; i++) {
		assert_int_equal(start(p, &c, NOW, 0, 8, SKEIN_S(1)), 0);
		await(p, &c, SKEIN_S(1));
	}
	assert_false(lane->lane_client->active);
	/* It is wanted on the other lane, and has waited for that to no avail. */
	sim_sleep(p->t.w, 6 * MS);
}

static void rests(struct play *p)
{
	struct rpc_conn *lane = lane_of(p);
	struct call pin, large, small;

	/* It stays where it is until this is answered. */
	assert_int_equal(start(p, &pin, LATER, 0, 8, SKEIN_S(10)), 0);
	put_to_rest(p);
	assert_int_equal(start(p, &large, NOW, 100, LARGE, SKEIN_S(10)), 0);
	await(p, &large, MS);
	assert_false(large.done);
	/* It would overtake the large one. */
	assert_int_equal(start(p, &small, NOW, 101, 8, SKEIN_S(10)), -EAGAIN);
	assert_int_equal(skein_rpc_answer(p->later, 0), 0);
	await(p, &large, 100 * MS);
	assert_true(large.done && !large.status);
	assert_false(lane->lane_client->active);
	assert_true(lane_of(p) != lane);
	assert_int_equal(start(p, &small, NOW, 101, 8, SKEIN_S(10)), 0);
	await(p, &small, 100 * MS);
	assert_true(small.done && !small.status);
	assert_int_equal(p->order[p->n_order - 2], 100);
	assert_int_equal(p->order[p->n_order - 1], 101);
}

static void test_lane_rests(void **state)
{
	run(rests);
}

/* One that waits behind another has its own deadline. */
static void waits(struct play *p)
{
	struct rpc_pending *first, *second;
	struct rpc_conn *lane = lane_of(p);
	struct call pin, large, late = {0};
	struct rpc_pending behind = {.id = NOW,
				     .rc = lane,
				     .req = "",
				     .timeout_ns = MS,
				     .done = call_done,
				     .arg = &late,
				     .held = &p->rec->held};

	assert_int_equal(start(p, &pin, LATER, 0, 8, SKEIN_S(10)), 0);
	put_to_rest(p);
	assert_int_equal(start(p, &large, NOW, 1, LARGE, SKEIN_S(10)), 0);
	await(p, &large, MS);
	/* As a second one of the thread would come. */
	p->rec->held++;
	rpc_thread_of(p->rec)->begun++;
	assert_true(engine_try_enter(lane->engine));
	rpc_pending_start(lane, &behind);
	engine_leave(lane->engine);
	first = lane->waiting;
	second = first->next;
	assert_ptr_equal(second, &behind);
	await(p, &late, 5 * MS);
	assert_true(late.done);
	rpc_thread_of(p->rec)->begun--;
	assert_int_equal(late.status, -ETIMEDOUT);
	assert_int_equal(late.outcome, SKEIN_NOT_SENT);
	assert_false(large.done);
	assert_int_equal(skein_rpc_answer(p->later, 0), 0);
	await(p, &large, 100 * MS);
	assert_true(large.done && !large.status);
}

static void test_deadline_behind(void **state)
{
	run(waits);
}

/* --- a lane that is down ------------------------------------------------ */

static void goes_down(struct play *p)
{
	struct rpc_conn *lane = lane_of(p);
	struct call c = {0};
	struct rpc_pending late = {.id = NOW,
				   .rc = lane,
				   .req = "",
				   .timeout_ns = SKEIN_S(10),
				   .done = call_done,
				   .arg = &c,
				   .held = &p->rec->held};

	sim_proc_kill(p->t.proc[0]);
	for (int i = 0;
	     i < 1000 && skein_conn_get_state(p->conn) != SKEIN_CONN_BROKEN;
	     i++)
		skein_engine_run(skein_ctx_engine(p->ctx), 10 * MS);
	assert_int_equal(skein_conn_get_state(p->conn), SKEIN_CONN_BROKEN);
	p->rec->held++;
	assert_true(engine_try_enter(lane->engine));
	rpc_pending_start(lane, &late);
	engine_leave(lane->engine);
	assert_true(c.done);
	assert_int_equal(c.outcome, SKEIN_NOT_SENT);
	assert_int_equal(p->rec->held, 0);
}

static void test_lane_down(void **state)
{
	run(goes_down);
}

/* --- calls without an answer -------------------------------------------- */

/* A call ends by its deadline before the server has seen it; what comes next
 * does not go by another lane before the server has. */
static void late(struct play *p)
{
	unsigned lane = p->rec->lane, n = p->n_order;
	struct call first, second;

	p->halted[lane] = true;
	sim_sleep(p->t.w, MS);
	assert_int_equal(start(p, &first, NOW, 1, 8, MS), 0);
	await(p, &first, 10 * MS);
	assert_true(first.done);
	assert_int_equal(first.outcome, SKEIN_UNKNOWN);
	p->rec->lane_wanted = (uint16_t)!lane;
	assert_int_equal(start(p, &second, NOW, 2, 8, SKEIN_S(1)), 0);
	await(p, &second, 10 * MS);
	assert_int_equal(p->n_order, n);
	p->halted[lane] = false;
	await(p, &second, 100 * MS);
	assert_true(second.done && !second.status);
	assert_int_equal(p->n_order, n + 2);
	assert_int_equal(p->order[n], 1);
	assert_int_equal(p->order[n + 1], 2);
	/* The server has seen all: now it goes. */
	assert_int_equal(start(p, &second, NOW, 3, 8, SKEIN_S(1)), 0);
	await(p, &second, 100 * MS);
	assert_int_equal(p->rec->lane, !lane);
}

static void test_late(void **state)
{
	run(late);
}

/* The same when the old lane rests and nothing comes by it, for the handler has
 * put the call off: a READ tells that the server has seen it. */
static void late_at_rest(struct play *p)
{
	struct rpc_conn *old = lane_of(p);
	unsigned lane = p->rec->lane, n;
	struct call first, second;

	rpc_conn_of(p->served->lanes->lane[lane])->lane_server->keep = false;
	while (old->lane_client->credit.left > CREDIT_C / 2 + 1) {
		assert_int_equal(start(p, &second, NOW, 0, 8, SKEIN_S(1)), 0);
		await(p, &second, SKEIN_S(1));
	}
	/* With this goes the question. */
	n = p->n_order;
	p->halted[lane] = true;
	sim_sleep(p->t.w, MS);
	assert_int_equal(start(p, &first, LATER, 1, 8, MS), 0);
	await(p, &first, 10 * MS);
	assert_int_equal(first.outcome, SKEIN_UNKNOWN);
	assert_int_equal(p->n_order, n);
	p->halted[lane] = false;
	for (int i = 0; i < 1000 && old->lane_client->active; i++) {
		skein_rpc_reap(p->conn, 0);
		sim_sleep(p->t.w, 20000);
	}
	assert_false(old->lane_client->active);
	p->rec->lane_wanted = (uint16_t)!lane;
	assert_int_equal(skein_rpc_call(p->conn, NOW, (uint64_t[]){2}, 8, NULL,
					0, SKEIN_S(1), NULL),
			 0);
	assert_int_equal(p->order[n], 1);
	assert_int_equal(p->order[n + 1], 2);
	assert_true(lane_of(p) != old);
	assert_int_equal(skein_rpc_answer(p->later, 0), 0);
}

static void test_late_at_rest(void **state)
{
	run(late_at_rest);
}

/* --- a thread that always has something under way ----------------------- */

static void wanted_elsewhere(struct play *p, uint64_t for_ns)
{
	p->rec->drain_ns = sim_thread_now(p->t.w) + for_ns;
	p->rec->lane_wanted = (uint16_t)!p->rec->lane;
}

/* It sends nothing until its last call is answered, then goes. */
static void drains(struct play *p)
{
	unsigned lane = p->rec->lane;
	struct call pin, c;

	assert_int_equal(start(p, &pin, LATER, 1, 8, SKEIN_S(10)), 0);
	await(p, &pin, MS);
	wanted_elsewhere(p, SKEIN_S(1));
	assert_int_equal(start(p, &c, NOW, 2, 8, SKEIN_S(1)), -EAGAIN);
	await(p, &pin, MS);
	assert_int_equal(start(p, &c, NOW, 2, 8, SKEIN_S(1)), -EAGAIN);
	assert_int_equal(skein_rpc_answer(p->later, 0), 0);
	await(p, &pin, SKEIN_S(1));
	assert_true(pin.done);
	assert_int_equal(start(p, &c, NOW, 2, 8, SKEIN_S(1)), 0);
	assert_int_equal(p->rec->lane, !lane);
	await(p, &c, SKEIN_S(1));
	assert_true(c.done && !c.status);
}

static void test_drains(void **state)
{
	run(drains);
}

/* An answer that does not come holds it up for so long and no longer, in calls of
 * all kinds. */
static void stays(struct play *p)
{
	uint64_t begin, n = p->n_order;
	unsigned lane = p->rec->lane;
	struct call pin, c;

	assert_int_equal(start(p, &pin, LATER, 1, 8, SKEIN_S(10)), 0);
	await(p, &pin, MS);
	begin = sim_thread_now(p->t.w);
	wanted_elsewhere(p, MS);
	assert_int_equal(start(p, &c, NOW, 2, 8, SKEIN_S(1)), -EAGAIN);
	assert_int_equal(skein_rpc_reap(p->conn, SKEIN_S(1)), 0);
	assert_in_range(sim_thread_now(p->t.w) - begin, MS, 2 * MS);
	assert_int_equal(start(p, &c, NOW, 2, 8, SKEIN_S(1)), 0);
	await(p, &c, SKEIN_S(1));
	assert_true(c.done && !c.status);

	begin = sim_thread_now(p->t.w);
	wanted_elsewhere(p, MS);
	assert_int_equal(skein_rpc_call(p->conn, NOW, (uint64_t[]){3}, 8, NULL,
					0, SKEIN_S(1), NULL),
			 0);
	assert_in_range(sim_thread_now(p->t.w) - begin, MS, 2 * MS);
	assert_int_equal(p->rec->lane, lane);
	assert_int_equal(p->n_order, n + 3);
	assert_int_equal(skein_rpc_answer(p->later, 0), 0);
	await(p, &pin, SKEIN_S(1));
}

static void test_stays(void **state)
{
	run(stays);
}

/* --- what counts as a thread's load ------------------------------------- */

struct worker {
	struct play *p;
	void (*work)(struct worker *w);
	struct skein_remote area;
	struct skein_mem *local;
	struct conn_thread *rec;
	bool done; /* stays until it may go: its thread record is looked at */
	atomic_bool go;
};

/* From lane 0, whatever was drawn. */
static void works(void *arg)
{
	struct worker *w = arg;

	assert_int_equal(conn_thread(w->p->conn, &w->rec), 0);
	w->rec->lane = w->rec->lane_wanted = 0;
	for (int i = 0; i < 4; i++)
		w->work(w);
	w->done = true;
	while (!w->go)
		sim_sleep(w->p->t.w, 10000);
}

static void write_much(struct worker *w)
{
	assert_int_equal(skein_mem_write(w->p->conn, w->local, 0, &w->area, 0,
					 1024, SKEIN_S(1)),
			 0);
}

static void call_empty(struct worker *w)
{
	assert_int_equal(skein_rpc_call(w->p->conn, EMPTY, NULL, 0, NULL, 0,
					SKEIN_S(1), NULL),
			 0);
}

/* Two under way at any time. */
static void call_always(struct worker *w)
{
	struct skein_conn *conn = w->p->conn;
	struct call c[2] = {{.done = true}, {.done = true}};

	for (unsigned n = 0; n < 1000 || !c[0].done || !c[1].done; n++) {
		for (unsigned i = 0; i < 2 && n < 1000; i++) {
			if (!c[i].done)
				continue;
			c[i].done = skein_rpc_call_async(conn, EMPTY, NULL, 0,
							 0, SKEIN_S(1),
							 call_done, &c[i]);
			if (c[i].done) /* -EAGAIN */
				break;
		}
		skein_rpc_reap(conn, 20000);
	}
}

/* Four threads that do alike, all by lane 0: the scheduler gives each lane two. */
static void shared_out(struct play *p, void (*work)(struct worker *w))
{
	struct rpc_handle *h = lane_of(p)->lane_client->handle;
	struct env_thread *threads[4];
	struct worker w[4];
	unsigned moved = 0;

	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct worker){.p = p, .work = work};
		assert_int_equal(skein_mem_new(p->ctx, 1024, &w[i].local), 0);
		w[i].area.size = sizeof(w[i].area);
		assert_int_equal(skein_mem_find(p->conn, "area", SKEIN_S(1),
						&w[i].area),
				 0);
	}
	/* What the thread that is here has called is no load any more. */
	rpc_handle_schedule(h);
	skein_engine_run(skein_ctx_engine(p->ctx), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(env_thread_start(p->t.env[1], "worker", works,
						  &w[i], &threads[i]),
				 0);
	for (unsigned i = 0; i < 4; i++)
		while (!w[i].done)
			sim_sleep(p->t.w, 10000);
	rpc_handle_schedule(h);
	skein_engine_run(skein_ctx_engine(p->ctx), 0);
	for (unsigned i = 0; i < 4; i++)
		moved += w[i].rec->lane_wanted;
	assert_int_equal(moved, 2);
	for (unsigned i = 0; i < 4; i++) {
		w[i].go = true;
		env_thread_join(p->t.env[1], threads[i]);
		skein_mem_free(w[i].local);
	}
}

static void memory(struct play *p)
{
	shared_out(p, write_much);
}

static void test_memory_counts(void **state)
{
	run(memory);
}

static void empty(struct play *p)
{
	shared_out(p, call_empty);
}

static void test_empty_counts(void **state)
{
	run(empty);
}

/* Threads that are never idle by themselves go where they are wanted. */
static void always_busy(struct play *p)
{
	struct rpc_handle *h = lane_of(p)->lane_client->handle;
	struct env_thread *threads[4];
	struct worker w[4];
	unsigned moved = 0;

	for (unsigned i = 0; i < 4; i++) {
		w[i] = (struct worker){.p = p, .work = call_always};
		assert_int_equal(env_thread_start(p->t.env[1], "worker", works,
						  &w[i], &threads[i]),
				 0);
	}
	h->interval_ns = MS;
	sim_sleep(p->t.w, MS);
	rpc_handle_schedule(h);
	sim_sleep(p->t.w, MS);
	for (unsigned i = 0; i < 4; i++) {
		assert_false(w[i].done);
		moved += w[i].rec->lane;
	}
	assert_int_equal(moved, 2);
	for (unsigned i = 0; i < 4; i++) {
		w[i].go = true;
		env_thread_join(p->t.env[1], threads[i]);
	}
}

static void test_always_busy(void **state)
{
	run(always_busy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lane_rests),
		cmocka_unit_test(test_deadline_behind),
		cmocka_unit_test(test_lane_down),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_late_at_rest),
		cmocka_unit_test(test_drains),
		cmocka_unit_test(test_stays),
		cmocka_unit_test(test_always_busy),
		cmocka_unit_test(test_memory_counts),
		cmocka_unit_test(test_empty_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
