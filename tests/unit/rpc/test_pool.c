/* SPDX-License-Identifier: MIT */
/*
 * test_pool.c - handlers in threads of a pool, over the software device: a
 * slow one holds up nobody, many at once, requests that change hands, the ends
 * of pool, connection and context while handlers run, short memory.
 */
#include "unit/alloc_sweep.h"

#include "base/prng.h"
#include "conn/ctx.h"
#include "rpc/server/watchdog.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <skein/skein.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INLINE 1
#define WORKER 2
#define SLOW 3
#define KEPT 4
#define ALSO_SLOW 5
#define PATIENCE SKEIN_S(30)
#define BIG 200000u
#define SHARD 6u

struct world {
	struct skein_env *env;
	struct alloc_sweep sweep;
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_conn *conn;
	struct skein_rpc_pool *pool;
	sem_t entered, leave;
	_Atomic(struct skein_rpc_req *) kept;
};

static int respond(struct skein_rpc_req *req)
{
	const uint8_t *data = skein_rpc_req_data(req);
	size_t len = skein_rpc_req_len(req);
	uint8_t *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	if (skein_rpc_req_shard(req) != SHARD)
		return -EXDEV;
	for (size_t i = 0; i < len; i++)
		resp[i] = (uint8_t)(data[i] + 1);
	return 0;
}

static int on_call(struct skein_rpc_req *req, void *arg)
{
	return respond(req);
}

static int on_slow(struct skein_rpc_req *req, void *arg)
{
	struct world *w = arg;

	sem_post(&w->entered);
	while (sem_wait(&w->leave))
		;
	return respond(req);
}

/* Somebody else answers. */
static int on_kept(struct skein_rpc_req *req, void *arg)
{
	struct skein_rpc_req *later, *again;
	struct world *w = arg;

	assert_int_equal(skein_rpc_defer(req, &later), 0);
	assert_int_equal(skein_rpc_defer(req, &again), -EALREADY);
	atomic_store(&w->kept, later);
	sem_post(&w->entered);
	return -EIO; /* does not count */
}

static atomic_uint slow_lines[65536]; /* of the log, by rpc */

/* Broken connections are meant; which device it is the harsh run wants to know. */
static void say(void *arg, enum env_log_level level, const char *msg)
{
	unsigned id;

	if (level == ENV_LOG_WARN &&
	    sscanf(msg, "the handler of rpc %u has run", &id) == 1)
		atomic_fetch_add(&slow_lines[id % 65536], 1);
	if (level == ENV_LOG_INFO)
		fprintf(stderr, "skein: info: %s\n", msg);
}

static void connect_to(struct world *w)
{
	struct skein_conn_attr attr = {.size = sizeof(attr), .shard = SHARD};

	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener),
					 &attr, &w->conn),
			 0);
}

static void world_open(struct world *w, unsigned threads)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};

	memset(w, 0, sizeof(*w));
	sem_init(&w->entered, 0, 0);
	sem_init(&w->leave, 0, 0);
	assert_int_equal(env_real_new(&w->env), 0);
	w->env->log = say;
	alloc_sweep_init(&w->sweep, w->env);
	assert_int_equal(ctx_open_env(w->env, &attr, &w->server), 0);
	attr.background = false;
	assert_int_equal(ctx_open_env(w->env, &attr, &w->client), 0);
	assert_int_equal(skein_rpc_pool_new(w->server, threads, &w->pool), 0);
	assert_int_equal(skein_rpc_handle(w->server, INLINE, on_call, NULL), 0);
	assert_int_equal(skein_rpc_handle_workers(w->server, WORKER, on_call,
						  NULL, w->pool),
			 0);
	assert_int_equal(skein_rpc_handle_workers(w->server, SLOW, on_slow, w,
						  w->pool),
			 0);
	assert_int_equal(skein_rpc_handle_workers(w->server, KEPT, on_kept, w,
						  w->pool),
			 0);
	assert_int_equal(skein_listener_open(w->server, "127.0.0.1:0", NULL,
					     &w->listener),
			 0);
	connect_to(w);
}

static void world_close(struct world *w)
{
	if (w->conn)
		skein_conn_close(w->conn, SKEIN_S(1));
	skein_ctx_close(w->client);
	skein_ctx_close(w->server);
	w->env->alloc_fails = NULL;
	env_real_free(w->env);
	sem_destroy(&w->entered);
	sem_destroy(&w->leave);
}

static int call(struct world *w, uint16_t id, uint8_t *buf, uint32_t len,
		uint32_t seed)
{
	struct skein_rpc_result res;
	uint8_t *resp = malloc(len ? len : 1);
	int rc;

	for (uint32_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(seed + i * 7 + (i >> 8));
	rc = skein_rpc_call(w->conn, id, buf, len, resp, len, PATIENCE, &res);
	if (!rc) {
		assert_int_equal(res.len, len);
		for (uint32_t i = 0; i < len; i++)
			assert_int_equal(resp[i], (uint8_t)(buf[i] + 1));
	}
	free(resp);
	return rc;
}

static void count(void *arg, const struct skein_rpc_result *res)
{
	int *n = arg;

	*n += res->outcome == SKEIN_DONE && !res->status;
}

static int call_start(struct world *w, uint16_t id, int *ended)
{
	return skein_rpc_call_async(w->conn, id, "12345678", 8, 8, PATIENCE,
				    count, ended);
}

static void wait_for(struct world *w, int *n, int want)
{
	while (*n < want)
		skein_ctx_progress(w->client);
}

/* Every thread is busy with a slow one; inline handlers go on, thousands. */
static void test_slow(void **state)
{
	struct skein_rpc_stats st = {.size = sizeof(st)};
	uint8_t buf[64];
	struct world w;
	int ended = 0;

	world_open(&w, 2);
	for (int i = 0; i < 3; i++)
		assert_int_equal(call_start(&w, SLOW, &ended), 0);
	for (int i = 0; i < 2; i++)
		sem_wait(&w.entered);
	for (unsigned i = 0; i < 3000; i++)
		assert_int_equal(call(&w, INLINE, buf, i % 64, i), 0);
	assert_int_equal(ended, 0);
	for (int i = 0; i < 3; i++)
		sem_post(&w.leave);
	wait_for(&w, &ended, 3);
	assert_int_equal(skein_rpc_get_stats(w.conn, &st), 0);
	assert_int_equal(st.calls, 3003);
	world_close(&w);
}

/* A handler is slow when a look finds it where a look before has found it, and so
 * much later. */
static void test_watchdog(void **state)
{
	struct rpc_watchdog d = {0};

	assert_int_equal(rpc_watchdog_slow(&d, 100, 10), 0);
	assert_int_equal(rpc_watchdog_slow(&d, 200, 10), 0); /* it runs none */
	rpc_watchdog_begin(&d);
	assert_int_equal(rpc_watchdog_slow(&d, 300, 10), 0);
	assert_int_equal(rpc_watchdog_slow(&d, 309, 10), 0);
	assert_int_equal(rpc_watchdog_slow(&d, 310, 10), 10);
	assert_int_equal(rpc_watchdog_slow(&d, 350, 10), 50);
	rpc_watchdog_end(&d);
	rpc_watchdog_begin(&d);
	assert_int_equal(rpc_watchdog_slow(&d, 360, 10), 0); /* the next one */
	assert_int_equal(rpc_watchdog_slow(&d, 369, 10), 0);
	rpc_watchdog_end(&d);
	assert_int_equal(rpc_watchdog_slow(&d, 400, 10), 0);
}

static void wait_line(struct world *w, unsigned id)
{
	uint64_t end = env_now_ns(w->env) + PATIENCE;

	while (!atomic_load(&slow_lines[id]) && env_now_ns(w->env) < end)
		usleep(1000);
	assert_int_equal(slow_lines[id], 1);
}

/* The log names each slow handler once, and none of the others. */
static void test_slow_line(void **state)
{
	uint8_t buf[8];
	struct world w;
	int ended = 0;

	setenv("SKEIN_RPC_SLOW", "500ms", 1);
	world_open(&w, 2);
	unsetenv("SKEIN_RPC_SLOW");
	assert_int_equal(skein_rpc_handle_workers(w.server, ALSO_SLOW, on_slow,
						  &w, w.pool),
			 0);
	memset(slow_lines, 0, sizeof(slow_lines));
	/* It has returned, and its worker stays where it is. */
	assert_int_equal(call(&w, WORKER, buf, sizeof(buf), 1), 0);
	assert_int_equal(call_start(&w, SLOW, &ended), 0);
	sem_wait(&w.entered);
	wait_line(&w, SLOW);
	sem_post(&w.leave);
	wait_for(&w, &ended, 1);
	assert_int_equal(call_start(&w, SLOW, &ended), 0);
	sem_wait(&w.entered);
	assert_int_equal(call_start(&w, ALSO_SLOW, &ended), 0);
	sem_wait(&w.entered);
	wait_line(&w, ALSO_SLOW);
	for (int i = 0; i < 2; i++)
		sem_post(&w.leave);
	wait_for(&w, &ended, 3);
	world_close(&w);
	for (unsigned i = 0; i < 65536; i++)
		assert_int_equal(slow_lines[i], i == SLOW || i == ALSO_SLOW);
}

struct load {
	struct world *w;
	uint64_t seed;
	int made, ended;
};

/* Sizes of all kinds by workers and inline at once. */
static void *load_main(void *arg)
{
	struct load *load = arg;
	uint8_t *buf = malloc(BIG);
	struct prng r;

	prng_init(&r, load->seed);
	for (int i = 0; i < load->made; i++) {
		uint32_t len = (uint32_t)prng_below(
			&r, prng_below(&r, 16) ? 300 : BIG);

		assert_int_equal(call(load->w,
				      prng_below(&r, 3) ? WORKER : INLINE, buf,
				      len, (uint32_t)i),
				 0);
	}
	free(buf);
	return NULL;
}

static void test_many(void **state)
{
	struct load load[4];
	pthread_t threads[4];
	struct world w;

	world_open(&w, 4);
	for (unsigned i = 0; i < 4; i++) {
		load[i] = (struct load){&w, i + 1, 400, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, load_main,
						&load[i]),
				 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	world_close(&w);
}

/* More under way than a pool has threads, from one caller. */
static void test_window(void **state)
{
	struct world w;
	int ended = 0, made = 0, rc;

	world_open(&w, 3);
	while (made < 20000) {
		rc = skein_rpc_call_async(w.conn, WORKER, "12345678", 8, 8,
					  PATIENCE, count, &ended);
		made += !rc;
		if (rc) {
			assert_int_equal(rc, -EAGAIN);
			skein_ctx_progress(w.client);
		}
	}
	wait_for(&w, &ended, made);
	world_close(&w);
}

static void last_status(void *arg, const struct skein_rpc_result *res)
{
	*(int *)arg = res->outcome == SKEIN_DONE ? res->status : -EIO;
}

static void last_outcome(void *arg, const struct skein_rpc_result *res)
{
	*(int *)arg = (int)res->outcome;
}

/* Given up before it left, while it is with its handler, and too late. */
static void test_cancel(void **state)
{
	int sent = -1, last = -1, other = 1;
	uint8_t buf[64];
	struct world w;

	world_open(&w, 1);
	assert_int_equal(skein_rpc_call_async(w.conn, SLOW, "x", 1, 1, PATIENCE,
					      last_outcome, &sent),
			 0);
	sem_wait(&w.entered);
	assert_int_equal(skein_rpc_call_async(w.conn, INLINE, "x", 1, 1,
					      PATIENCE, last_status, &other),
			 0);
	assert_int_equal(skein_rpc_call_async(w.conn, INLINE, "x", 1, 1,
					      PATIENCE, last_outcome, &last),
			 0);
	assert_int_equal(skein_rpc_cancel(w.conn, last_outcome, &sent), 0);
	assert_int_equal(sent, SKEIN_UNKNOWN);
	assert_int_equal(skein_rpc_cancel(w.conn, last_outcome, &sent),
			 -ENOENT);
	assert_int_equal(skein_rpc_cancel(w.conn, NULL, NULL), -EINVAL);
	while (other == 1)
		skein_ctx_progress(w.client);
	assert_int_equal(other, 0);
	/* too late */
	while (last != SKEIN_DONE)
		skein_ctx_progress(w.client);
	assert_int_equal(skein_rpc_cancel(w.conn, last_outcome, &last),
			 -ENOENT);
	assert_int_equal(call(&w, INLINE, buf, 64, 1), 0);
	sem_post(&w.leave);
	assert_int_equal(call(&w, WORKER, buf, 64, 1), 0);
	world_close(&w);
}

static void test_kept(void **state)
{
	struct world w;
	int ended = 0;

	world_open(&w, 1);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(call_start(&w, KEPT, &ended), 0);
		sem_wait(&w.entered);
		assert_int_equal(respond(atomic_load(&w.kept)), 0);
		assert_int_equal(skein_rpc_answer(atomic_load(&w.kept), 0), 0);
		wait_for(&w, &ended, i + 1);
	}
	/* one that nobody answers: the context frees it */
	assert_int_equal(call_start(&w, KEPT, &ended), 0);
	sem_wait(&w.entered);
	world_close(&w);
}

/* The connection ends while a handler runs, and does not wait for it. */
static void test_conn_ends(void **state)
{
	uint8_t buf[64];
	struct world w;
	int ended = 0;

	world_open(&w, 1);
	assert_int_equal(call_start(&w, SLOW, &ended), 0);
	sem_wait(&w.entered);
	skein_conn_close(w.conn, 0);
	w.conn = NULL;
	connect_to(&w);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(call(&w, INLINE, buf, 64, i), 0);
	sem_post(&w.leave);
	assert_int_equal(call(&w, WORKER, buf, 64, 1), 0);
	world_close(&w);
}

static void *free_main(void *arg)
{
	struct world *w = arg;

	skein_rpc_pool_free(w->pool);
	return NULL;
}

static void count_refused(void *arg, const struct skein_rpc_result *res)
{
	*(int *)arg += res->status == -SKEIN_ENOHANDLER;
}

/* Its running handlers end, what waits is refused, what comes has none. */
static void test_pool_ends(void **state)
{
	int ended = 0, status = 1, refused = 0, rc;
	bool in_time;
	pthread_t freer;
	uint8_t buf[64];
	struct world w;

	world_open(&w, 1);
	assert_int_equal(call_start(&w, SLOW, &ended), 0);
	sem_wait(&w.entered);
	assert_int_equal(skein_rpc_call_async(w.conn, WORKER, "x", 1, 1,
					      PATIENCE, last_status, &status),
			 0);
	assert_int_equal(call(&w, INLINE, buf, 8, 1), 0); /* behind it */
	assert_int_equal(pthread_create(&freer, NULL, free_main, &w), 0);
	/* Taken before free() has begun it is refused by free(), later at
	 * once; the slow one is not to end before, if the machine lets free()
	 * begin while we make some calls. */
	for (int i = 0; status == 1 && !refused && i < 1000; i++) {
		rc = skein_rpc_call_async(w.conn, WORKER, "x", 1, 1, PATIENCE,
					  count_refused, &refused);
		assert_true(!rc || rc == -EAGAIN);
		skein_ctx_progress(w.client);
		sched_yield();
	}
	in_time = refused > 0;
	sem_post(&w.leave);
	pthread_join(freer, NULL);
	wait_for(&w, &ended, 1);
	while (status == 1)
		skein_ctx_progress(w.client);
	assert_true(status == -ECANCELED || (!in_time && !status));
	assert_int_equal(call(&w, INLINE, buf, 8, 1), 0);
	skein_rpc_pool_free(w.pool); /* twice is once */
	world_close(&w);
}

static void test_arguments(void **state)
{
	struct skein_rpc_pool *pool;
	struct world w;

	world_open(&w, 1);
	assert_int_equal(skein_rpc_pool_new(w.server, 0, &pool), -EINVAL);
	assert_int_equal(skein_rpc_pool_new(w.server, 65, &pool), -EINVAL);
	assert_int_equal(skein_rpc_pool_new(w.server, 64, &pool), 0);
	assert_int_equal(skein_rpc_handle_workers(w.client, 9, on_call, NULL,
						  pool),
			 -EINVAL);
	assert_int_equal(skein_rpc_handle_workers(w.server, INLINE, on_call,
						  NULL, pool),
			 -EEXIST);
	assert_int_equal(skein_rpc_handle_workers(w.server, 9, on_call, NULL,
						  NULL),
			 -EINVAL);
	skein_rpc_pool_free(pool);
	skein_rpc_pool_free(NULL);
	world_close(&w);
}

/* The n-th allocation fails: a pool is there or is not, a call has its answer
 * or says why, and the next one works. */
static void test_short_memory(void **state)
{
	struct skein_rpc_pool *pool;
	uint8_t *buf = malloc(BIG);
	struct world w;
	bool hit = true;
	int rc, id = 100;

	world_open(&w, 1);
	for (int n = 0; hit && n < 100; n++) {
		alloc_sweep_begin(&w.sweep, n);
		rc = skein_rpc_pool_new(w.server, 2, &pool);
		if (!rc) {
			rc = skein_rpc_handle_workers(w.server, (uint16_t)id++,
						      on_call, NULL, pool);
			skein_rpc_pool_free(pool);
		}
		hit = alloc_sweep_end(&w.sweep);
		assert_true(rc == 0 || (hit && rc == -ENOMEM));
	}
	assert_false(hit);
	hit = true;
	for (int n = 0; hit && n < 100; n++) {
		skein_conn_close(w.conn, SKEIN_S(1));
		connect_to(&w);
		assert_int_equal(call(&w, INLINE, buf, 64, 1), 0);
		alloc_sweep_begin(&w.sweep, n);
		rc = call(&w, WORKER, buf, 3000, 1);
		if (!rc)
			rc = call(&w, WORKER, buf, BIG, 1);
		hit = alloc_sweep_end(&w.sweep);
		assert_true(rc == 0 || rc == -ENOMEM);
		assert_int_equal(call(&w, WORKER, buf, BIG, 1), 0);
	}
	world_close(&w);
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_watchdog),
		cmocka_unit_test(test_slow_line),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_conn_ends),
		cmocka_unit_test(test_pool_ends),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_short_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
