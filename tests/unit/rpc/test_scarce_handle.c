/* SPDX-License-Identifier: MIT */
/*
 * test_scarce_handle.c - the n-th allocation fails, for every n, at either end
 * of a handle with lanes: while it opens, when a thread first calls, reads and
 * writes through it, when it closes. What fails says so, and what comes next
 * works.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "conn/state.h"
#include "conn/setup/listener.h"
#include "rpc/client/lane_client.h"
#include "unit/alloc_sweep.h"
#include "unit/patience.h"
#include <skein/skein.h>

#define CALL 1
#define LANES 3
#define PATIENCE patience_ns(30)
#define LARGE 100000u

struct world {
	struct skein_env *env, *client_env;
	struct alloc_sweep sweep;
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_mem *shared, *local;
	struct skein_conn *conn;
	struct skein_remote remote;
	uint8_t *buf;
};

static int on_call(struct skein_rpc_req *req, void *arg)
{
	size_t len = skein_rpc_req_len(req);
	void *resp = skein_rpc_resp_buf(req, len);

	if (!resp)
		return -ENOMEM;
	memcpy(resp, skein_rpc_req_data(req), len);
	return 0;
}

static void world_open(struct world *w)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .background = true};

	memset(w, 0, sizeof(*w));
	w->buf = calloc(1, LARGE);
	assert_int_equal(env_real_new(&w->env), 0);
	w->env->log = NULL;
	alloc_sweep_init(&w->sweep, w->env);
	assert_int_equal(ctx_open_env(w->env, &attr, &w->server), 0);
	assert_int_equal(skein_mem_new(w->server, 4096, &w->shared), 0);
	assert_int_equal(skein_mem_share(w->shared, "words",
					 SKEIN_MEM_READ | SKEIN_MEM_WRITE |
						 SKEIN_MEM_ATOMIC),
			 0);
	assert_int_equal(skein_rpc_handle(w->server, CALL, on_call, NULL), 0);
	assert_int_equal(skein_listener_open(w->server, "127.0.0.1:0", NULL,
					     &w->listener),
			 0);
}

/* A context that has not had a handle yet. */
static void client_open(struct world *w)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};

	/* Opening writes to what the other context's thread reads. */
	assert_int_equal(env_real_new(&w->client_env), 0);
	w->client_env->log = NULL;
	w->client_env->alloc_arg = &w->sweep;
	w->client_env->alloc_fails = alloc_sweep_fails;
	assert_int_equal(ctx_open_env(w->client_env, &attr, &w->client), 0);
	assert_int_equal(skein_mem_new(w->client, 4096, &w->local), 0);
}

/* Nothing is left of the handle at either end. */
static void nothing_left(struct world *w)
{
	while (atomic_load(&w->client->engine->n_conns) ||
	       atomic_load(&w->listener->admission.conns))
		skein_ctx_progress(w->client);
}

static void client_close(struct world *w)
{
	nothing_left(w);
	skein_mem_free(w->local);
	skein_ctx_close(w->client);
	env_real_free(w->client_env);
}

static void world_close(struct world *w)
{
	skein_mem_free(w->shared);
	skein_ctx_close(w->server);
	env_real_free(w->env);
	free(w->buf);
}

static int open_handle(struct world *w, unsigned lanes, unsigned retries)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .qps = lanes,
				       .retries = retries,
				       .timeout_ns = PATIENCE};

	return skein_conn_open(w->client, skein_listener_addr(w->listener),
			       &attr, &w->conn);
}

static int find_words(struct world *w)
{
	w->remote.size = sizeof(w->remote);
	return skein_mem_find(w->conn, "words", PATIENCE, &w->remote);
}

/* The server begins with its lanes one after the other, when the first has told
 * the client that all are there: 0 when all have answered, or how it ended. */
static int whole(struct world *w)
{
	struct conn_thread *rec;
	struct rpc_conn *rc;
	int err;

	err = conn_thread(w->conn, &rec);
	for (uint16_t i = 0; !err && i < conn_lanes(w->conn); i++) {
		rc = rpc_conn_of(conn_lane(w->conn, i));
		while (!err && !rc->client.rx.used) {
			atomic_store(&rec->lane_wanted, i);
			err = skein_rpc_call(w->conn, CALL, w->buf, 8, w->buf,
					     8, PATIENCE, NULL);
		}
	}
	return err;
}

/* --- everything that a thread does -------------------------------------- */

struct tally {
	unsigned ended;
	int status;
};

static void count(void *arg, const struct skein_rpc_result *res)
{
	struct tally *t = arg;

	t->ended++;
	if (res->status)
		t->status = res->status;
}

static int memory_ops(struct world *w)
{
	uint64_t was, old;
	int rc;

	rc = skein_mem_fetch_add(w->conn, &w->remote, 0, 1, PATIENCE, &was);
	if (!rc)
		rc = skein_mem_cmp_swap(w->conn, &w->remote, 0, was + 1,
					was + 2, PATIENCE, &old);
	if (!rc)
		assert_int_equal(old, was + 1);
	if (!rc)
		rc = skein_mem_write(w->conn, w->local, 0, &w->remote, 64, 128,
				     PATIENCE);
	if (!rc)
		rc = skein_mem_read(w->conn, w->local, 0, &w->remote, 64, 128,
				    PATIENCE);
	return rc;
}

static int calls(struct world *w, size_t len)
{
	struct tally t = {0};
	unsigned begun = 0;
	int rc, first;

	/* The device may lack memory for a post: it was not made. */
	while ((first = skein_rpc_call_async(w->conn, CALL, w->buf, len, len,
					     PATIENCE, count, &t)) == -EAGAIN)
		skein_rpc_reap(w->conn, 0);
	begun += !first;
	rc = skein_rpc_call(w->conn, CALL, w->buf, len, w->buf, len, PATIENCE,
			    NULL);
	while (t.ended < begun)
		if (skein_rpc_reap(w->conn, PATIENCE) < 0)
			sched_yield(); /* no memory to wait with */
	if (!first)
		first = t.status;
	return first ? first : rc;
}

struct doing {
	struct world *w;
	int rc[4];
};

static void *thread_main(void *arg)
{
	struct doing *d = arg;

	d->rc[0] = calls(d->w, 100);
	d->rc[1] = memory_ops(d->w);
	d->rc[2] = calls(d->w, LARGE);
	d->rc[3] = calls(d->w, 100);
	return NULL;
}

/* In a thread that has not been seen before. */
static unsigned use(struct world *w)
{
	struct doing d = {.w = w};
	pthread_t t;
	unsigned failed = 0;

	assert_int_equal(pthread_create(&t, NULL, thread_main, &d), 0);
	pthread_join(t, NULL);
	for (int i = 0; i < 4; i++) {
		assert_true(d.rc[i] == 0 || d.rc[i] == -ENOMEM);
		failed += d.rc[i] != 0;
	}
	return failed;
}

/* --- the tests ---------------------------------------------------------- */

static void sweep_open(unsigned lanes, unsigned retries)
{
	unsigned failed = 0;
	bool hit = true, opened;
	struct world w;
	int n, rc;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		client_open(&w);
		alloc_sweep_begin(&w.sweep, n);
		rc = open_handle(&w, lanes, retries);
		opened = rc == 0;
		if (opened)
			rc = whole(&w);
		hit = alloc_sweep_end(&w.sweep);
		/* The server tells of its regions in its own time. */
		if (rc == 0)
			rc = find_words(&w);
		assert_true(hit || rc == 0);
		assert_int_not_equal(rc, -ETIMEDOUT);
		failed += rc != 0;
		if (rc == 0)
			assert_int_equal(use(&w), 0);
		if (opened)
			skein_conn_close(w.conn, SKEIN_S(1));
		client_close(&w);
	}
	print_message("%d allocations, %u attempts missed\n", n - 1, failed);
	assert_true(n > 20);
	if (retries)
		assert_true(failed < 20); /* before there is a handle */
	world_close(&w);
}

static void test_open(void **state)
{
	sweep_open(LANES, 0);
}

/* One that fails is made good by the next attempt, in full. */
static void test_open_again(void **state)
{
	sweep_open(1, 3);
}

static void test_first_use(void **state)
{
	unsigned failed = 0;
	bool hit = true;
	struct world w;
	int n;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		client_open(&w);
		assert_int_equal(open_handle(&w, LANES, 0), 0);
		assert_int_equal(find_words(&w), 0);
		assert_int_equal(whole(&w), 0);
		alloc_sweep_begin(&w.sweep, n);
		failed += use(&w);
		hit = alloc_sweep_end(&w.sweep);
		/* By a thread that comes after it, and one more. */
		assert_int_equal(use(&w), 0);
		assert_int_equal(use(&w), 0);
		skein_conn_close(w.conn, SKEIN_S(1));
		client_close(&w);
	}
	print_message("%d allocations, %u things missed\n", n - 1, failed);
	assert_true(n > 20 && failed > 10);
	world_close(&w);
}

static void test_close(void **state)
{
	bool hit = true;
	struct world w;
	int n;

	world_open(&w);
	for (n = 0; hit; n++) {
		assert_true(n < ALLOC_SWEEP_MAX);
		client_open(&w);
		assert_int_equal(open_handle(&w, LANES, 0), 0);
		assert_int_equal(find_words(&w), 0);
		assert_int_equal(use(&w), 0);
		alloc_sweep_begin(&w.sweep, n);
		skein_conn_close(w.conn, SKEIN_S(1));
		hit = alloc_sweep_end(&w.sweep);
		client_close(&w);
	}
	print_message("%d allocations\n", n - 1);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_open_again),
		cmocka_unit_test(test_first_use),
		cmocka_unit_test(test_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
