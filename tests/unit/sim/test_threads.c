/* SPDX-License-Identifier: MIT */
/*
 * Threads on cores: which one runs when, what work costs, locks, ends and
 * kills.
 */
#include "cm_sim.h"

struct worker {
	struct two *t;
	unsigned i;
	uint64_t work, done_at;
	struct env_mutex *lock;
	int *inside;
};

static void work(void *arg)
{
	struct worker *x = arg;

	sim_charge(x->t->w, x->work);
	sim_flush(x->t->w, 0);
	x->done_at = sim_now(x->t->w);
}

/* Three pieces of work of 10 ms on two cores take 20 ms, of whichever order. */
static void test_cores(void **state)
{
	struct worker x[3];
	uint64_t last = 0;
	struct two t;

	two_up(&t, 1, 2);
	for (unsigned i = 0; i < 3; i++) {
		x[i] = (struct worker){.t = &t, .i = i, .work = 10000000};
		assert_int_equal(sim_spawn(t.proc[0], "w", work, &x[i]), 0);
	}
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	for (unsigned i = 0; i < 3; i++)
		last = x[i].done_at > last ? x[i].done_at : last;
	assert_in_range(last, 20000000, 20010000);
	two_down(&t);
}

struct spinner_no_yield {
	struct two *t;
	struct env_waiter *w;
	uint64_t done_at;
};

static void spins(void *arg)
{
	struct spinner_no_yield *s = arg;
	struct skein_env *env = s->t->env[0];

	assert_int_equal(env_waiter_new(env, ENV_WAIT_SPIN, &s->w), 0);
	for (unsigned round = 0; !s->done_at; round++)
		env_idle(env, s->w, round);
	env_waiter_free(env, s->w);
}

static void wants_core(void *arg)
{
	struct spinner_no_yield *s = arg;

	sim_sleep(s->t->w, 1000000);
	sim_charge(s->t->w, 1000);
	sim_flush(s->t->w, 0);
	s->done_at = sim_now(s->t->w);
	env_waiter_wake(s->t->env[0], s->w);
}

/* One that spins without yielding has its slice of the only core and no more,
 * though nothing else happens that would be a reason to look. */
static void test_no_yield(void **state)
{
	struct two t;
	struct spinner_no_yield s = {.t = &t};

	two_up(&t, 1, 1);
	assert_int_equal(sim_spawn(t.proc[0], "w", wants_core, &s), 0);
	assert_int_equal(sim_spawn(t.proc[0], "s", spins, &s), 0);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	assert_in_range(s.done_at, 3000000, 3010000);
	two_down(&t);
}

static void test_slow_and_pause(void **state)
{
	struct worker x = {.work = 1000};
	struct two t;

	two_up(&t, 1, 1);
	x.t = &t;
	sim_node_slow(t.node[0], 10);
	sim_node_pause(t.node[0], 5000000);
	assert_int_equal(sim_spawn(t.proc[0], "w", work, &x), 0);
	sim_run(t.w, ENV_NEVER);
	assert_int_equal(x.done_at, 5000000 + 10000);
	two_down(&t);
}

static void locked(void *arg)
{
	struct worker *x = arg;
	struct skein_env *env = x->t->env[0];

	for (int i = 0; i < 50; i++) {
		env_mutex_lock(env, x->lock);
		assert_int_equal((*x->inside)++, 0);
		sim_charge(x->t->w, 300 + x->i);
		sim_flush(x->t->w, 0);
		if (i % 7 == 0)
			sim_sleep(x->t->w, 1000);
		(*x->inside)--;
		env_mutex_unlock(env, x->lock);
		env_yield(env);
	}
	x->done_at = sim_now(x->t->w);
}

static void test_lock(void **state)
{
	struct env_mutex lock;
	struct worker x[6];
	int inside = 0;
	struct two t;

	two_up(&t, 1, 3);
	env_mutex_init(t.env[0], &lock);
	for (unsigned i = 0; i < 6; i++) {
		x[i] = (struct worker){
			.t = &t, .i = i, .lock = &lock, .inside = &inside};
		sim_spawn(t.proc[0], "w", locked, &x[i]);
	}
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	for (unsigned i = 0; i < 6; i++)
		assert_true(x[i].done_at > 0);
	env_mutex_fini(t.env[0], &lock);
	two_down(&t);
}

static void child(void *arg)
{
	struct worker *x = arg;

	sim_sleep(x->t->w, 5000);
	x->done_at = sim_now(x->t->w);
}

struct exiting {
	struct env_exit x;
	struct worker *w;
	uint64_t self;
};

static void exits(struct env_exit *x)
{
	struct exiting *e = container_of(x, struct exiting, x);

	assert_int_equal(env_thread_self(e->w->t->env[0]), e->self);
	env_mutex_lock(e->w->t->env[0], e->w->lock);
	sim_sleep(e->w->t->w, 10000);
	e->w->done_at = sim_now(e->w->t->w);
	(*e->w->inside)++;
	env_mutex_unlock(e->w->t->env[0], e->w->lock);
}

static void has_exits(void *arg)
{
	struct exiting *e = arg;

	for (int i = 0; i < 2; i++) {
		e[i].x.fn = exits;
		e[i].self = env_thread_self(e->w->t->env[0]);
		env_thread_on_exit(e->w->t->env[0], &e[i].x);
	}
	sim_sleep(e->w->t->w, 5000);
}

/* One hook is taken back while it runs, the other one before it would. */
static void takes_back(void *arg)
{
	struct exiting *e = arg;

	sim_sleep(e->w->t->w, 10000);
	env_thread_off_exit(e->w->t->env[0], &e[1].x);
	assert_int_equal(*e->w->inside, 0);
	env_thread_off_exit(e->w->t->env[0], &e[0].x);
	assert_int_equal(*e->w->inside, 1);
	assert_in_range(e->w->done_at, 15000, sim_now(e->w->t->w));
}

static void test_exits(void **state)
{
	struct env_mutex lock;
	struct worker x = {.lock = &lock};
	struct exiting e[2] = {{.w = &x}, {.w = &x}};
	int inside = 0;
	struct two t;

	two_up(&t, 1, 2);
	env_mutex_init(t.env[0], &lock);
	x.t = &t;
	x.inside = &inside;
	sim_spawn(t.proc[0], "has", has_exits, e);
	sim_spawn(t.proc[0], "takes", takes_back, e);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	assert_int_equal(inside, 1);
	env_mutex_fini(t.env[0], &lock);
	two_down(&t);
}

static void parent(void *arg)
{
	struct worker *x = arg;
	struct env_thread *thread;

	assert_int_equal(env_thread_start(x->t->env[0], "c", child, x, &thread),
			 0);
	env_thread_join(x->t->env[0], thread);
	assert_true(x->done_at > 0);
	x->done_at = sim_now(x->t->w);
}

static void test_join(void **state)
{
	struct worker x = {0};
	struct two t;

	two_up(&t, 1, 1);
	x.t = &t;
	sim_spawn(t.proc[0], "parent", parent, &x);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	assert_true(x.done_at > 5000);
	two_down(&t);
}

static void count(void *arg, const char *line)
{
	(*(int *)arg)++;
}

static void for_ever(void *arg)
{
	struct worker *x = arg;
	void *p = env_alloc(x->t->env[0], 1000);

	assert_non_null(p);
	for (;;) {
		sim_charge(x->t->w, 100);
		sim_sleep(x->t->w, 1000);
	}
}

/* A killed process has no thread, no memory, no descriptor, and its core is
 * free for others. */
static void test_kill(void **state)
{
	struct worker x = {.work = 100};
	int lines = 0, fd;
	struct two t;

	two_up(&t, 1, 1);
	x.t = &t;
	sim_spawn(t.proc[0], "loop", for_ever, &x);
	assert_int_equal(sim_fd_new(t.proc[0], &fd), 0);
	assert_int_equal(sim_run(t.w, 100000), SIM_END_TIME);
	assert_int_equal(sim_proc_bytes(t.proc[0]), 1000);
	assert_int_equal(sim_proc_fds(t.proc[0]), 1);
	sim_proc_report(t.proc[0], count, &lines);
	assert_int_equal(lines, 1);
	sim_proc_kill(t.proc[0]);
	assert_int_equal(sim_proc_bytes(t.proc[0]), 0);
	assert_int_equal(sim_proc_fds(t.proc[0]), 0);
	assert_int_equal(sim_run(t.w, ENV_NEVER), SIM_END_QUIET);
	sim_spawn(t.proc[1], "w", work, &x);
	sim_run(t.w, ENV_NEVER);
	assert_true(x.done_at > 100000);
	two_down(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cores),
		cmocka_unit_test(test_no_yield),
		cmocka_unit_test(test_slow_and_pause),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_exits),
		cmocka_unit_test(test_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
