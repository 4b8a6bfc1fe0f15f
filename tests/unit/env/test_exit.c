/* SPDX-License-Identifier: MIT */
/*
 * test_exit.c - functions that run when a thread ends, in the real
 * environment: however it ends, in time, once, and not while somebody takes
 * them back.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "env/env.h"
#include "unit/cm.h"

static int setup(void **state)
{
	return env_real_new((struct skein_env **)state);
}

static int teardown(void **state)
{
	env_real_free(*state);
	return 0;
}

struct hook {
	struct env_exit x;
	struct skein_env *env;
	atomic_int runs;
	uint64_t self; /* of the thread that registered it */
	atomic_uint *order;
	unsigned at;
	struct hook *next; /* registered by fn */
	atomic_int *begun, *off;
	bool was_off;
};

static void fn(struct env_exit *x)
{
	struct hook *h = container_of(x, struct hook, x);

	skein_assert(env_thread_self(h->env) == h->self);
	if (h->order)
		h->at = atomic_fetch_add(h->order, 1);
	if (h->next)
		skein_assert(env_thread_on_exit(h->env, &h->next->x) == 0);
	if (h->begun) {
		atomic_store(h->begun, 1);
		for (int i = 0; i < 1000; i++)
			sched_yield();
		h->was_off = atomic_load(h->off);
	}
	atomic_fetch_add(&h->runs, 1);
}

static void hook_on(struct hook *h, struct skein_env *env)
{
	h->x.fn = fn;
	h->env = env;
	h->self = env_thread_self(env);
	skein_assert(env_thread_on_exit(env, &h->x) == 0);
}

struct ending {
	struct skein_env *env;
	struct hook h[3];
	int how; /* 0: returns, 1: pthread_exit(), 2: is cancelled */
	atomic_uint order;
	atomic_int waits;
};

static void *ends(void *arg)
{
	struct ending *e = arg;

	for (int i = 0; i < 2; i++) {
		e->h[i].order = &e->order;
		hook_on(&e->h[i], e->env);
	}
	e->h[2].order = &e->order;
	e->h[2].x.fn = fn;
	e->h[2].env = e->env;
	e->h[2].self = e->h[0].self;
	e->h[0].next = &e->h[2];
	if (e->how == 1)
		pthread_exit(NULL);
	atomic_store(&e->waits, 1);
	while (e->how == 2)
		pause();
	return NULL;
}

static void test_ends(void **state)
{
	for (int how = 0; how < 3; how++) {
		struct ending e = {.env = *state, .how = how};
		pthread_t t;

		assert_int_equal(pthread_create(&t, NULL, ends, &e), 0);
		while (how == 2 && !atomic_load(&e.waits))
			sched_yield();
		if (how == 2)
			pthread_cancel(t);
		pthread_join(t, NULL);
		/* In the order of registration; one that a hook registers is
		 * no exception. */
		for (int i = 0; i < 3; i++) {
			assert_int_equal(atomic_load(&e.h[i].runs), 1);
			assert_int_equal(e.h[i].at, i);
		}
	}
}

struct taken_back {
	struct skein_env *env;
	struct hook h;
	atomic_int step;
};

static void *waits_for_step(void *arg)
{
	struct taken_back *t = arg;

	hook_on(&t->h, t->env);
	atomic_store(&t->step, 1);
	while (atomic_load(&t->step) != 2)
		sched_yield();
	return NULL;
}

static void test_off(void **state)
{
	struct taken_back t = {.env = *state};
	pthread_t id;

	assert_int_equal(pthread_create(&id, NULL, waits_for_step, &t), 0);
	while (!atomic_load(&t.step))
		sched_yield();
	env_thread_off_exit(t.env, &t.h.x);
	env_thread_off_exit(t.env, &t.h.x); /* twice is harmless */
	atomic_store(&t.step, 2);
	pthread_join(id, NULL);
	assert_int_equal(atomic_load(&t.h.runs), 0);
}

/* A thread that takes the hook back while it runs returns when it has run. */
static void test_off_waits(void **state)
{
	atomic_int begun = 0, off = 0;
	struct taken_back t = {.env = *state, .h.begun = &begun, .h.off = &off};
	pthread_t id;

	assert_int_equal(pthread_create(&id, NULL, waits_for_step, &t), 0);
	while (!atomic_load(&t.step))
		sched_yield();
	atomic_store(&t.step, 2);
	while (!atomic_load(&begun))
		sched_yield();
	env_thread_off_exit(t.env, &t.h.x);
	atomic_store(&off, 1);
	assert_int_equal(atomic_load(&t.h.runs), 1);
	assert_false(t.h.was_off);
	pthread_join(id, NULL);
}

/* --- many -------------------------------------------------------------- */

#define ROUNDS 500
#define CROWD 8
#define NAMES 64

struct one {
	struct env_exit x;
	struct crowd *c;
};

struct crowd {
	struct skein_env *env;
	struct one ones[CROWD]; /* used again in each round */
	atomic_uint next;
	struct {
		_Atomic(uint64_t) name;
	} alive[NAMES];
	atomic_int ended;
};

static void leaves(struct env_exit *x)
{
	struct one *one = container_of(x, struct one, x);
	struct crowd *c = one->c;
	uint64_t self = env_thread_self(c->env);
	int found = 0;

	for (int i = 0; i < NAMES; i++)
		if (atomic_load(&c->alive[i].name) == self) {
			atomic_store(&c->alive[i].name, 0);
			found++;
		}
	skein_assert(found == 1);
	atomic_fetch_add(&c->ended, 1);
}

static void *comes(void *arg)
{
	struct crowd *c = arg;
	uint64_t self = env_thread_self(c->env), none;
	struct one *one = &c->ones[atomic_fetch_add(&c->next, 1) % CROWD];
	int i = 0;

	/* The thread that had this name before has taken it off. */
	for (i = 0; i < NAMES; i++)
		skein_assert(atomic_load(&c->alive[i].name) != self);
	for (i = 0;; i = (i + 1) % NAMES) {
		none = 0;
		if (atomic_compare_exchange_strong(&c->alive[i].name, &none,
						   self))
			break;
	}
	one->c = c;
	one->x.fn = leaves;
	skein_assert(env_thread_on_exit(c->env, &one->x) == 0);
	return NULL;
}

static void test_names(void **state)
{
	struct crowd c = {.env = *state};
	pthread_t ids[CROWD];

	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < CROWD; i++)
			assert_int_equal(
				pthread_create(&ids[i], NULL, comes, &c), 0);
		for (int i = 0; i < CROWD; i++)
			pthread_join(ids[i], NULL);
	}
	assert_int_equal(atomic_load(&c.ended), ROUNDS * CROWD);
}

/* The memory of a hook goes as soon as it was taken back, whatever its thread
 * is doing; and a hook that has run is used again at once. */
struct race {
	struct skein_env *env;
	struct hook *h;
	atomic_int ready;
};

static void *races(void *arg)
{
	struct race *r = arg;

	hook_on(r->h, r->env);
	atomic_store(&r->ready, 1);
	return NULL;
}

static void test_race(void **state)
{
	for (int i = 0; i < 2000; i++) {
		struct race r = {.env = *state,
				 .h = calloc(1, sizeof(struct hook))};
		pthread_t id;

		assert_non_null(r.h);
		assert_int_equal(pthread_create(&id, NULL, races, &r), 0);
		while (!atomic_load(&r.ready))
			sched_yield();
		for (int k = 0; k < i % 64; k++)
			sched_yield();
		env_thread_off_exit(r.env, &r.h->x);
		assert_true(atomic_load(&r.h->runs) <= 1);
		free(r.h);
		pthread_join(id, NULL);
	}
}

/* Behind the hooks, which are an older key's: no leak checker sees this. */
static void child_ends(void *arg)
{
	_exit(*(int *)arg);
}

static void *forks(void *arg)
{
	static int code = 7;
	pthread_key_t key;
	struct skein_env *env = arg;
	struct hook h = {0};
	int status;
	pid_t pid;

	hook_on(&h, env);
	skein_assert(pthread_key_create(&key, child_ends) == 0);
	pid = fork();
	skein_assert(pid >= 0);
	if (pid == 0) {
		h.self = 0; /* it would abort */
		pthread_setspecific(key, &code);
		pthread_exit(NULL);
	}
	skein_assert(waitpid(pid, &status, 0) == pid);
	skein_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	pthread_key_delete(key);
	env_thread_off_exit(env, &h.x);
	return NULL;
}

static void test_fork(void **state)
{
	pthread_t id;

	assert_int_equal(pthread_create(&id, NULL, forks, *state), 0);
	pthread_join(id, NULL);
}

/* The environment goes, the thread ends later. */
static void *outlives(void *arg)
{
	struct taken_back *t = arg;

	hook_on(&t->h, t->env);
	env_thread_off_exit(t->env, &t->h.x);
	atomic_store(&t->step, 1);
	while (atomic_load(&t->step) != 2)
		sched_yield();
	return NULL;
}

static void test_outlives(void **state)
{
	struct taken_back t = {0};
	pthread_t id;

	assert_int_equal(env_real_new(&t.env), 0);
	assert_int_equal(pthread_create(&id, NULL, outlives, &t), 0);
	while (!atomic_load(&t.step))
		sched_yield();
	env_real_free(t.env);
	t.env = NULL;
	atomic_store(&t.step, 2);
	pthread_join(id, NULL);
	assert_int_equal(atomic_load(&t.h.runs), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_off_waits, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_names, setup, teardown),
		cmocka_unit_test_setup_teardown(test_race, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fork, setup, teardown),
		cmocka_unit_test_setup_teardown(test_outlives, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
