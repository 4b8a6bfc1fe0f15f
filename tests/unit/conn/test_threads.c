/* SPDX-License-Identifier: MIT */
/*
 * test_threads.c - threads' thread records on a handle: found again, each one's own, left
 * at a thread's end and given on, while the handle is used, closed and gone.
 */
#include <pthread.h>
#include <sched.h>

#include "unit/conn/lanes_rig.h"
#include "unit/part.h"

#define LANES 4

static void *at(struct conn_thread *rec)
{
	return rec->modules[CONN_MODULE_MAX - 1];
}

static void test_own(void **state)
{
	struct conn_thread *rec, *again;
	struct skein_conn *conn;
	struct rig r;

	rig_open(&r, 0, NULL);
	conn = rig_connect(&r, LANES, NULL);
	assert_null(conn_thread_find(conn));
	assert_int_equal(conn_threads(conn), 0);
	assert_int_equal(conn_thread(conn, &rec), 0);
	assert_int_equal(rec->number, 0);
	assert_int_equal(atomic_load(&rec->state), CONN_THREAD_TAKEN);
	assert_true(atomic_load(&rec->lane) < LANES);
	assert_ptr_equal(rec->handle, conn);
	assert_non_null(at(rec));
	for (unsigned i = 0; i < LANES; i++) {
		assert_int_equal(conn_thread(conn_lane(conn, i), &again), 0);
		assert_ptr_equal(again, rec);
		assert_ptr_equal(conn_thread_find(conn_lane(conn, i)), rec);
	}
	assert_int_equal(conn_threads(conn), 1);
	assert_ptr_equal(conn_thread_at(conn, 0), rec);
	assert_int_equal(told.threads_taken, 1);
	rig_end(&r, conn);
	assert_int_equal(told.threads_left, 0);
	assert_int_equal(told.threads_freed, 1);
	rig_close(&r);
}

static void on_thread(void *(*fn)(void *), void *arg)
{
	pthread_t id;

	assert_int_equal(pthread_create(&id, NULL, fn, arg), 0);
	pthread_join(id, NULL);
}

struct visit {
	struct skein_conn *conn;
	int rc;
	unsigned number;
	struct conn_thread *rec;
};

static void *visits(void *arg)
{
	struct visit *v = arg;

	v->rec = NULL;
	v->rc = conn_thread(v->conn, &v->rec);
	v->number = v->rec ? v->rec->number : UINT32_MAX;
	return NULL;
}

/* A thread record is given on when nothing of its old thread is under way. */
static void test_given_on(void **state)
{
	struct visit v;
	struct rig r;

	rig_open(&r, 0, NULL);
	v.conn = rig_connect(&r, LANES, NULL);
	for (unsigned i = 0; i < 3; i++) {
		on_thread(visits, &v);
		assert_int_equal(v.number, 0);
		assert_int_equal(atomic_load(&v.rec->state), CONN_THREAD_LEFT);
		assert_int_equal(atomic_load(&v.rec->thread), 0);
		assert_int_equal(conn_threads_left(v.conn), i + 1);
	}
	told.threads_busy = 1;
	for (unsigned i = 1; i < 100; i++) {
		on_thread(visits, &v);
		assert_int_equal(v.number, i);
	}
	told.threads_busy = 0;
	for (unsigned i = 0; i < 100; i++) {
		on_thread(visits, &v);
		assert_true(v.number < 100);
	}
	assert_int_equal(conn_threads(v.conn), 100);
	assert_int_equal(told.threads_left, told.threads_taken);
	rig_end(&r, v.conn);
	assert_int_equal(told.threads_freed, 100);
	rig_close(&r);
}

/* What a module refuses, or has no memory for, is the answer; and nothing is
 * lost by it. */
static void test_refused(void **state)
{
	struct visit v;
	struct rig r;
	bool hit;
	int n;

	rig_open(&r, 0, NULL);
	v.conn = rig_connect(&r, LANES, NULL);
	told.thread_refused = true;
	on_thread(visits, &v);
	assert_int_equal(v.rc, -EPERM);
	told.thread_refused = false;
	on_thread(visits, &v);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.number, 0);
	rig_end(&r, v.conn);
	for (n = 0, hit = true; hit; n++) {
		v.conn = rig_connect(&r, LANES, NULL);
		alloc_sweep_begin(&r.sweep, n);
		on_thread(visits, &v);
		hit = alloc_sweep_end(&r.sweep);
		assert_int_equal(v.rc, hit ? -ENOMEM : 0);
		on_thread(visits, &v);
		assert_int_equal(v.rc, 0);
		assert_int_equal(v.number, 0);
		rig_end(&r, v.conn);
	}
	assert_int_equal(n, 3 + 1); /* hash, chunk, the module's */
	rig_close(&r);
}

static void test_limit(void **state)
{
	struct visit v;
	struct rig r;

	rig_open(&r, 0, NULL);
	v.conn = rig_connect(&r, 1, NULL);
	told.threads_busy = 1;
	for (unsigned i = 0; i < CONN_THREADS_MAX; i++) {
		on_thread(visits, &v);
		assert_int_equal(v.number, i);
	}
	on_thread(visits, &v);
	assert_int_equal(v.rc, -EAGAIN);
	told.threads_busy = 0;
	on_thread(visits, &v);
	assert_int_equal(v.rc, 0);
	rig_end(&r, v.conn);
	rig_close(&r);
}

/* --- many -------------------------------------------------------------- */

#define CROWD 24

struct crowd {
	struct skein_conn *conn;
	_Atomic(uint64_t) owner[CROWD + 1]; /* of thread records, by number */
	atomic_uint alive, most;
	atomic_bool stop;
};

/* Takes a thread record, finds it again and again while others come and go, and leaves
 * it by ending. */
static void *comes_and_goes(void *arg)
{
	struct crowd *c = arg;
	uint64_t self = env_thread_self(c->conn->ctx->env), none = 0;
	struct conn_thread *rec, *again;

	skein_assert(!conn_thread_find(c->conn));
	skein_assert(conn_thread(c->conn, &rec) == 0);
	skein_assert(rec->number <= CROWD);
	skein_assert(atomic_compare_exchange_strong(&c->owner[rec->number],
						    &none, self));
	for (int i = 0; i < 200; i++) {
		again = NULL;
		skein_assert(conn_thread(c->conn, &again) == 0);
		skein_assert(again == rec);
		if (i % 50 == 0)
			sched_yield();
	}
	skein_assert(atomic_load(&rec->thread) == self);
	atomic_store(&c->owner[rec->number], 0);
	return NULL;
}

static void *keeps_coming(void *arg)
{
	pthread_t id;

	for (unsigned i = 0; i < part_rounds(100); i++) {
		skein_assert(!pthread_create(&id, NULL, comes_and_goes, arg));
		pthread_join(id, NULL);
	}
	return NULL;
}

/* The engine's owner looks at all thread records meanwhile. */
static void *looks(void *arg)
{
	struct crowd *c = arg;
	unsigned taken;

	while (!atomic_load(&c->stop)) {
		taken = 0;
		for (unsigned i = 0; i < conn_threads(c->conn); i++) {
			struct conn_thread *rec = conn_thread_at(c->conn, i);

			skein_assert(rec->number == i);
			if (atomic_load_explicit(&rec->state,
						 memory_order_acquire) ==
			    CONN_THREAD_TAKEN) {
				skein_assert(at(rec));
				taken++;
			}
			conn_thread_wake(rec);
		}
		skein_assert(taken <= CROWD);
		sched_yield();
	}
	return NULL;
}

static void test_crowd(void **state)
{
	pthread_t ids[CROWD], looker;
	struct crowd c = {0};
	struct rig r;

	rig_open(&r, 0, NULL);
	c.conn = rig_connect(&r, LANES, NULL);
	assert_int_equal(pthread_create(&looker, NULL, looks, &c), 0);
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(
			pthread_create(&ids[i], NULL, keeps_coming, &c), 0);
	for (int i = 0; i < CROWD; i++)
		pthread_join(ids[i], NULL);
	atomic_store(&c.stop, true);
	pthread_join(looker, NULL);
	/* No more of them than were alive at one time. */
	assert_true(conn_threads(c.conn) <= CROWD);
	assert_int_equal(told.threads_left, CROWD * part_rounds(100));
	rig_end(&r, c.conn);
	rig_close(&r);
}

static void *waits(void *arg)
{
	struct crowd *c = arg;
	struct conn_thread *rec;

	skein_assert(conn_thread(c->conn, &rec) == 0);
	atomic_fetch_add(&c->alive, 1);
	while (!atomic_load(&c->stop))
		sched_yield();
	return NULL;
}

/* A thread's own is found at any time, also while others come and go and the
 * hash is swept of those. */
static void test_found(void **state)
{
	pthread_t ids[CROWD], first;
	struct crowd c = {0};
	struct conn_thread *rec;
	struct rig r;

	rig_open(&r, 0, NULL);
	c.conn = rig_connect(&r, LANES, NULL);
	/* It would be found by one compare. */
	assert_int_equal(pthread_create(&first, NULL, waits, &c), 0);
	while (!atomic_load(&c.alive))
		sched_yield();
	assert_null(conn_thread_find(c.conn));
	assert_int_equal(conn_thread(c.conn, &rec), 0);
	for (int i = 0; i < CROWD - 2; i++)
		assert_int_equal(
			pthread_create(&ids[i], NULL, keeps_coming, &c), 0);
	while ((unsigned)told.threads_left < (CROWD - 2) * part_rounds(100))
		for (int i = 0; i < 1000; i++)
			assert_ptr_equal(conn_thread_find(c.conn), rec);
	for (int i = 0; i < CROWD - 2; i++)
		pthread_join(ids[i], NULL);
	atomic_store(&c.stop, true);
	pthread_join(first, NULL);
	rig_end(&r, c.conn);
	rig_close(&r);
}

/* --- ends -------------------------------------------------------------- */

#define ENDING 4

/* Threads end while the handle is closed, or when all is gone. */
static void ends(bool later)
{
	struct crowd c = {0};
	pthread_t ids[ENDING];
	struct rig r;

	rig_open(&r, 0, NULL);
	c.conn = rig_connect(&r, LANES, NULL);
	for (int i = 0; i < ENDING; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, waits, &c), 0);
	while (atomic_load(&c.alive) < ENDING)
		sched_yield();
	atomic_store(&c.stop, !later);
	rig_end(&r, c.conn);
	assert_int_equal(told.threads_freed, ENDING);
	assert_true(!later || told.threads_left == 0);
	rig_close(&r);
	atomic_store(&c.stop, true);
	for (int i = 0; i < ENDING; i++)
		pthread_join(ids[i], NULL);
}

static void test_ends(void **state)
{
	for (int i = 0; i < 200; i++)
		ends(false);
	for (int i = 0; i < 5; i++)
		ends(true);
}

struct sleeper {
	struct skein_conn *conn;
	_Atomic(struct conn_thread *) rec;
	atomic_bool told;
};

static void *sleeps(void *arg)
{
	struct sleeper *s = arg;
	struct skein_env *env = s->conn->ctx->env;
	struct conn_thread *rec;
	struct env_waiter *w;

	skein_assert(conn_thread(s->conn, &rec) == 0);
	skein_assert(conn_thread_waiter(rec, &w) == 0);
	atomic_store(&s->rec, rec);
	while (!atomic_load(&s->told)) {
		env_waiter_arm(env, w);
		if (atomic_load(&s->told))
			env_waiter_disarm(env, w);
		else
			env_waiter_sleep(env, w, ENV_NEVER);
	}
	return NULL;
}

static void test_wake(void **state)
{
	struct sleeper s = {0};
	struct conn_thread *rec;
	struct rig r;
	pthread_t id;

	rig_open(&r, 0, NULL);
	s.conn = rig_connect(&r, LANES, NULL);
	for (int i = 0; i < 100; i++) {
		s.rec = NULL;
		s.told = false;
		assert_int_equal(pthread_create(&id, NULL, sleeps, &s), 0);
		while (!(rec = atomic_load(&s.rec)))
			sched_yield();
		atomic_store(&s.told, true);
		conn_thread_wake(rec);
		pthread_join(id, NULL);
	}
	rig_end(&r, s.conn);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own),	cmocka_unit_test(test_given_on),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_limit),
		cmocka_unit_test(test_crowd),	cmocka_unit_test(test_ends),
		cmocka_unit_test(test_found),	cmocka_unit_test(test_wake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
