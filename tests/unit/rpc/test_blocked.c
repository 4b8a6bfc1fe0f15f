/* SPDX-License-Identifier: MIT */
/*
 * test_blocked.c - a thread is cancelled at each point where the calling end
 * waits, or where others wait for it: other threads' calls end by their deadlines
 * while it stands there, and it goes on to the end of its own call.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conn/ctx.h"
#include "conn/state.h"
#include "env/engine/state.h"
#include "rpc/client/lane_client.h"
#include "unit/cm.h"
#include "unit/rpc/cancel.h"
#include "unit/rpc/hold.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define PATIENCE patience_ns(30)
#define SHORT SKEIN_MS(20)
#define LARGE (200u << 10)
#define WINDOW 4

struct world {
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct skein_env *env; /* the client's */
	struct env_ops ops;
	struct hold hold;
	sem_t kept, go_on;
};

static _Thread_local bool is_victim;
static struct world *_Atomic parks;

/* The leader makes its message, and stays there. */
static void charge(struct skein_env *env, enum env_cost cost, uint64_t n)
{
	struct world *w;

	if (cost != ENV_COST_ENCODE || !is_victim)
		return;
	w = atomic_exchange(&parks, NULL);
	if (!w)
		return;
	sem_post(&w->kept);
	sem_wait(&w->go_on);
}

/* The client's leaders can be stopped. */
static void world_open(struct world *w, unsigned qps)
{
	struct skein_ctx_attr ctx = {.size = sizeof(ctx),
				     .device = "soft",
				     .log = hold_quiet,
				     .background = true};
	struct skein_conn_attr attr = {.size = sizeof(attr), .qps = qps};

	memset(w, 0, sizeof(*w));
	sem_init(&w->kept, 0, 0);
	sem_init(&w->go_on, 0, 0);
	assert_int_equal(skein_ctx_open(&ctx, &w->server), 0);
	ctx.background = false;
	assert_int_equal(env_real_new(&w->env), 0);
	w->ops = *w->env->ops;
	w->ops.charge = charge;
	w->env->ops = &w->ops;
	assert_int_equal(ctx_open_env(w->env, &ctx, &w->client), 0);
	hold_serve(&w->hold, w->server);
	assert_int_equal(skein_listener_open(w->server, "127.0.0.1:0", NULL,
					     &w->listener),
			 0);
	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener),
					 &attr, &w->conn),
			 0);
}

static void world_close(struct world *w)
{
	skein_conn_close(w->conn, SKEIN_S(1));
	skein_ctx_close(w->client);
	env_real_free(w->env);
	skein_ctx_close(w->server);
	sem_destroy(&w->kept);
	sem_destroy(&w->go_on);
}

static int call(struct world *w, size_t len, uint64_t timeout_ns)
{
	uint8_t *buf = calloc(1, len);
	int rc;

	rc = skein_rpc_call(w->conn, ECHO, buf, len, buf, len, timeout_ns,
			    NULL);
	free(buf);
	return rc;
}

/* --- the thread that is cancelled ----------------------------------------- */

struct victim {
	struct world *w;
	int (*does)(struct victim *v);
	pthread_t id;
	int rc;
	const char *addr;
	struct skein_mem *local;
	struct skein_remote remote;
};

static void *victim_main(void *arg)
{
	struct victim *v = arg;

	pthread_cleanup_push(cancel_frames_gone, NULL);
	is_victim = true;
	v->rc = v->does(v);
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

static void victim_start(struct victim *v)
{
	v->rc = 1;
	assert_int_equal(pthread_create(&v->id, NULL, victim_main, v), 0);
}

/* It has come to the end of its call: with this. */
static void victim_end(struct victim *v, int rc)
{
	void *ret;

	assert_int_equal(pthread_join(v->id, &ret), 0);
	assert_ptr_equal(ret, PTHREAD_CANCELED);
	assert_int_equal(v->rc, rc);
}

static int echoes(struct victim *v)
{
	return call(v->w, 8, PATIENCE);
}

static int echoes_large(struct victim *v)
{
	return call(v->w, LARGE, PATIENCE);
}

static int is_held(struct victim *v)
{
	return skein_rpc_call(v->w->conn, HOLD, "x", 1, NULL, 0, PATIENCE,
			      NULL);
}

static void on_end(void *arg, const struct skein_rpc_result *res)
{
	++*(int *)arg;
}

static int reaps(struct victim *v)
{
	int n = 0, rc;

	rc = skein_rpc_call_async(v->w->conn, HOLD, "x", 1, 0, PATIENCE, on_end,
				  &n);
	if (!rc)
		rc = skein_rpc_reap(v->w->conn, PATIENCE);
	return rc == 1 && n == 1 ? 0 : -EIO;
}

static int reads(struct victim *v)
{
	return skein_mem_read(v->w->conn, v->local, 0, &v->remote, 0, 8,
			      PATIENCE);
}

static int finds(struct victim *v)
{
	struct skein_remote remote = {.size = sizeof(remote)};

	return skein_mem_find(v->w->conn, "words", PATIENCE, &remote);
}

static int connects(struct victim *v)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = PATIENCE};
	struct skein_conn *conn;

	return skein_conn_open(v->w->client, v->addr, &attr, &conn);
}

/* Another one, in a thread of its own. */
struct other {
	struct world *w;
	pthread_t id;
	int rc;
};

static void *other_main(void *arg)
{
	struct other *o = arg;

	o->rc = call(o->w, 8, PATIENCE);
	return NULL;
}

static void other_start(struct other *o, struct world *w)
{
	o->w = w;
	assert_int_equal(pthread_create(&o->id, NULL, other_main, o), 0);
}

static void other_end(struct other *o)
{
	pthread_join(o->id, NULL);
	assert_int_equal(o->rc, 0);
}

/* The queue and the engine are nobody's. */
static void assert_goes_on(struct world *w)
{
	assert_int_equal(call(w, 8, PATIENCE), 0);
	assert_int_equal(call(w, LARGE, PATIENCE), 0);
	assert_true(engine_try_enter(conn_engine(w->conn)));
	engine_leave(conn_engine(w->conn));
}

/* --- in the combining queue ----------------------------------------------- */

static void wait_behind(struct combiner *q, struct combiner_node *n)
{
	while (atomic_load(&q->tail) == n)
		sched_yield();
}

static void test_leader(void **state)
{
	struct other other;
	struct combiner_node *n;
	struct victim v = {.does = echoes};
	struct combiner *q;
	struct world w;

	world_open(&w, 1);
	v.w = &w;
	q = conn_sendq_queue(w.conn);
	atomic_store(&parks, &w);
	victim_start(&v);
	sem_wait(&w.kept);
	n = atomic_load(&q->tail);
	pthread_cancel(v.id);
	other_start(&other, &w);
	wait_behind(q, n);
	sem_post(&w.go_on);
	other_end(&other);
	victim_end(&v, 0);
	assert_goes_on(&w);
	world_close(&w);
}

static void test_follower(void **state)
{
	struct victim v = {.does = echoes};
	struct combiner_node *n;
	struct other other;
	struct engine *e;
	struct world w;
	struct combiner *q;

	world_open(&w, 1);
	v.w = &w;
	q = conn_sendq_queue(w.conn);
	e = conn_engine(w.conn);
	assert_int_equal(engine_enter(e, ENV_NEVER), 0);
	conn_sendq_hold(w.conn);
	n = atomic_load(&q->tail);
	victim_start(&v);
	wait_behind(q, n);
	n = atomic_load(&q->tail);
	pthread_cancel(v.id);
	other_start(&other, &w);
	wait_behind(q, n);
	conn_sendq_release(w.conn);
	engine_leave(e);
	other_end(&other);
	victim_end(&v, 0);
	assert_goes_on(&w);
	world_close(&w);
}

/* --- for a response -------------------------------------------------------- */

static void awaits(int (*does)(struct victim *v))
{
	struct victim v = {.does = does};
	struct skein_rpc_req *held;
	struct world w;

	world_open(&w, 1);
	v.w = &w;
	victim_start(&v);
	held = hold_wait(&w.hold);
	pthread_cancel(v.id);
	assert_int_equal(call(&w, 8, PATIENCE), 0);
	assert_int_equal(call(&w, LARGE, PATIENCE), 0);
	assert_int_equal(skein_rpc_answer(held, 0), 0);
	victim_end(&v, 0);
	assert_goes_on(&w);
	world_close(&w);
}

static void test_response(void **state)
{
	awaits(is_held);
	awaits(reaps);
}

/* --- for room --------------------------------------------------------------- */

static void wait_room(struct world *w)
{
	while (!rpc_handle_wants_room(rpc_conn_of(w->conn)->handle))
		sched_yield();
}

/* A window of WINDOW calls, under way from number `first` on. */
static void window_open(struct world *w, struct skein_rpc_req **held, int first,
			int *n)
{
	setenv("SKEIN_RPC_WINDOW", "4", 1);
	world_open(w, 1);
	unsetenv("SKEIN_RPC_WINDOW");
	for (int i = first; i < WINDOW; i++) {
		assert_int_equal(skein_rpc_call_async(w->conn, HOLD, "x", 1, 8,
						      PATIENCE, on_end, n),
				 0);
		held[i] = hold_wait(&w->hold);
	}
}

static void test_window(void **state)
{
	struct skein_rpc_req *held[WINDOW];
	struct victim v = {.does = echoes};
	struct skein_rpc_result res;
	struct world w;
	int n = 0;

	v.w = &w;
	window_open(&w, held, 0, &n);
	victim_start(&v);
	wait_room(&w);
	pthread_cancel(v.id);
	assert_int_equal(skein_rpc_call(w.conn, ECHO, "x", 1, NULL, 0, SHORT,
					&res),
			 -ETIMEDOUT);
	assert_int_equal(res.outcome, SKEIN_NOT_SENT);
	for (int i = 0; i < WINDOW; i++)
		assert_int_equal(skein_rpc_answer(held[i], 0), 0);
	victim_end(&v, 0);
	while (n < WINDOW)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_goes_on(&w);
	world_close(&w);
}

static void exits(void *arg, const struct skein_rpc_result *res)
{
	pthread_exit(NULL);
}

/* Ends in a callback of its own, while it waits for room. */
static int exits_in_line(struct victim *v)
{
	int rc;

	rc = skein_rpc_call_async(v->w->conn, HOLD, "x", 1, 8, PATIENCE, exits,
				  v);
	/* No memory: nobody would free it. */
	return rc ? rc
		  : skein_rpc_call(v->w->conn, ECHO, "x", 1, NULL, 0, PATIENCE,
				   NULL);
}

static void test_exit_in_line(void **state)
{
	struct skein_rpc_req *held[WINDOW];
	struct victim v = {.does = exits_in_line};
	struct world w;
	int n = 0;

	v.w = &w;
	window_open(&w, held, 1, &n);
	victim_start(&v);
	held[0] = hold_wait(&w.hold);
	wait_room(&w);
	assert_int_equal(skein_rpc_answer(held[0], 0), 0);
	/* Which frees no place, being the last. */
	pthread_join(v.id, NULL);
	assert_int_equal(v.rc, 1);
	assert_false(rpc_handle_wants_room(rpc_conn_of(w.conn)->handle));
	for (int i = 1; i < WINDOW; i++)
		assert_int_equal(skein_rpc_answer(held[i], 0), 0);
	while (n < WINDOW - 1)
		assert_true(skein_rpc_reap(w.conn, PATIENCE) >= 0);
	assert_goes_on(&w);
	world_close(&w);
}

/* No lane has a credit, until the server grants some. */
static void test_credits(void **state)
{
	struct victim v = {.does = echoes};
	struct rpc_conn *rc;
	struct engine *e;
	struct world w;
	unsigned i, lanes;

	world_open(&w, 2);
	v.w = &w;
	e = conn_engine(w.conn);
	assert_int_equal(call(&w, 8, PATIENCE), 0);
	lanes = conn_lanes(w.conn);
	assert_int_equal(lanes, 2);
	for (i = 0; i < lanes; i++)
		credit_declined(
			&rpc_conn_of(conn_lane(w.conn, i))->lane_client->credit);
	victim_start(&v);
	wait_room(&w);
	pthread_cancel(v.id);
	assert_int_equal(call(&w, 8, SHORT), -ETIMEDOUT);
	for (i = 0; i < lanes; i++) {
		rc = rpc_conn_of(conn_lane(w.conn, i));
		while (engine_enter(e, env_now_ns(conn_env(w.conn)) + SHORT))
			;
		assert_int_equal(rpc_lane_client_imm(rc, 1), 0);
		engine_leave(e);
	}
	victim_end(&v, 0);
	assert_int_equal(call(&w, 8, PATIENCE), 0);
	world_close(&w);
}

/* --- for the engine ---------------------------------------------------------- */

static void keeps(void *arg, const struct skein_rpc_result *res)
{
	struct world *w = arg;

	sem_post(&w->kept);
	sem_wait(&w->go_on);
}

/* Runs the engine, and stays in a callback. */
static void *keeper_main(void *arg)
{
	struct world *w = arg;
	int rc;

	rc = skein_rpc_call_async(w->conn, ECHO, "x", 1, 1, PATIENCE, keeps, w);
	if (!rc)
		skein_rpc_reap(w->conn, PATIENCE);
	return NULL;
}

static void words(struct victim *v)
{
	struct skein_mem *shared;
	struct world *w = v->w;

	assert_int_equal(skein_mem_new(w->server, 4096, &shared), 0);
	assert_int_equal(skein_mem_share(shared, "words",
					 SKEIN_MEM_READ | SKEIN_MEM_WRITE),
			 0);
	assert_int_equal(skein_mem_new(w->client, 4096, &v->local), 0);
	v->remote.size = sizeof(v->remote);
	assert_int_equal(skein_mem_find(w->conn, "words", PATIENCE, &v->remote),
			 0);
}

static void for_engine(int (*does)(struct victim *v))
{
	struct victim v = {.does = does};
	struct skein_rpc_result res;
	pthread_t keeper;
	struct world w;
	char c = 'x';

	world_open(&w, 1);
	v.w = &w;
	words(&v);
	assert_int_equal(pthread_create(&keeper, NULL, keeper_main, &w), 0);
	sem_wait(&w.kept);
	victim_start(&v);
	/* It sleeps until the engine is free. */
	while (!atomic_load(&conn_engine(w.conn)->n_places))
		sched_yield();
	pthread_cancel(v.id);
	assert_int_equal(skein_rpc_call(w.conn, ECHO, &c, 1, &c, 1, SHORT,
					&res),
			 -ETIMEDOUT);
	assert_int_equal(res.outcome, SKEIN_UNKNOWN);
	assert_int_equal(skein_mem_read(w.conn, v.local, 0, &v.remote, 0, 8,
					SHORT),
			 -ETIMEDOUT);
	sem_post(&w.go_on);
	pthread_join(keeper, NULL);
	victim_end(&v, 0);
	assert_goes_on(&w);
	skein_mem_free(v.local);
	world_close(&w);
}

static void test_engine(void **state)
{
	for_engine(echoes);
	for_engine(echoes_large);
	for_engine(reads);
	for_engine(finds);
}

/* --- during connection --------------------------------------------------------- */

/* A peer that says nothing. */
static void test_connecting(void **state)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct victim v = {.does = connects};
	socklen_t len = sizeof(sa);
	struct skein_conn *conn;
	struct world w;
	char addr[32];
	int at, fd;

	world_open(&w, 1);
	at = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(at, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(at, 1), 0);
	getsockname(at, (struct sockaddr *)&sa, &len);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", ntohs(sa.sin_port));
	v.w = &w;
	v.addr = addr;
	victim_start(&v);
	fd = accept(at, NULL, NULL);
	assert_true(fd >= 0);
	pthread_cancel(v.id);
	assert_int_equal(call(&w, 8, PATIENCE), 0);
	assert_int_equal(skein_conn_open(w.client,
					 skein_listener_addr(w.listener), NULL,
					 &conn),
			 0);
	skein_conn_close(conn, SKEIN_S(1));
	close(at);
	close(fd);
	pthread_join(v.id, NULL);
	assert_true(v.rc < 0);
	assert_goes_on(&w);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leader),
		cmocka_unit_test(test_follower),
		cmocka_unit_test(test_response),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_exit_in_line),
		cmocka_unit_test(test_credits),
		cmocka_unit_test(test_engine),
		cmocka_unit_test(test_connecting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
