/* SPDX-License-Identifier: MIT */
/*
 * test_pair_mem.c - two contexts in one process: memory that one shares and the
 * other reads and writes.
 */
#include "unit/conn/pair.h"
#include "unit/patience.h"

#include <errno.h>

#define PATIENCE patience_ns(20)

static void test_memory(void **state)
{
	struct skein_mem *shared, *local, *other;
	struct skein_remote r = {.size = sizeof(r)};
	struct skein_conn *conn;
	uint64_t old, *words;
	struct pair p;
	char *text;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_mem_new(p.server, 8192, &shared), 0);
	assert_int_equal(skein_mem_new(p.client, 4096, &local), 0);
	strcpy(skein_mem_addr(shared), "from the server");
	assert_int_equal(skein_mem_share(shared, "board",
					 SKEIN_MEM_READ | SKEIN_MEM_WRITE |
						 SKEIN_MEM_ATOMIC),
			 0);
	assert_int_equal(skein_mem_share(shared, "again", SKEIN_MEM_READ),
			 -EEXIST);
	conn = connect_to(&p);
	assert_int_equal(skein_mem_find(conn, "board", PATIENCE, &r), 0);
	assert_int_equal(r.len, 8192);
	assert_int_equal(skein_mem_find(conn, "nothing", SKEIN_MS(20), &r),
			 -ENOENT);

	assert_int_equal(skein_mem_read(conn, local, 0, &r, 0, 64, PATIENCE),
			 0);
	text = skein_mem_addr(local);
	assert_string_equal(text, "from the server");
	strcpy(text, "from the client");
	assert_int_equal(
		skein_mem_write(conn, local, 0, &r, 4096, 64, PATIENCE), 0);
	assert_string_equal((char *)skein_mem_addr(shared) + 4096,
			    "from the client");

	assert_int_equal(skein_mem_fetch_add(conn, &r, 1024, 5, PATIENCE, &old),
			 0);
	assert_int_equal(old, 0);
	assert_int_equal(
		skein_mem_cmp_swap(conn, &r, 1024, 5, 77, PATIENCE, &old), 0);
	assert_int_equal(old, 5);
	words = skein_mem_addr(shared);
	assert_int_equal(words[128], 77);

	/* Refused before anything is sent. */
	assert_int_equal(skein_mem_read(conn, local, 0, &r, 8190, 3, PATIENCE),
			 -ERANGE);
	assert_int_equal(skein_mem_read(conn, local, 4095, &r, 0, 2, PATIENCE),
			 -ERANGE);
	assert_int_equal(skein_mem_fetch_add(conn, &r, 1025, 1, PATIENCE, &old),
			 -EINVAL);

	/* One that is shared later is announced; a withdrawn one is gone. */
	assert_int_equal(skein_mem_new(p.server, 64, &other), 0);
	assert_int_equal(skein_mem_share(other, "late", SKEIN_MEM_READ), 0);
	assert_int_equal(skein_mem_find(conn, "late", PATIENCE, &r), 0);
	assert_int_equal(skein_mem_write(conn, local, 0, &r, 0, 8, PATIENCE),
			 -EACCES);
	skein_conn_close(conn, SKEIN_S(1));
	skein_mem_free(local);
	pair_close(&p);
}

static void test_withdraw(void **state)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr),
				      .device = test_device(),
				      .background = true};
	struct skein_mem *shared, *local;
	struct skein_ctx *client;
	struct skein_conn *conn;
	struct skein_remote r = {.size = sizeof(r)};
	uint64_t begun;
	struct pair p;
	bool acked;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_ctx_open(&attr, &client), 0);
	assert_int_equal(skein_conn_open(client,
					 skein_listener_addr(p.listener), NULL,
					 &conn),
			 0);
	assert_int_equal(skein_mem_new(p.server, 64, &shared), 0);
	assert_int_equal(skein_mem_new(client, 64, &local), 0);
	assert_int_equal(skein_mem_share(shared, "x", SKEIN_MEM_READ), 0);
	assert_int_equal(skein_mem_find(conn, "x", PATIENCE, &r), 0);
	begun = env_now_ns(client->env);
	skein_mem_free(shared);
	/* Less than its patience: it was acknowledged, and the name is unknown
	 * by now. */
	acked = env_now_ns(client->env) - begun < SKEIN_MS(500);
	if (acked)
		assert_int_equal(skein_mem_find(conn, "x", SKEIN_MS(1), &r),
				 -ENOENT);
	/* Who uses the handle all the same is denied, and told. */
	assert_int_equal(skein_mem_read(conn, local, 0, &r, 0, 8, PATIENCE),
			 -EACCES);
	skein_conn_close(conn, SKEIN_S(1));
	skein_ctx_close(client);
	pair_close(&p);
}

struct atomic_ends {
	uint64_t old;
	int status, ends;
};

static void atomic_done(void *arg, int status)
{
	struct atomic_ends *a = arg;

	a->status = status;
	a->ends++;
}

/* Progress as long as the send queue has no room; then until it has ended. */
#define RUN_ASYNC(ctx, a, call)                   \
	do {                                      \
		int rc_;                          \
                                                  \
		(a)->status = 1;                  \
		while ((rc_ = (call)) == -EAGAIN) \
			skein_ctx_progress(ctx);  \
		assert_int_equal(rc_, 0);         \
		while ((a)->status == 1)          \
			skein_ctx_progress(ctx);  \
	} while (0)

/* Atomics that are not waited for: the old value is there when done() is. */
static void test_atomics_async(void **state)
{
	struct skein_remote r = {.size = sizeof(r)}, ro = r;
	struct atomic_ends a = {0};
	struct skein_mem *shared, *read_only;
	struct skein_conn *conn;
	uint64_t *words;
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_mem_new(p.server, 64, &shared), 0);
	assert_int_equal(skein_mem_share(shared, "x", SKEIN_MEM_ATOMIC), 0);
	assert_int_equal(skein_mem_new(p.server, 64, &read_only), 0);
	assert_int_equal(skein_mem_share(read_only, "ro", SKEIN_MEM_READ), 0);
	words = skein_mem_addr(shared);
	conn = connect_to(&p);
	assert_int_equal(skein_mem_find(conn, "x", PATIENCE, &r), 0);
	assert_int_equal(skein_mem_find(conn, "ro", PATIENCE, &ro), 0);
	a.old = 1;
	RUN_ASYNC(p.client, &a,
		  skein_mem_fetch_add_async(conn, &r, 8, 5, &a.old, atomic_done,
					    &a));
	assert_int_equal(a.status, 0);
	assert_int_equal(a.old, 0);
	assert_int_equal(words[1], 5);
	RUN_ASYNC(p.client, &a,
		  skein_mem_cmp_swap_async(conn, &r, 8, 5, 77, &a.old,
					   atomic_done, &a));
	assert_int_equal(a.old, 5);
	assert_int_equal(words[1], 77);
	/* Another value: nothing is swapped. Nobody asks for it. */
	RUN_ASYNC(p.client, &a,
		  skein_mem_cmp_swap_async(conn, &r, 8, 5, 78, NULL,
					   atomic_done, &a));
	assert_int_equal(a.status, 0);
	assert_int_equal(words[1], 77);
	assert_int_equal(a.ends, 3);
	/* Refused before anything is sent: done() is never called. */
	assert_int_equal(skein_mem_fetch_add_async(conn, &r, 60, 1, NULL,
						   atomic_done, &a),
			 -ERANGE);
	assert_int_equal(skein_mem_fetch_add_async(conn, &r, 4, 1, NULL,
						   atomic_done, &a),
			 -EINVAL);
	assert_int_equal(skein_mem_cmp_swap_async(conn, &ro, 0, 0, 1, NULL,
						  atomic_done, &a),
			 -EACCES);
	skein_conn_close(conn, SKEIN_S(1));
	assert_int_equal(a.ends, 3);
	pair_close(&p);
}

struct holder {
	struct engine *e;
	struct skein_env *env;
	_Atomic uint64_t until_ns; /* 0: nobody has asked yet */
	atomic_bool has;
};

static void hold_engine(void *arg)
{
	struct holder *h = arg;

	assert_int_equal(engine_enter(h->e, ENV_NEVER), 0);
	h->has = true;
	while (!h->until_ns || env_now_ns(h->env) < h->until_ns)
		env_yield(h->env);
	engine_leave(h->e);
}

/* The deadline passes while another thread has the engine, and no round has
 * run since the question: as on a machine that is short of cores. */
static void test_find_behind(void **state)
{
	static const struct {
		const char *name;
		int rc;
	} cases[] = {{"x", 0}, {"nothing", -ENOENT}};
	struct env_thread *thread;
	struct skein_mem *shared;
	struct skein_conn *conn;
	struct skein_remote r = {.size = sizeof(r)};
	struct pair p;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_mem_new(p.server, 64, &shared), 0);
	assert_int_equal(skein_mem_share(shared, "x", SKEIN_MEM_READ), 0);
	conn = connect_to(&p);
	assert_int_equal(skein_mem_find(conn, "x", PATIENCE, &r), 0);
	for (size_t i = 0; i < 2; i++) {
		struct holder h = {.e = conn->eng->e, .env = p.client->env};

		assert_int_equal(env_thread_start(h.env, "holder", hold_engine,
						  &h, &thread),
				 0);
		while (!h.has)
			env_yield(h.env);
		h.until_ns = env_now_ns(h.env) + SKEIN_MS(20);
		assert_int_equal(skein_mem_find(conn, cases[i].name, 0, &r),
				 cases[i].rc);
		env_thread_join(h.env, thread);
	}
	skein_conn_close(conn, SKEIN_S(1));
	pair_close(&p);
}

struct async {
	int done, failed, issued;
};

static void async_done(void *arg, int status)
{
	struct async *a = arg;

	a->done++;
	a->failed += status != 0;
}

/* Many more than fit into the send queue. */
static void test_async(void **state)
{
	struct skein_mem *shared, *local;
	struct async a = {0};
	struct skein_conn *conn;
	struct skein_remote r = {.size = sizeof(r)};
	struct pair p;
	int rc;

	pair_open(&p, NULL, NULL);
	assert_int_equal(skein_mem_new(p.server, 4096, &shared), 0);
	assert_int_equal(skein_mem_new(p.client, 4096, &local), 0);
	assert_int_equal(skein_mem_share(shared, "x", SKEIN_MEM_WRITE), 0);
	conn = connect_to(&p);
	assert_int_equal(skein_mem_find(conn, "x", PATIENCE, &r), 0);
	while (a.issued < 5000) {
		rc = skein_mem_write_async(conn, local, 0, &r, 0, 8, async_done,
					   &a);
		if (rc == -EAGAIN) {
			skein_ctx_progress(p.client);
			continue;
		}
		assert_int_equal(rc, 0);
		a.issued++;
	}
	while (a.done < 5000)
		skein_ctx_progress(p.client);
	assert_int_equal(a.failed, 0);
	skein_conn_close(conn, SKEIN_S(1));
	assert_int_equal(a.done, 5000);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_atomics_async),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_withdraw),
		cmocka_unit_test(test_find_behind),
		cmocka_unit_test(test_async),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
