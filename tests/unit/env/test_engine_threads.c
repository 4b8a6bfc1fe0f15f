/* SPDX-License-Identifier: MIT */
/*
 * test_engine_threads.c - wake-ups and the hand-over of the engine between
 * callers, and between them and the background thread.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "base/prng.h"
#include "engine_fixture.h"

struct producer {
	struct fixture *f;
	struct source *s;
	int n;
};

/* Publishes one piece of work at a time and waits until it is consumed, so
 * that the engine is often about to sleep when the next one comes. */
static void *produce(void *arg)
{
	struct producer *p = arg;
	uint64_t give_up = later(p->f, LONG);
	int i;

	for (i = 0; i < p->n; i++) {
		atomic_store_explicit(&p->s->work, 1, memory_order_relaxed);
		env_waiter_wake(p->f->env, engine_waiter(p->f->e));
		while (atomic_load(&p->s->done) <= i)
			if (env_now_ns(p->f->env) > give_up)
				return "the engine never woke";
	}
	return NULL;
}

static bool all_consumed(void *arg)
{
	struct producer *p = arg;

	return atomic_load(&p->s->done) == p->n;
}

static void test_no_lost_wake(void **state)
{
	struct fixture *f = *state;
	struct source s;
	struct producer p = {f, &s, 3000};
	pthread_t t;
	void *err;

	engine_try_enter(f->e);
	source_add(&s, f->e);
	engine_leave(f->e);
	assert_int_equal(pthread_create(&t, NULL, produce, &p), 0);
	assert_int_equal(engine_run_until(f->e, all_consumed, &p,
					  later(f, 2 * LONG)),
			 0);
	pthread_join(t, &err);
	assert_null(err);
	engine_del(f->e, &s.obj);
}

#define CALLERS 4
#define CALLS 300

struct caller {
	struct fixture *f;
	uint64_t seed;
	int err;
};

static void bump_source(struct engine_call *call)
{
	struct counted_call *c = container_of(call, struct counted_call, call);

	atomic_store(c->runs, 1);
}

static bool is_set(void *arg)
{
	return atomic_load((atomic_int *)arg);
}

/* Each caller posts a closure and waits until somebody, it or another one, has
 * run it. */
static void *call_and_wait(void *arg)
{
	struct caller *c = arg;
	int i;

	for (i = 0; i < CALLS && !c->err; i++) {
		atomic_int ran = 0;
		struct counted_call cc = {.runs = &ran};

		cc.call.fn = bump_source;
		engine_post(c->f->e, &cc.call);
		c->err = engine_run_until(c->f->e, is_set, &ran,
					  later(c->f, LONG));
	}
	return NULL;
}

static void run_callers(struct fixture *f)
{
	struct caller c[CALLERS];
	pthread_t t[CALLERS];
	int i;

	for (i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){.f = f};
		assert_int_equal(
			pthread_create(&t[i], NULL, call_and_wait, &c[i]), 0);
	}
	for (i = 0; i < CALLERS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(c[i].err, 0);
	}
}

static void test_callers_hand_over(void **state)
{
	run_callers(*state);
}

static void test_callers_and_background(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(engine_background_start(f->e), 0);
	run_callers(f);
	engine_background_stop(f->e);
}

/* As call_and_wait(), but giving up early most times and coming again: wake-ups
 * meant for a thread that has just given up must reach the next one. */
static void *call_impatiently(void *arg)
{
	struct caller *c = arg;
	uint64_t end = later(c->f, LONG);
	struct prng r;
	int i;

	prng_init(&r, c->seed);
	for (i = 0; i < CALLS && !c->err; i++) {
		atomic_int ran = 0;
		struct counted_call cc = {.runs = &ran};

		cc.call.fn = bump_source;
		engine_post(c->f->e, &cc.call);
		do
			c->err = engine_run_until(
				c->f->e, is_set, &ran,
				later(c->f, prng_below(&r, 100000)));
		while (c->err == -ETIMEDOUT && env_now_ns(c->f->env) < end);
	}
	return NULL;
}

/* The background thread comes and goes meanwhile. The last caller is patient:
 * it alone would hang if the engine were left to nobody. */
static void test_impatient_callers(void **state)
{
	struct fixture *f = *state;
	struct caller c[CALLERS];
	pthread_t t[CALLERS];
	int i;

	for (i = 0; i < CALLERS; i++) {
		c[i] = (struct caller){.f = f};
		assert_int_equal(pthread_create(&t[i], NULL,
						i ? call_impatiently
						  : call_and_wait,
						&c[i]),
				 0);
	}
	for (i = 0; i < 20; i++) {
		assert_int_equal(engine_background_start(f->e), 0);
		usleep(500);
		engine_background_stop(f->e);
	}
	for (i = 0; i < CALLERS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(c[i].err, 0);
	}
}

struct waiting {
	struct fixture *f;
	pthread_t t;
	atomic_int done, back;
	int rc;
};

static void *wait_until_done(void *arg)
{
	struct waiting *w = arg;

	w->rc = engine_run_until(w->f->e, is_set, &w->done, later(w->f, LONG));
	atomic_store(&w->back, 1);
	return NULL;
}

static void *wait_to_enter(void *arg)
{
	struct waiting *w = arg;

	w->rc = engine_enter(w->f->e, later(w->f, LONG));
	if (!w->rc)
		engine_leave(w->f->e);
	atomic_store(&w->back, 1);
	return NULL;
}

static void start_waiting(struct waiting *w, struct fixture *f,
			  void *(*fn)(void *arg))
{
	*w = (struct waiting){.f = f};
	assert_int_equal(pthread_create(&w->t, NULL, fn, w), 0);
	/* So that it most likely sleeps, which is what the test is about;
	 * when it does not, the test is weaker, not wrong. */
	usleep(20000);
}

/* It must come back long before its own deadline. */
static void end_waiting(struct waiting *w)
{
	uint64_t end = later(w->f, LONG / 2);

	while (!atomic_load(&w->back) && env_now_ns(w->f->env) < end)
		usleep(100);
	assert_int_equal(atomic_load(&w->back), 1);
	pthread_join(w->t, NULL);
	assert_int_equal(w->rc, 0);
}

/* The owner's round is what a sleeping caller waits for: it is woken although
 * the owner stays. */
static void test_owner_wakes_done(void **state)
{
	struct fixture *f = *state;
	struct waiting w;

	engine_try_enter(f->e);
	start_waiting(&w, f, wait_until_done);
	atomic_store(&w.done, 1);
	engine_kick(f->e);
	engine_poll(f->e);
	end_waiting(&w);
	engine_leave(f->e);
}

/* The first of two sleepers is woken to take over, but no longer needs to: the
 * second must get its turn. */
static void test_turn_is_passed_on(void **state)
{
	struct waiting first, second;
	struct fixture *f = *state;

	engine_try_enter(f->e);
	start_waiting(&first, f, wait_until_done);
	start_waiting(&second, f, wait_to_enter);
	atomic_store(&first.done, 1); /* and nobody tells it */
	engine_leave(f->e);
	end_waiting(&first);
	end_waiting(&second);
}

static void test_background_works_alone(void **state)
{
	struct fixture *f = *state;
	struct source s;
	struct producer p = {f, &s, 200};

	engine_try_enter(f->e);
	source_add(&s, f->e);
	engine_leave(f->e);
	assert_int_equal(engine_background_start(f->e), 0);
	assert_null(produce(&p));
	/* The application takes it away for a while, and gives it back. */
	assert_int_equal(engine_enter(f->e, later(f, LONG)), 0);
	usleep(5000);
	engine_leave(f->e);
	atomic_store(&s.done, 0);
	assert_null(produce(&p));
	engine_background_stop(f->e);
	engine_del(f->e, &s.obj);
}

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A thread that waits while another owns the engine sleeps: it burns less
 * than a tenth of the time that it waits. (What its start costs is not waiting:
 * under a sanitizer that may be milliseconds of first touches.) */
static void *wait_for_turn(void *arg)
{
	struct caller *c = arg;
	uint64_t begun = thread_ns();

	c->err = engine_enter(c->f->e, later(c->f, LONG));
	if (c->err)
		return NULL;
	engine_leave(c->f->e);
	if (thread_ns() - begun > 10 * MS)
		c->err = -EBUSY;
	return NULL;
}

static void test_second_waiter_sleeps(void **state)
{
	struct fixture *f = *state;
	struct caller c = {.f = f};
	pthread_t t;

	engine_try_enter(f->e);
	assert_int_equal(pthread_create(&t, NULL, wait_for_turn, &c), 0);
	usleep(100 * 1000);
	engine_leave(f->e);
	pthread_join(t, NULL);
	assert_int_equal(c.err, 0);
}

static bool fail_all(void *arg)
{
	(void)arg;
	return true;
}

/* Without memory for places beyond the first, threads still get their turn. */
static void test_no_memory_for_places(void **state)
{
	struct fixture *f = *state;

	f->env->alloc_fails = fail_all;
	run_callers(f);
	f->env->alloc_fails = NULL;
}

struct deadline_call {
	struct fixture *f;
	int rc;
	enum env_wait_mode mode;
};

static void *call_in_vain(void *arg)
{
	struct deadline_call *c = arg;

	c->rc = engine_run_until(c->f->e, never, NULL, later(c->f, 5 * MS));
	return NULL;
}

/* A caller that waits behind a busy owner comes back at its deadline, with a
 * place of its own and without one. */
static void test_no_place_behind_owner(void **state)
{
	struct fixture *f = *state;
	struct deadline_call c[2] = {{.f = f}, {.f = f}};
	pthread_t t[2];
	int i;

	engine_try_enter(f->e);
	f->env->alloc_fails = fail_all;
	for (i = 0; i < 2; i++)
		assert_int_equal(
			pthread_create(&t[i], NULL, call_in_vain, &c[i]), 0);
	for (i = 0; i < 2; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(c[i].rc, -ETIMEDOUT);
	}
	f->env->alloc_fails = NULL;
	engine_leave(f->e);
}

static void *call_in_vain_on(void *arg)
{
	struct deadline_call *c = arg;
	struct env_waiter *w;

	c->rc = env_waiter_new(c->f->env, c->mode, &w);
	if (c->rc)
		return NULL;
	c->rc = engine_run(c->f->e, &(struct engine_run){
					    .done = never,
					    .deadline_ns = later(c->f, 5 * MS),
					    .w = w});
	env_waiter_free(c->f->env, w);
	return NULL;
}

/* The same in every way to wait: a spinner reads the clock too. */
static void test_timeout_behind_owner(void **state)
{
	static const enum env_wait_mode modes[] = {ENV_WAIT_POLL, ENV_WAIT_SPIN,
						   ENV_WAIT_ADAPTIVE,
						   ENV_WAIT_EVENT};
	struct deadline_call c[2];
	struct fixture *f;
	pthread_t t[2];

	for (int i = 0; i < 4; i++) {
		assert_int_equal(setup_mode((void **)&f, modes[i]), 0);
		c[0] = c[1] = (struct deadline_call){f, 0, modes[i]};
		engine_try_enter(f->e);
		assert_int_equal(
			pthread_create(&t[0], NULL, call_in_vain, &c[0]), 0);
		assert_int_equal(
			pthread_create(&t[1], NULL, call_in_vain_on, &c[1]), 0);
		for (int k = 0; k < 2; k++) {
			pthread_join(t[k], NULL);
			assert_int_equal(c[k].rc, -ETIMEDOUT);
		}
		engine_leave(f->e);
		assert_int_equal(teardown((void **)&f), 0);
	}
}

struct own_caller {
	struct fixture *f;
	enum env_wait_mode mode;
	struct env_waiter *w;
	atomic_int over; /* for a caller that waits for nothing else */
	int err;
};

static void *run_for_long(void *arg)
{
	struct own_caller *c = arg;

	c->err = engine_run(
		c->f->e, &(struct engine_run){.done = is_set,
					      .arg = &c->over,
					      .deadline_ns = later(c->f, LONG),
					      .w = c->w});
	return NULL;
}

/* An owner with a waiter of its own that gives its core away lets go of the
 * engine, and has it again. */
static void test_lets_go(void **state)
{
	struct own_caller c = {.mode = ENV_WAIT_POLL};
	struct source s;
	uint64_t end;
	pthread_t t;

	assert_int_equal(setup_mode((void **)&c.f, c.mode), 0);
	assert_int_equal(env_waiter_new(c.f->env, c.mode, &c.w), 0);
	engine_try_enter(c.f->e);
	source_add(&s, c.f->e);
	engine_leave(c.f->e);
	assert_int_equal(pthread_create(&t, NULL, run_for_long, &c), 0);
	end = later(c.f, LONG);
	for (int n = 0; n < 100; n++) {
		atomic_store(&s.done, 0);
		atomic_store(&s.work, 1);
		/* it is the owner */
		while (!atomic_load(&s.done) && env_now_ns(c.f->env) < end)
			sched_yield();
		/* and has let go */
		while (!engine_try_enter(c.f->e))
			assert_true(env_now_ns(c.f->env) < end);
		engine_leave(c.f->e);
	}
	atomic_store(&c.over, 1);
	pthread_join(t, NULL);
	assert_int_equal(c.err, 0);
	assert_true(env_now_ns(c.f->env) < end);
	engine_try_enter(c.f->e);
	engine_del(c.f->e, &s.obj);
	engine_leave(c.f->e);
	env_waiter_free(c.f->env, c.w);
	assert_int_equal(teardown((void **)&c.f), 0);
}

struct own_call {
	struct engine_call call;
	struct fixture *f;
	struct env_waiter *w;
	atomic_int ran;
};

static void own_call_run(struct engine_call *call)
{
	struct own_call *c = container_of(call, struct own_call, call);
	struct skein_env *env = c->f->env;
	struct env_waiter *w = c->w;

	atomic_store(&c->ran, 1);
	env_waiter_wake(env, w); /* c may be gone */
}

static void *call_and_wait_on(void *arg)
{
	struct own_caller *c = arg;
	struct own_call call = {.f = c->f, .w = c->w};

	for (int i = 0; i < CALLS && !c->err; i++) {
		atomic_store(&call.ran, 0);
		call.call.fn = own_call_run;
		/* now and then it idles first, and lets go */
		if (i % 3 == 0)
			c->err = engine_run(
				c->f->e,
				&(struct engine_run){
					.done = never,
					.deadline_ns = later(c->f, MS / 50),
					.w = call.w});
		if (c->err == -ETIMEDOUT)
			c->err = 0;
		engine_post(c->f->e, &call.call);
		if (!c->err)
			c->err = engine_run(
				c->f->e,
				&(struct engine_run){.done = is_set,
						     .arg = &call.ran,
						     .deadline_ns =
							     later(c->f, LONG),
						     .w = call.w});
	}
	return NULL;
}

/* Threads that let go and threads that sleep in places, more than cores. */
static void test_callers_let_go(void **state)
{
	struct fixture *f = *state;
	struct own_caller c[2 * CALLERS];
	struct caller other = {.f = f};
	pthread_t t[2 * CALLERS], u;
	int i;

	for (i = 0; i < 2 * CALLERS; i++) {
		c[i] = (struct own_caller){.f = f,
					   .mode = i % 2 ? ENV_WAIT_POLL
							 : ENV_WAIT_ADAPTIVE};
		assert_int_equal(env_waiter_new(f->env, c[i].mode, &c[i].w), 0);
		assert_int_equal(pthread_create(&t[i], NULL, call_and_wait_on,
						&c[i]),
				 0);
	}
	assert_int_equal(pthread_create(&u, NULL, call_and_wait, &other), 0);
	for (i = 0; i < 2 * CALLERS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(c[i].err, 0);
	}
	pthread_join(u, NULL);
	assert_int_equal(other.err, 0);
	/* The threads that wake others are through only now. */
	for (i = 0; i < 2 * CALLERS; i++)
		env_waiter_free(f->env, c[i].w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define E(name) cmocka_unit_test_setup_teardown(name, setup_event, teardown)
		T(test_no_lost_wake),
		E(test_no_lost_wake),
		T(test_callers_hand_over),
		E(test_callers_hand_over),
		T(test_callers_and_background),
		E(test_callers_and_background),
		T(test_impatient_callers),
		E(test_impatient_callers),
		T(test_owner_wakes_done),
		E(test_owner_wakes_done),
		T(test_turn_is_passed_on),
		E(test_turn_is_passed_on),
		T(test_background_works_alone),
		E(test_background_works_alone),
		T(test_second_waiter_sleeps),
		E(test_second_waiter_sleeps),
		T(test_no_memory_for_places),
		E(test_no_memory_for_places),
		T(test_no_place_behind_owner),
		E(test_no_place_behind_owner),
		cmocka_unit_test(test_timeout_behind_owner),
		cmocka_unit_test(test_lets_go),
		T(test_callers_let_go),
		E(test_callers_let_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
