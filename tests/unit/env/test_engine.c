/* SPDX-License-Identifier: MIT */
/*
 * test_engine.c - rounds, objects that come and go inside them, sleeping,
 * closures, and the hand-over of the engine between threads.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "env/engine.h"
#include "unit/cm.h"

#define MS 1000000ull
#define LONG (20000 * MS) /* a hang, not a measurement */

/* An object whose work is a counter that anybody may raise. */
struct source {
	struct engine_obj obj;
	struct engine *e;
	atomic_int work;
	atomic_int done;
	int polls, arms, beats, fd_beats;
	int beat_moves; /* what beat() returns, once each */
	bool refuse_arm;
	uint64_t deadline_ns;
	struct source *victim;	/* deleted from inside poll() */
	struct source *newborn; /* added from inside poll() */
};

static int source_poll(struct engine_obj *obj, uint64_t now_ns)
{
	struct source *s = container_of(obj, struct source, obj);
	int n = atomic_exchange(&s->work, 0);

	s->polls++;
	atomic_fetch_add(&s->done, n);
	if (now_ns >= s->deadline_ns) {
		s->deadline_ns = ENV_NEVER;
		atomic_fetch_add(&s->done, 1);
		n++;
	}
	if (s->victim)
		engine_del(s->e, &s->victim->obj);
	if (s->newborn)
		engine_add(s->e, &s->newborn->obj);
	s->newborn = NULL;
	return n;
}

static int source_arm(struct engine_obj *obj)
{
	struct source *s = container_of(obj, struct source, obj);

	s->arms++;
	return s->refuse_arm || atomic_load(&s->work);
}

static uint64_t source_deadline(struct engine_obj *obj)
{
	return container_of(obj, struct source, obj)->deadline_ns;
}

static int source_beat(struct engine_obj *obj, uint64_t now_ns)
{
	struct source *s = container_of(obj, struct source, obj);

	(void)now_ns;
	s->beats++;
	s->fd_beats += engine_fd_ready(s->e);
	if (!s->beat_moves)
		return 0;
	s->beat_moves--;
	atomic_fetch_add(&s->done, 1);
	return 1;
}

static const struct engine_obj_ops source_ops = {
	.poll = source_poll,
	.arm = source_arm,
	.next_deadline = source_deadline,
	.beat = source_beat,
};

static void source_add(struct source *s, struct engine *e)
{
	*s = (struct source){.e = e, .deadline_ns = ENV_NEVER};
	s->obj.ops = &source_ops;
	engine_add(e, &s->obj);
}

struct fixture {
	struct skein_env *env;
	struct engine *e;
};

static int setup_mode(void **state, enum env_wait_mode mode)
{
	struct fixture *f = test_calloc(1, sizeof(*f));

	assert_int_equal(env_real_new(&f->env), 0);
	assert_int_equal(engine_new(f->env, mode, &f->e), 0);
	*state = f;
	return 0;
}

static int setup(void **state)
{
	return setup_mode(state, ENV_WAIT_ADAPTIVE);
}

static int setup_event(void **state)
{
	return setup_mode(state, ENV_WAIT_EVENT);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	engine_free(f->e);
	env_real_free(f->env);
	test_free(f);
	return 0;
}

static uint64_t later(struct fixture *f, uint64_t ns)
{
	return env_now_ns(f->env) + ns;
}

static bool source_is_done(void *arg)
{
	return atomic_load(&((struct source *)arg)->done) > 0;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static void test_ownership(void **state)
{
	struct fixture *f = *state;

	assert_false(engine_is_owner(f->e));
	assert_true(engine_try_enter(f->e));
	assert_true(engine_is_owner(f->e));
	assert_false(engine_try_enter(f->e));
	assert_int_equal(engine_enter(f->e, 0), -EDEADLK);
	assert_int_equal(engine_run_until(f->e, never, NULL, 0), -EDEADLK);
	engine_leave(f->e);
	assert_int_equal(engine_enter(f->e, 0), 0);
	engine_leave(f->e);
}

static void test_rounds(void **state)
{
	struct fixture *f = *state;
	struct source a, b;

	engine_try_enter(f->e);
	source_add(&a, f->e);
	source_add(&b, f->e);
	atomic_store(&a.work, 2);
	atomic_store(&b.work, 3);
	assert_int_equal(engine_poll(f->e), 5);
	assert_int_equal(engine_poll(f->e), 0);
	assert_int_equal(a.polls, 2);
	assert_int_equal(b.polls, 2);
	engine_del(f->e, &a.obj);
	engine_poll(f->e);
	assert_int_equal(a.polls, 2);
	assert_int_equal(b.polls, 3);
	engine_del(f->e, &b.obj);
	engine_leave(f->e);
}

/* victim: 0 itself, 1 the next, 2 the last; the others are polled once. */
static void delete_inside(struct fixture *f, int victim)
{
	struct source s[4];
	int i;

	engine_try_enter(f->e);
	for (i = 0; i < 4; i++)
		source_add(&s[i], f->e);
	s[1].victim = &s[victim];
	engine_poll(f->e);
	for (i = 0; i < 4; i++)
		assert_int_equal(s[i].polls, i != victim || i <= 1);
	for (i = 0; i < 4; i++)
		engine_del(f->e, &s[i].obj);
	engine_leave(f->e);
}

static void test_delete_inside(void **state)
{
	int victim;

	for (victim = 0; victim < 4; victim++)
		delete_inside(*state, victim);
}

static void test_add_inside(void **state)
{
	struct fixture *f = *state;
	struct source a, b;

	engine_try_enter(f->e);
	source_add(&b, f->e);
	engine_del(f->e, &b.obj);
	source_add(&a, f->e);
	a.newborn = &b;
	engine_poll(f->e);
	engine_poll(f->e);
	assert_int_equal(a.polls, 2);
	assert_true(b.polls >= 1);
	engine_del(f->e, &a.obj);
	engine_del(f->e, &b.obj);
	engine_leave(f->e);
}

static void test_deadline_of_object(void **state)
{
	struct fixture *f = *state;
	struct source a, b;
	uint64_t t, start;

	engine_try_enter(f->e);
	source_add(&a, f->e);
	source_add(&b, f->e);
	engine_leave(f->e);
	start = env_now_ns(f->env);
	t = b.deadline_ns = start + 20 * MS;
	assert_int_equal(
		engine_run_until(f->e, source_is_done, &b, later(f, LONG)), 0);
	assert_true(env_now_ns(f->env) >= t);
	/* It slept: 20 ms of polling would be many thousand rounds. */
	assert_true(a.arms >= 1);
	assert_true(a.polls < 20000);
	engine_del(f->e, &a.obj);
	engine_del(f->e, &b.obj);
}

static void test_timeout(void **state)
{
	struct fixture *f = *state;
	struct source a;
	uint64_t t;

	engine_try_enter(f->e);
	source_add(&a, f->e);
	engine_leave(f->e);
	t = later(f, 10 * MS);
	assert_int_equal(engine_run_until(f->e, never, NULL, t), -ETIMEDOUT);
	assert_true(env_now_ns(f->env) >= t);
	/* A source that refuses to be armed is polled on, to the deadline. */
	a.refuse_arm = true;
	t = later(f, 5 * MS);
	assert_int_equal(engine_run_until(f->e, never, NULL, t), -ETIMEDOUT);
	assert_true(env_now_ns(f->env) >= t);
	engine_del(f->e, &a.obj);
}

static void test_fd_calls_beat(void **state)
{
	struct fixture *f = *state;
	struct source a;
	int p[2];

	assert_int_equal(pipe(p), 0);
	engine_try_enter(f->e);
	source_add(&a, f->e);
	engine_poll(f->e);
	engine_leave(f->e);
	assert_int_equal(a.fd_beats, 0);
	a.beat_moves = 1;
	assert_int_equal(env_waiter_watch(f->env, engine_waiter(f->e), p[0],
					  EPOLLIN),
			 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(
		engine_run_until(f->e, source_is_done, &a, later(f, LONG)), 0);
	assert_int_equal(env_waiter_unwatch(f->env, engine_waiter(f->e), p[0]),
			 0);
	engine_del(f->e, &a.obj);
	close(p[0]);
	close(p[1]);
	assert_int_equal(a.fd_beats, 1);
}

/* Without any fd the beat is the clock's: one in 5 ms, a few more at first. */
static void test_beat_by_the_clock(void **state)
{
	struct fixture *f = *state;
	uint64_t end = later(f, 40 * MS);
	struct source a;

	engine_try_enter(f->e);
	engine_poll(f->e);
	source_add(&a, f->e);
	while (env_now_ns(f->env) < end)
		engine_poll(f->e);
	assert_int_equal(a.fd_beats, 0);
	/* At most one in 50 us for 5 ms, then one in 5 ms. */
	assert_in_range(a.beats, 1, 110);
	engine_del(f->e, &a.obj);
	engine_leave(f->e);
}

/* An application's own event loop: arm, poll its fd, disarm, a round. */
static void test_foreign_loop(void **state)
{
	struct fixture *f = *state;
	struct pollfd p = {.events = POLLIN};
	struct source a;
	uint64_t t;

	engine_try_enter(f->e);
	source_add(&a, f->e);
	p.fd = env_waiter_fd(f->env, engine_waiter(f->e));
	a.deadline_ns = later(f, 3600 * 1000 * MS);
	assert_int_equal(engine_arm(f->e, &t), 0);
	assert_true(t == a.deadline_ns);
	assert_int_equal(poll(&p, 1, 0), 0);
	engine_kick(f->e);
	assert_int_equal(poll(&p, 1, 0), 1);
	engine_disarm(f->e);
	assert_int_equal(poll(&p, 1, 0), 0);
	/* The kick is not forgotten with the token. */
	assert_int_equal(engine_arm(f->e, &t), 1);
	assert_int_equal(engine_poll(f->e), 1);
	assert_int_equal(engine_arm(f->e, &t), 0);
	engine_disarm(f->e);
	atomic_store(&a.work, 1);
	assert_int_equal(engine_arm(f->e, &t), 1);
	assert_int_equal(engine_poll(f->e), 1);
	engine_del(f->e, &a.obj);
	engine_leave(f->e);
}

/* --- other threads ------------------------------------------------------ */

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

struct counted_call {
	struct engine_call call;
	struct fixture *f;
	int *order;
	int n, seen;
	atomic_int *runs;
};

static void count_call(struct engine_call *call)
{
	struct counted_call *c = container_of(call, struct counted_call, call);

	assert_true(engine_is_owner(c->f->e));
	c->seen = (*c->order)++;
	atomic_fetch_add(c->runs, 1);
}

static void test_calls_in_order(void **state)
{
	struct fixture *f = *state;
	struct counted_call c[5];
	atomic_int runs = 0;
	int i, order = 0;

	for (i = 0; i < 5; i++) {
		c[i] = (struct counted_call){
			.f = f, .order = &order, .runs = &runs};
		c[i].call.fn = count_call;
		engine_post(f->e, &c[i].call);
	}
	assert_int_equal(order, 0);
	engine_try_enter(f->e);
	assert_int_equal(engine_poll(f->e), 5);
	assert_int_equal(engine_poll(f->e), 0);
	engine_leave(f->e);
	for (i = 0; i < 5; i++)
		assert_int_equal(c[i].seen, i);
}

#define CALLERS 4
#define CALLS 300

struct caller {
	struct fixture *f;
	struct source *s;
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

/* A thread that waits while another owns the engine sleeps: it burns less
 * than a tenth of the time that it waits. */
static void *wait_for_turn(void *arg)
{
	struct caller *c = arg;
	struct timespec cpu;

	c->err = engine_enter(c->f->e, later(c->f, LONG));
	if (c->err)
		return NULL;
	engine_leave(c->f->e);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	if (cpu.tv_sec || cpu.tv_nsec > 10 * (long)MS)
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
};

static void *call_in_vain(void *arg)
{
	struct deadline_call *c = arg;

	c->rc = engine_run_until(c->f->e, never, NULL, later(c->f, 5 * MS));
	return NULL;
}

/* A caller that waits behind a busy owner comes back at its deadline, with a
 * place of its own and without one. */
static void test_timeout_behind_owner(void **state)
{
	struct fixture *f = *state;
	struct deadline_call c[2] = {{f, 0}, {f, 0}};
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

/* Calling into the engine from inside a round is refused, not a deadlock. */
static void call_inside(struct engine_call *call)
{
	struct counted_call *c = container_of(call, struct counted_call, call);

	c->seen = engine_run_until(c->f->e, never, NULL, ENV_NEVER);
}

static void test_call_from_inside(void **state)
{
	struct counted_call c = {.f = *state};
	struct fixture *f = *state;

	c.call.fn = call_inside;
	engine_post(f->e, &c.call);
	engine_try_enter(f->e);
	engine_poll(f->e);
	engine_leave(f->e);
	assert_int_equal(c.seen, -EDEADLK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define E(name) cmocka_unit_test_setup_teardown(name, setup_event, teardown)
		T(test_ownership),
		T(test_rounds),
		T(test_delete_inside),
		T(test_add_inside),
		T(test_deadline_of_object),
		T(test_timeout),
		T(test_fd_calls_beat),
		T(test_beat_by_the_clock),
		T(test_foreign_loop),
		T(test_no_memory_for_places),
		T(test_timeout_behind_owner),
		T(test_call_from_inside),
		T(test_no_lost_wake),
		E(test_no_lost_wake),
		T(test_calls_in_order),
		T(test_callers_hand_over),
		E(test_callers_hand_over),
		T(test_callers_and_background),
		E(test_callers_and_background),
		T(test_background_works_alone),
		E(test_background_works_alone),
		T(test_second_waiter_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
