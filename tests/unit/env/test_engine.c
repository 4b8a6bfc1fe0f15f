/* SPDX-License-Identifier: MIT */
/*
 * test_engine.c - rounds, objects that come and go inside them, deadlines,
 * beats, closures, foreign event loops: all in one thread.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "engine_fixture.h"

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
	int p[2], q[2];

	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(q), 0);
	engine_try_enter(f->e);
	source_add(&a, f->e);
	a.fd = p[0];
	a.other_fd = q[0];
	engine_poll(f->e);
	engine_leave(f->e);
	assert_int_equal(a.fd_beats, 0);
	a.beat_moves = 1;
	assert_int_equal(env_waiter_watch(f->env, engine_waiter(f->e), p[0],
					  EPOLLIN),
			 0);
	assert_int_equal(env_waiter_watch(f->env, engine_waiter(f->e), q[0],
					  EPOLLIN),
			 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(
		engine_run_until(f->e, source_is_done, &a, later(f, LONG)), 0);
	assert_int_equal(env_waiter_unwatch(f->env, engine_waiter(f->e), p[0]),
			 0);
	assert_int_equal(env_waiter_unwatch(f->env, engine_waiter(f->e), q[0]),
			 0);
	engine_del(f->e, &a.obj);
	close(p[0]);
	close(p[1]);
	close(q[0]);
	close(q[1]);
	assert_int_equal(a.fd_beats, 1);
	assert_int_equal(a.other_beats, 0);
}

/* Without any fd the beat is the clock's: one in 5 ms, a few more at first. */
static void test_beat_by_the_clock(void **state)
{
	struct fixture *f = *state;
	uint64_t end, begun = env_now_ns(f->env);
	struct source a;

	engine_try_enter(f->e);
	engine_poll(f->e);
	source_add(&a, f->e);
	end = later(f, 40 * MS);
	do
		engine_poll(f->e);
	while (env_now_ns(f->env) < end || !a.beats);
	assert_int_equal(a.fd_beats, 0);
	/* At most one in 50 us for 5 ms, then one in 5 ms. */
	assert_in_range(a.beats, 1,
			102 + (env_now_ns(f->env) - begun) / (5 * MS));
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

/* A deadline that only beat() satisfies, shorter than the slow beat: the
 * engine sleeps from one to the next, and does not run idle rounds between
 * the deadline and the beat. */
static void test_deadline_of_beat(void **state)
{
	struct fixture *f = *state;
	struct source a;

	engine_try_enter(f->e);
	source_add(&a, f->e);
	a.every_ns = 2 * MS;
	a.deadline_ns = env_now_ns(f->env) + a.every_ns;
	engine_leave(f->e);
	assert_int_equal(engine_run_until(f->e, never, NULL,
					  later(f, 100 * MS)),
			 -ETIMEDOUT);
	/* two or three rounds a deadline; idle ones would be thousands */
	assert_true(a.polls < 500);
	assert_true(a.beats >= 2);
	engine_try_enter(f->e);
	engine_del(f->e, &a.obj);
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

static void run_to_deadline(struct fixture *f, struct source *s)
{
	s->deadline_ns = later(f, 5 * MS);
	atomic_store(&s->done, 0);
	assert_int_equal(
		engine_run_until(f->e, source_is_done, s, later(f, LONG)), 0);
}

/* A polling engine sleeps where all objects say that an fd announces their work,
 * and only there. */
static void test_poll_by_fd(void **state)
{
	struct fixture *f = *state;
	struct source a, b;
	uint64_t end = later(f, LONG);
	bool slept;

	assert_true(engine_try_enter(f->e));
	source_add(&a, f->e);
	source_add(&b, f->e);
	engine_leave(f->e);
	for (int i = 0; i < 4; i++) {
		/* a without by_fd(), then each answer, b saying yes */
		a.obj.ops = i ? &fd_source_ops : &source_ops;
		b.obj.ops = &fd_source_ops;
		a.by_fd = i > 1;
		b.by_fd = i != 2;
		slept = i == 3;
		a.arms = 0;
		/* Without the core for 5 ms it has no round to sleep in. */
		do
			run_to_deadline(f, &a);
		while (slept && !a.arms && env_now_ns(f->env) < end);
		assert_int_equal(a.arms > 0, slept);
	}
	/* Its arming fails: it polls on, and hears of the deadline. */
	a.refuse_arm = true;
	run_to_deadline(f, &a);
	assert_true(engine_try_enter(f->e));
	engine_del(f->e, &a.obj);
	engine_del(f->e, &b.obj);
	engine_leave(f->e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_ownership),
		T(test_rounds),
		T(test_delete_inside),
		T(test_add_inside),
		T(test_deadline_of_object),
		T(test_timeout),
		T(test_fd_calls_beat),
		T(test_beat_by_the_clock),
		T(test_foreign_loop),
		T(test_calls_in_order),
		T(test_call_from_inside),
		cmocka_unit_test_setup_teardown(test_deadline_of_beat,
						setup_event, teardown),
		cmocka_unit_test_setup_teardown(test_poll_by_fd, setup_poll,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
