/* SPDX-License-Identifier: MIT */
/*
 * test_scarce.c - the n-th allocation fails, for every n, while a connection
 * is used: opened with retries, opened again after it broke, and each of the
 * operations on memory. A failure is told as what it is, or made good; the
 * next attempt works.
 */
#include "unit/alloc_sweep.h"
#include "unit/patience.h"

#include "conn/state.h"

#include <skein/skein.h>
#include <stdatomic.h>
#include <string.h>

#define PATIENCE patience_ns(20)
#define PIECE 4096u

struct world {
	struct skein_env *env;
	struct alloc_sweep sweep;
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_mem *shared, *local;
	_Atomic(struct skein_conn *) accepted;
	int downs; /* of the client's connection */
};

static void on_conn(void *arg, struct skein_conn *conn,
		    enum skein_conn_state state)
{
	struct world *w = arg;
	struct skein_conn *ended = conn;

	if (state == SKEIN_CONN_READY)
		atomic_store(&w->accepted, conn);
	else
		atomic_compare_exchange_strong(&w->accepted, &ended, NULL);
}

static void client_open(struct world *w)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};

	assert_int_equal(ctx_open_env(w->env, &attr, &w->client), 0);
	assert_int_equal(skein_mem_new(w->client, 2 * PIECE, &w->local), 0);
}

static void world_open(struct world *w)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};
	struct skein_listener_attr l = {
		.size = sizeof(l), .on_conn = on_conn, .arg = w};

	memset(w, 0, sizeof(*w));
	assert_int_equal(env_real_new(&w->env), 0);
	w->env->log = NULL; /* the contexts share it */
	alloc_sweep_init(&w->sweep, w->env);
	assert_int_equal(ctx_open_env(w->env, &attr, &w->server), 0);
	assert_int_equal(skein_listener_open(w->server, "127.0.0.1:0", &l,
					     &w->listener),
			 0);
	assert_int_equal(skein_mem_new(w->server, 4 * PIECE, &w->shared), 0);
	assert_int_equal(skein_mem_share(w->shared, "board",
					 SKEIN_MEM_READ | SKEIN_MEM_WRITE |
						 SKEIN_MEM_ATOMIC),
			 0);
	client_open(w);
}

static void world_close(struct world *w)
{
	skein_ctx_close(w->client);
	skein_ctx_close(w->server);
	env_real_free(w->env);
}

static struct skein_conn *connect_to(struct world *w,
				     const struct skein_conn_attr *attr)
{
	struct skein_conn *conn;

	assert_int_equal(skein_conn_open(w->client,
					 skein_listener_addr(w->listener), attr,
					 &conn),
			 0);
	return conn;
}

/* --- operations on memory ---------------------------------------------- */

static void on_done(void *arg, int status)
{
	*(int *)arg = status;
}

static int finish(struct world *w, int rc, const int *status)
{
	uint64_t end = env_now_ns(w->env) + PATIENCE;

	while (rc == 0 && *status == 1) {
		assert_true(env_now_ns(w->env) < end);
		skein_ctx_progress(w->client);
	}
	return rc ? rc : *status;
}

/* WRITE a stamp, READ it back; both forms. */
static int write_read(struct world *w, struct skein_conn *conn,
		      const struct skein_remote *r, int stamp)
{
	char *buf = skein_mem_addr(w->local);
	char *there = skein_mem_addr(w->shared);
	int rc, status = 1;

	memset(buf, stamp, PIECE);
	rc = skein_mem_write(conn, w->local, 0, r, PIECE, PIECE, PATIENCE);
	if (rc)
		return rc;
	assert_int_equal(there[PIECE], (char)stamp);
	assert_int_equal(there[2 * PIECE - 1], (char)stamp);
	memset(buf + PIECE, 0, PIECE);
	rc = skein_mem_read(conn, w->local, PIECE, r, PIECE, PIECE, PATIENCE);
	if (rc)
		return rc;
	assert_memory_equal(buf, buf + PIECE, PIECE);
	rc = skein_mem_write_async(conn, w->local, 0, r, 2 * PIECE, PIECE,
				   on_done, &status);
	rc = finish(w, rc, &status);
	if (rc)
		return rc;
	assert_int_equal(there[3 * PIECE - 1], (char)stamp);
	memset(buf + PIECE, 0, PIECE);
	status = 1;
	rc = skein_mem_read_async(conn, w->local, PIECE, r, 2 * PIECE, PIECE,
				  on_done, &status);
	rc = finish(w, rc, &status);
	if (rc == 0)
		assert_memory_equal(buf, buf + PIECE, PIECE);
	return rc;
}

/* Each atomic is done once, or not at all. */
static int atomics(struct world *w, struct skein_conn *conn,
		   const struct skein_remote *r)
{
	_Atomic uint64_t *word = skein_mem_addr(w->shared);
	uint64_t was = atomic_load(word), old = 0;
	int rc;

	rc = skein_mem_fetch_add(conn, r, 0, 5, PATIENCE, &old);
	assert_int_equal(atomic_load(word), rc ? was : was + 5);
	if (rc)
		return rc;
	assert_int_equal(old, was);
	rc = skein_mem_cmp_swap(conn, r, 0, was + 5, was + 9, PATIENCE, &old);
	assert_int_equal(atomic_load(word), rc ? was + 5 : was + 9);
	if (rc == 0)
		assert_int_equal(old, was + 5);
	return rc;
}

static int use_memory(struct world *w, struct skein_conn *conn, int stamp,
		      bool atomics_first)
{
	struct skein_remote r = {.size = sizeof(r)};
	int rc;

	rc = skein_mem_find(conn, "board", PATIENCE, &r);
	if (rc == 0 && atomics_first)
		rc = atomics(w, conn, &r);
	if (rc == 0)
		rc = write_read(w, conn, &r, stamp);
	if (rc == 0 && !atomics_first)
		rc = atomics(w, conn, &r);
	return rc;
}

/* A broken connection has broken for want of memory, here or there, and says
 * so. */
static bool told(struct world *w, struct skein_conn *conn, int rc)
{
	const char *text;
	int err;

	if (rc == 0)
		return true;
	/* The operation was not begun; else the connection is going down. */
	if (rc == -ENOMEM && !skein_conn_error(conn, NULL))
		return true;
	while (skein_conn_get_state(conn) == SKEIN_CONN_READY)
		skein_ctx_progress(w->client);
	err = skein_conn_error(conn, &text);
	return (err == -ENOMEM || err == -SKEIN_ERESOURCE) &&
	       strstr(text, "memory");
}

static void memory_sweep(bool atomics_first)
{
	struct skein_conn *conn;
	struct world w;
	int n, rc, missed = 0;
	bool hit = true;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		conn = connect_to(&w, NULL);
		alloc_sweep_begin(&w.sweep, n);
		rc = use_memory(&w, conn, n, atomics_first);
		hit = alloc_sweep_end(&w.sweep);
		if (!told(&w, conn, rc))
			fail_msg("%d: %s: %s", n, skein_strerror(rc),
				 conn->story);
		missed += rc != 0;
		/* It goes on, where it has not broken. */
		if (skein_conn_get_state(conn) == SKEIN_CONN_READY)
			assert_int_equal(use_memory(&w, conn, n, true), 0);
		skein_conn_close(conn, SKEIN_S(1));
		/* A device of its own: first uses are swept as well. */
		skein_mem_free(w.local);
		skein_ctx_close(w.client);
		client_open(&w);
	}
	assert_int_equal(rc, 0);
	assert_true(n > 4 && missed > 4);
	print_message("%d allocations, %d of them missed\n", n - 1, missed);
	world_close(&w);
}

static void test_memory(void **state)
{
	memory_sweep(false);
}

static void test_atomics(void **state)
{
	memory_sweep(true);
}

/* --- retries, and again after a failure -------------------------------- */

/* With a retry left no failing allocation of an attempt is the answer. */
static void test_retries(void **state)
{
	struct skein_conn_attr attr = {
		.size = sizeof(attr), .retries = 1, .timeout_ns = PATIENCE};
	struct skein_conn *conn;
	struct world w;
	int n, rc, refused = 0;
	bool hit = true;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		alloc_sweep_begin(&w.sweep, n);
		rc = skein_conn_open(w.client, skein_listener_addr(w.listener),
				     &attr, &conn);
		hit = alloc_sweep_end(&w.sweep);
		if (rc) {
			/* the handle itself */
			assert_int_equal(rc, -ENOMEM);
			refused++;
			continue;
		}
		assert_int_equal(use_memory(&w, conn, n, false), 0);
		skein_conn_close(conn, SKEIN_S(1));
	}
	assert_int_equal(rc, 0);
	assert_true(n > 10);
	assert_in_range(refused, 1, 5);
	world_close(&w);
}

struct breaker {
	struct engine_call call;
	struct skein_conn *conn;
};

static void break_it(struct engine_call *call)
{
	struct breaker *b = container_of(call, struct breaker, call);

	conn_break(b->conn, -ECONNABORTED, "the test breaks it");
}

static void on_state(void *arg, struct skein_conn *conn,
		     enum skein_conn_state state)
{
	struct world *w = arg;

	w->downs += state == SKEIN_CONN_CONNECTING;
	assert_int_not_equal(state, SKEIN_CONN_BROKEN);
}

static void pump(struct world *w, uint64_t end)
{
	assert_true(env_now_ns(w->env) < end);
	skein_engine_run(skein_ctx_engine(w->client), SKEIN_MS(1));
}

static struct skein_conn *accepted(struct world *w)
{
	while (!atomic_load(&w->accepted))
		env_yield(w->env);
	return atomic_load(&w->accepted);
}

/* It was down, and works again; it may break a second time on the way. */
static void heals(struct world *w, struct skein_conn *conn, int stamp)
{
	uint64_t end = env_now_ns(w->env) + PATIENCE;

	while (w->downs == 0 || skein_conn_get_state(conn) != SKEIN_CONN_READY)
		pump(w, end);
	while (use_memory(w, conn, stamp, false))
		pump(w, end);
}

/* It tries until it is closed: no allocation that fails ends that. */
static void test_reconnect(void **state)
{
	struct skein_conn_attr attr = {
		.size = sizeof(attr), .reconnect = true, .on_state = on_state};
	struct skein_conn *conn;
	struct breaker b;
	struct world w;
	bool hit = true;
	int n;

	world_open(&w);
	attr.arg = &w;
	conn = connect_to(&w, &attr);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		b.conn = accepted(&w);
		b.call.fn = break_it;
		w.downs = 0;
		alloc_sweep_begin(&w.sweep, n);
		engine_post(w.server->engine->e, &b.call);
		heals(&w, conn, n);
		hit = alloc_sweep_end(&w.sweep);
		while (use_memory(&w, conn, n, true))
			pump(&w, ENV_NEVER);
	}
	assert_true(n > 10);
	print_message("%d allocations\n", n - 1);
	skein_conn_close(conn, SKEIN_S(1));
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_retries),
		cmocka_unit_test(test_reconnect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
