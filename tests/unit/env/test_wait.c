/* SPDX-License-Identifier: MIT */
/*
 * test_wait.c - waiters: no wake-up lost, none invented without end, deadlines
 * exact enough, fds level-triggered, idling by mode, descriptors exhausted. What
 * a waiter decides by the time that a yield took is tested on a clock of the
 * test's own; beside real threads only what no load can change.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fence.h"
#include "base/prng.h"
#include "env/real/real.h"
#include "unit/cm.h"
#include "unit/patience.h"

#define MS 1000000ull

struct fixture {
	struct skein_env *env;
	struct env_waiter *w;
};

static int setup(void **state)
{
	struct fixture *f = test_calloc(1, sizeof(*f));

	assert_int_equal(env_real_new(&f->env), 0);
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_ADAPTIVE, &f->w), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	env_waiter_free(f->env, f->w);
	env_real_free(f->env);
	test_free(f);
	return 0;
}

static int sleep_for(struct fixture *f, uint64_t ns)
{
	env_waiter_arm(f->env, f->w);
	return env_waiter_sleep(f->env, f->w, env_now_ns(f->env) + ns);
}

/* Never early; how late is the scheduler's business, but a sleep of 200 us
 * must not become one of whole milliseconds each time (a rounded timeout): once
 * it is on time, however long that takes on a busy machine. */
static void deadlines(struct fixture *f)
{
	uint64_t end = env_now_ns(f->env) + patience_ns(30);
	uint64_t t, late, least = UINT64_MAX;
	int i;

	for (i = 0; i < 50 || (least >= MS / 2 && env_now_ns(f->env) < end);
	     i++) {
		t = env_now_ns(f->env) + 200000;
		env_waiter_arm(f->env, f->w);
		assert_int_equal(env_waiter_sleep(f->env, f->w, t), -ETIMEDOUT);
		assert_true(env_now_ns(f->env) >= t);
		late = env_now_ns(f->env) - t;
		least = late < least ? late : least;
	}
	patience_met(least < MS / 2, 30, "a sleep that ends on time");
	/* One that has passed already. */
	assert_int_equal(sleep_for(f, 0), -ETIMEDOUT);
	env_waiter_arm(f->env, f->w);
	assert_int_equal(env_waiter_sleep(f->env, f->w, 0), -ETIMEDOUT);
	/* None, and one that is as good as none. */
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	assert_int_equal(env_waiter_sleep(f->env, f->w, ENV_NEVER), 0);
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	assert_int_equal(env_waiter_sleep(f->env, f->w, ENV_NEVER - 1), 0);
}

static void test_deadlines(void **state)
{
	deadlines(*state);
}

/* The same on a kernel that has no epoll_pwait2(). */
static void test_deadlines_ppoll(void **state)
{
	struct fixture *f = *state;

	atomic_store(&real_env_of(f->env)->no_pwait2, true);
	deadlines(f);
}

/* A sleep makes one or two system calls, it does not poll its way there. */
static void test_sleep_is_idle(void **state)
{
	struct fixture *f = *state;
	struct timespec a, b;
	int64_t ns;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
	assert_int_equal(sleep_for(f, 100 * MS), -ETIMEDOUT);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
	ns = (b.tv_sec - a.tv_sec) * 1000000000ll + b.tv_nsec - a.tv_nsec;
	assert_true(ns < 10 * (int64_t)MS);
}

static void test_wake_needs_arm(void **state)
{
	struct fixture *f = *state;
	struct pollfd p = {.fd = env_waiter_fd(f->env, f->w), .events = POLLIN};

	/* Not armed: no token, so a later sleep is a full one. */
	env_waiter_wake(f->env, f->w);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(sleep_for(f, MS), -ETIMEDOUT);
	/* Armed: one token, however many wakers. */
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(env_waiter_sleep(f->env, f->w, ENV_NEVER), 0);
	assert_int_equal(sleep_for(f, MS), -ETIMEDOUT);
	/* A deadline some centuries away is a deadline. */
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	assert_int_equal(env_waiter_sleep(f->env, f->w, ENV_NEVER - 1), 0);
	/* Woken, then disarmed: one sleep ends at once, the next does not. */
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	env_waiter_disarm(f->env, f->w);
	assert_int_equal(sleep_for(f, 1000 * MS), 0);
	assert_int_equal(sleep_for(f, MS), -ETIMEDOUT);
	/* Or waiter_ready takes it back. */
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	env_waiter_disarm(f->env, f->w);
	assert_int_equal(env_waiter_ready(f->env, f->w), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
}

static void test_fds(void **state)
{
	struct fixture *f = *state;
	int p[2];
	char c;

	assert_int_equal(pipe(p), 0);
	assert_int_equal(env_waiter_watch(f->env, f->w, p[0], EPOLLIN), 0);
	assert_int_equal(env_waiter_ready(f->env, f->w), 0);
	assert_int_equal(sleep_for(f, MS), -ETIMEDOUT);
	assert_int_equal(write(p[1], "x", 1), 1);
	/* Level-triggered: until it is read. */
	assert_int_equal(sleep_for(f, 1000 * MS), 1);
	assert_int_equal(sleep_for(f, 1000 * MS), 1);
	assert_int_equal(env_waiter_ready(f->env, f->w), 1);
	/* Other events in its place. */
	assert_int_equal(env_waiter_watch(f->env, f->w, p[0], 0), 0);
	assert_int_equal(sleep_for(f, MS), -ETIMEDOUT);
	assert_int_equal(env_waiter_watch(f->env, f->w, p[0], EPOLLIN), 0);
	assert_int_equal(env_waiter_ready(f->env, f->w), 1);
	/* A wake-up and a ready fd at once: the fd is not forgotten. */
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w);
	assert_int_equal(env_waiter_sleep(f->env, f->w, ENV_NEVER), 1);
	assert_int_equal(read(p[0], &c, 1), 1);
	assert_int_equal(sleep_for(f, MS), -ETIMEDOUT);
	assert_int_equal(env_waiter_unwatch(f->env, f->w, p[0]), 0);
	assert_int_equal(env_waiter_unwatch(f->env, f->w, p[0]), -ENOENT);
	assert_int_equal(env_waiter_watch(f->env, f->w, -1, EPOLLIN), -EBADF);
	close(p[0]);
	close(p[1]);
}

/* --- the lost wake-up --------------------------------------------------- */

#define ROUNDS 20000

struct race {
	struct fixture *f;
	/* Lines of their own, so that a store stays in its buffer for as long
	 * as the other core holds the line: what the fences are for. */
	_Alignas(128) atomic_int work;
	_Alignas(128) atomic_int consumed;
};

static void dawdle(struct prng *r)
{
	unsigned n = (unsigned)prng_below(r, 200);

	while (n--)
		__asm__ volatile("" ::: "memory");
}

static void *race_waker(void *arg)
{
	struct race *x = arg;
	struct prng r;
	int i, spins;

	prng_init(&r, 1);
	for (i = 1; i <= ROUNDS; i++) {
		dawdle(&r);
		atomic_store_explicit(&x->work, i, memory_order_relaxed);
		env_waiter_wake(x->f->env, x->f->w);
		for (spins = 0; atomic_load(&x->consumed) != i; spins++) {
			if (spins > 1000)
				env_yield(x->f->env);
			if (atomic_load(&x->consumed) < 0)
				return NULL; /* the sleeper has failed */
		}
	}
	return NULL;
}

static bool race_has_work(struct race *x, int seen)
{
	return atomic_load_explicit(&x->work, memory_order_relaxed) != seen;
}

/* One piece of work at a time against arm, re-check, sleep. Each is published
 * before its wake-up, so a sleep that ends at its deadline has lost one. */
static void test_no_lost_wake(void **state)
{
	struct race x = {.f = *state};
	struct fixture *f = *state;
	int seen = 0, rc, spins;
	struct prng r;
	pthread_t t;

	prng_init(&r, 2);
	assert_int_equal(pthread_create(&t, NULL, race_waker, &x), 0);
	while (seen < ROUNDS) {
		/* Most rounds come close to sleeping, few really sleep. */
		dawdle(&r);
		for (spins = (int)prng_below(&r, 30);
		     spins && !race_has_work(&x, seen); spins--)
			cpu_pause();
		env_waiter_arm(f->env, f->w);
		if (race_has_work(&x, seen)) {
			env_waiter_disarm(f->env, f->w);
			atomic_store(&x.consumed, ++seen);
			continue;
		}
		rc = env_waiter_sleep(f->env, f->w,
				      env_now_ns(f->env) + patience_ns(30));
		if (rc == -ETIMEDOUT && race_has_work(&x, seen)) {
			atomic_store(&x.consumed, -1);
			pthread_join(t, NULL);
			fail_msg("wake-up %d was lost", seen + 1);
		}
	}
	pthread_join(t, NULL);
}

/* --- idling -------------------------------------------------------------- */

static enum env_idle_verdict idle_until(struct fixture *f,
					enum env_wait_mode mode, uint64_t ns,
					unsigned *rounds)
{
	enum env_idle_verdict v;
	uint64_t end = env_now_ns(f->env) + ns;
	struct env_waiter *w;

	assert_int_equal(env_waiter_new(f->env, mode, &w), 0);
	*rounds = 0;
	do
		v = env_idle(f->env, w, (*rounds)++);
	while (v != ENV_IDLE_SLEEP && env_now_ns(f->env) < end);
	env_waiter_free(f->env, w);
	return v;
}

static void test_idle_by_mode(void **state)
{
	struct fixture *f = *state;
	unsigned rounds;

	f->env->log = NULL;
	assert_int_equal(idle_until(f, ENV_WAIT_EVENT, MS, &rounds),
			 ENV_IDLE_SLEEP);
	assert_int_equal(rounds, 1);
	assert_int_equal(idle_until(f, ENV_WAIT_ADAPTIVE, patience_ns(30),
				    &rounds),
			 ENV_IDLE_SLEEP);
	assert_true(rounds > 16);
	assert_int_not_equal(idle_until(f, ENV_WAIT_POLL, MS, &rounds),
			     ENV_IDLE_SLEEP);
	assert_int_not_equal(idle_until(f, ENV_WAIT_SPIN, MS, &rounds),
			     ENV_IDLE_SLEEP);
}

static void count_line(void *arg, enum env_log_level level, const char *msg)
{
	if (level == ENV_LOG_WARN && strstr(msg, "spin"))
		++*(int *)arg;
}

static void test_spin_warns_once(void **state)
{
	struct fixture *f = *state;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct env_waiter *w[260];
	int warnings = 0;
	long i, n = cores + 3;

	if (n > 260)
		skip();
	f->env->log = count_line;
	f->env->log_arg = &warnings;
	for (i = 0; i < n; i++) {
		assert_int_equal(env_waiter_new(f->env, ENV_WAIT_SPIN, &w[i]),
				 0);
		if (i == 0)
			assert_int_equal(warnings, 0);
	}
	assert_int_equal(warnings, 1);
	while (n--)
		env_waiter_free(f->env, w[n]);
}

/* A thread with two waiters spins at one of them. */
static void test_spin_second(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w[260];
	int warnings = 0;
	long i, n = sysconf(_SC_NPROCESSORS_ONLN) + 3;

	if (n > 260)
		skip();
	f->env->log = count_line;
	f->env->log_arg = &warnings;
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_SPIN, &w[0]), 0);
	for (i = 1; i < n; i++)
		assert_int_equal(
			env_waiter_new_second(f->env, ENV_WAIT_SPIN, &w[i]), 0);
	assert_int_equal(warnings, 0);
	/* nor are they one less when they go */
	while (--n)
		env_waiter_free(f->env, w[n]);
	n = sysconf(_SC_NPROCESSORS_ONLN) + 3;
	for (i = 1; i < n; i++)
		assert_int_equal(env_waiter_new(f->env, ENV_WAIT_SPIN, &w[i]),
				 0);
	assert_int_equal(warnings, 1);
	while (n--)
		env_waiter_free(f->env, w[n]);
}

/* Two spinners in POLL mode on one core: each round trip costs a switch, not a
 * time slice (some ms). A core that has others, too, is slower. */
struct tag {
	struct fixture *f;
	atomic_int turn;
	cpu_set_t cpu;
	int in_turns; /* waits of the first that begin with a yield */
};

static void play(struct tag *g, int me)
{
	struct env_waiter *w;
	unsigned round;

	pthread_setaffinity_np(pthread_self(), sizeof(g->cpu), &g->cpu);
	if (env_waiter_new(g->f->env, ENV_WAIT_POLL, &w))
		return;
	for (int i = me; i < 4000; i += 2) {
		if (!me)
			g->in_turns += env_idle_yields(g->f->env, w, 0);
		for (round = 0; atomic_load(&g->turn) != i; round++)
			env_idle(g->f->env, w, round);
		atomic_store(&g->turn, i + 1);
	}
	env_waiter_free(g->f->env, w);
}

static void *play_second(void *arg)
{
	play(arg, 1);
	return NULL;
}

static void test_yield_on_one_core(void **state)
{
	struct tag g = {.f = *state};
	cpu_set_t old;
	pthread_t t;
	int cpu = 0;

	pthread_getaffinity_np(pthread_self(), sizeof(old), &old);
	while (!CPU_ISSET(cpu, &old))
		cpu++;
	CPU_SET(cpu, &g.cpu);
	assert_int_equal(pthread_create(&t, NULL, play_second, &g), 0);
	play(&g, 0);
	pthread_join(t, NULL);
	pthread_setaffinity_np(pthread_self(), sizeof(old), &old);
	assert_int_equal(atomic_load(&g.turn), 4000);
	print_message("%d of 2000 waits began with the yield\n", g.in_turns);
}

/* --- what a yield took, by the test's clock ------------------------------ */

#define LOOK_NS 200	 /* a look at the clock, while nothing yields */
#define SWITCH_NS 1000	 /* a yield that lets another thread run */
#define DEAR_NS 400000	 /* ... which computes */
#define HOLD_NS 10000000 /* no yield after the first dear one */
#define SOON_NS 6000	 /* an adaptive waiter sleeps: in a hold */
#define LATER_NS 30000	 /* ... else */

#define MANY 100000 /* rounds, where no wait is that long */

/* Each look at the clock takes step_ns: so does a yield, between two looks. */
static struct {
	struct env_ops ops;
	uint64_t now_ns, step_ns;
} fake;

static uint64_t fake_now(struct skein_env *env)
{
	(void)env;
	return fake.now_ns += fake.step_ns;
}

static int setup_fake(void **state)
{
	struct fixture *f;

	if (setup(state))
		return -1;
	f = *state;
	fake.ops = *f->env->ops;
	fake.ops.now_ns = fake_now;
	fake.now_ns = 1000000000;
	fake.step_ns = LOOK_NS;
	f->env->ops = &fake.ops;
	return 0;
}

/* A wait that ends with its first yield, which takes so long: the rounds before
 * it. */
static unsigned wait_of(struct fixture *f, struct env_waiter *w, uint64_t ns)
{
	unsigned round = 0;

	while (!env_idle_yields(f->env, w, round))
		assert_int_equal(env_idle(f->env, w, round++), ENV_IDLE_AGAIN);
	fake.step_ns = ns;
	env_idle(f->env, w, round);
	fake.step_ns = LOOK_NS;
	return round;
}

/* Two threads on one core find out that they share it: after four waits in a
 * row that ended with a yield to the other, a wait begins with the yield.
 * Without the partner it looks again before it yields, as any other. */
static void test_turns(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w;
	int i;

	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_POLL, &w), 0);
	/* a yield that lets nobody run is no turn */
	for (i = 0; i < 20; i++)
		assert_true(wait_of(f, w, SWITCH_NS - 1) > 16);
	for (i = 0; i < 4; i++)
		assert_true(wait_of(f, w, SWITCH_NS) > 16);
	for (i = 0; i < 20; i++)
		assert_int_equal(wait_of(f, w, SWITCH_NS), 0);
	/* A yield in vain: this wait goes on as any other. */
	assert_int_equal(wait_of(f, w, SWITCH_NS - 1), 0);
	assert_false(env_idle_yields(f->env, w, 1));
	assert_int_equal(wait_of(f, w, SWITCH_NS - 1), 0);
	assert_false(env_idle_yields(f->env, w, 0));
	/* An answer that comes before the first yield halves the count. */
	for (i = 0; i < 4; i++)
		wait_of(f, w, SWITCH_NS);
	assert_true(env_idle_yields(f->env, w, 0));
	for (i = 0; i < 2; i++)
		env_idle(f->env, w, 0);
	assert_false(env_idle_yields(f->env, w, 0));
	env_waiter_free(f->env, w);
}

/* How long an adaptive waiter looks before it sleeps. */
static uint64_t until_sleep(struct fixture *f, struct env_waiter *w)
{
	uint64_t begun = fake.now_ns;
	unsigned round = 0;

	while (env_idle(f->env, w, round) != ENV_IDLE_SLEEP && round < MANY)
		round++;
	return fake.now_ns - begun;
}

/* A yield that let another thread compute begins a hold: its core is wanted, it
 * is said, there is no yield, and a thread that may sleep does so sooner. */
static void test_hold(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w;
	uint64_t ns;

	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_ADAPTIVE, &w), 0);
	ns = until_sleep(f, w);
	assert_in_range(ns, LATER_NS, LATER_NS + 10 * LOOK_NS);
	wait_of(f, w, DEAR_NS - 1);
	assert_false(env_core_wanted(f->env, w));
	wait_of(f, w, DEAR_NS);
	assert_true(env_core_wanted(f->env, w));
	ns = until_sleep(f, w);
	assert_in_range(ns, SOON_NS, SOON_NS + 10 * LOOK_NS);
	fake.now_ns += HOLD_NS - 20000;
	assert_true(env_core_wanted(f->env, w));
	fake.now_ns += 20000;
	assert_false(env_core_wanted(f->env, w));
	ns = until_sleep(f, w);
	assert_in_range(ns, LATER_NS, LATER_NS + 10 * LOOK_NS);
	env_waiter_free(f->env, w);
}

/* ... and one that may not sleep naps, until the hold ends. */
static void test_naps(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w;
	unsigned round = 0;
	uint64_t begun;

	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_POLL, &w), 0);
	wait_of(f, w, DEAR_NS);
	begun = fake.now_ns;
	while (env_idle(f->env, w, round) == ENV_IDLE_AGAIN && round < MANY)
		round++;
	assert_in_range(fake.now_ns - begun, LATER_NS, LATER_NS + 10 * LOOK_NS);
	for (int i = 0; i < 20; i++)
		assert_int_equal(env_idle(f->env, w, ++round), ENV_IDLE_LATER);
	fake.now_ns += HOLD_NS;
	assert_int_equal(env_idle(f->env, w, ++round), ENV_IDLE_AGAIN);
	env_waiter_free(f->env, w);
}

/* --- signals and limits --------------------------------------------------- */

/* The only way to reach the waiter from a handler. */
static _Atomic(struct fixture *) on_signal;

static void handler(int sig)
{
	struct fixture *f = atomic_load(&on_signal);

	(void)sig;
	if (f)
		env_waiter_wake(f->env, f->w);
}

struct sleeper {
	pthread_t self;
	atomic_bool awake;
};

/* More than one: the first may come before the sleep begins. */
static void *send_signals(void *arg)
{
	struct sleeper *s = arg;

	while (!atomic_load(&s->awake)) {
		usleep(2000);
		pthread_kill(s->self, SIGUSR1);
	}
	return NULL;
}

/* A handler that wakes, and one that only interrupts: both end the sleep. */
static void test_signals(void **state)
{
	struct sigaction sa = {.sa_handler = handler}, old;
	struct fixture *f = *state;
	pthread_t t;
	int wakes;

	sigaction(SIGUSR1, &sa, &old);
	for (wakes = 0; wakes < 2; wakes++) {
		struct sleeper s = {.self = pthread_self()};
		int rc;

		atomic_store(&on_signal, wakes ? f : NULL);
		assert_int_equal(pthread_create(&t, NULL, send_signals, &s), 0);
		rc = sleep_for(f, patience_ns(30));
		atomic_store(&s.awake, true);
		pthread_join(t, NULL);
		assert_int_equal(rc, 0);
	}
	sigaction(SIGUSR1, &old, NULL);
}

static void test_fd_limit(void **state)
{
	struct rlimit old, low = {0};
	struct fixture *f = *state;
	struct env_waiter *w = NULL;
	int probe = dup(0), extra;

	assert_true(probe >= 0);
	close(probe);
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	/* No fd left, then one: the epoll fd comes and goes again. */
	for (extra = 0; extra < 2; extra++) {
		low.rlim_cur = (rlim_t)(probe + extra);
		setrlimit(RLIMIT_NOFILE, &low);
		assert_int_equal(env_waiter_new(f->env, ENV_WAIT_EVENT, &w),
				 -EMFILE);
		setrlimit(RLIMIT_NOFILE, &old);
		assert_null(w);
		assert_int_equal(fcntl(probe, F_GETFD), -1);
	}
}

/* Which descriptors the last look found: by the sleep, and without one. Where
 * more are ready than one look brings, each may be. */
static void test_saw(void **state)
{
	struct fixture *f = *state;
	enum {
		PIPES = 20
	};
	int p[PIPES][2], i;

	for (i = 0; i < PIPES; i++) {
		assert_int_equal(pipe(p[i]), 0);
		assert_int_equal(
			env_waiter_watch(f->env, f->w, p[i][0], EPOLLIN), 0);
	}
	assert_int_equal(write(p[3][1], "x", 1), 1);
	assert_int_equal(env_waiter_ready(f->env, f->w), 1);
	for (i = 0; i < PIPES; i++)
		assert_int_equal(env_waiter_saw(f->env, f->w, p[i][0]), i == 3);
	assert_int_equal(read(p[3][0], &(char){0}, 1), 1);
	assert_int_equal(write(p[7][1], "x", 1), 1);
	env_waiter_arm(f->env, f->w);
	env_waiter_wake(f->env, f->w); /* its token is none of them */
	assert_int_equal(env_waiter_sleep(f->env, f->w, ENV_NEVER), 1);
	for (i = 0; i < PIPES; i++)
		assert_int_equal(env_waiter_saw(f->env, f->w, p[i][0]), i == 7);
	for (i = 0; i < PIPES; i++)
		assert_int_equal(write(p[i][1], "x", 1), 1);
	assert_int_equal(env_waiter_ready(f->env, f->w), 1);
	for (i = 0; i < PIPES; i++)
		assert_true(env_waiter_saw(f->env, f->w, p[i][0]));
	for (i = 0; i < PIPES; i++) {
		assert_int_equal(env_waiter_unwatch(f->env, f->w, p[i][0]), 0);
		close(p[i][0]);
		close(p[i][1]);
	}
}

/* Which ones: no more than asked for, and none is passed over for ever. */
static void test_ready_fds(void **state)
{
	struct fixture *f = *state;
	unsigned seen = 0;
	int pipes[4][2], fds[4], n;

	for (int i = 0; i < 4; i++) {
		assert_int_equal(pipe(pipes[i]), 0);
		assert_int_equal(env_waiter_watch(f->env, f->w, pipes[i][0],
						  EPOLLIN),
				 0);
	}
	assert_int_equal(env_waiter_ready_fds(f->env, f->w, fds, 4), 0);
	assert_int_equal(write(pipes[2][1], "x", 1), 1);
	assert_int_equal(env_waiter_ready_fds(f->env, f->w, fds, 4), 1);
	assert_int_equal(fds[0], pipes[2][0]);
	for (int i = 0; i < 4; i++)
		assert_int_equal(write(pipes[i][1], "x", 1), 1);
	assert_int_equal(env_waiter_ready_fds(f->env, f->w, fds, 4), 4);
	for (int round = 0; round < 4; round++) {
		n = env_waiter_ready_fds(f->env, f->w, fds, 2);
		assert_int_equal(n, 2);
		for (int k = 0; k < n; k++)
			for (int i = 0; i < 4; i++)
				seen |= (fds[k] == pipes[i][0]) << i;
	}
	assert_int_equal(seen, 15);
	for (int i = 0; i < 4; i++) {
		env_waiter_unwatch(f->env, f->w, pipes[i][0]);
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
	assert_int_equal(env_waiter_ready_fds(f->env, f->w, fds, 4), 0);
}

/* A child knows at once that it is one; its parent is none. */
static void test_forked(void **state)
{
	struct fixture *f = *state;
	int status;
	pid_t pid;

	assert_false(env_forked(f->env));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(env_forked(f->env) ? 42 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 42);
	assert_false(env_forked(f->env));
}

/* --- beside one who computes -------------------------------------------- */

struct burner {
	cpu_set_t cpu;
	atomic_bool stop;
	atomic_ullong used_ns; /* 0: it does not compute yet */
};

static uint64_t thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void *burn(void *arg)
{
	struct burner *b = arg;
	uint64_t begun;

	pthread_setaffinity_np(pthread_self(), sizeof(b->cpu), &b->cpu);
	begun = thread_ns();
	while (!atomic_load(&b->stop))
		atomic_store(&b->used_ns, thread_ns() - begun);
	return NULL;
}

/* Shares of a core are the kernel's among threads that it sees. */
static void needs_cores(void)
{
	if (!getenv("SKEIN_TEST_VALGRIND"))
		return;
	print_message("valgrind shares its one core out by itself\n");
	skip();
}

/* Pins the caller to its first core, and beside it a thread that computes: it
 * does, when this returns. */
static pthread_t burner_start(struct burner *b, cpu_set_t *old)
{
	pthread_t t;
	int cpu = 0;

	pthread_getaffinity_np(pthread_self(), sizeof(*old), old);
	while (!CPU_ISSET(cpu, old))
		cpu++;
	CPU_ZERO(&b->cpu);
	CPU_SET(cpu, &b->cpu);
	pthread_setaffinity_np(pthread_self(), sizeof(b->cpu), &b->cpu);
	assert_int_equal(pthread_create(&t, NULL, burn, b), 0);
	while (!atomic_load(&b->used_ns))
		sched_yield();
	return t;
}

static void burner_stop(struct burner *b, pthread_t t, const cpu_set_t *old)
{
	atomic_store(&b->stop, true);
	pthread_join(t, NULL);
	pthread_setaffinity_np(pthread_self(), sizeof(*old), old);
}

static long switches(bool voluntary)
{
	struct rusage use;

	getrusage(RUSAGE_THREAD, &use);
	return voluntary ? use.ru_nvcsw : use.ru_nivcsw;
}

#define NAPS 10
#define BURNT_NS (300 * MS)

/* A thread that computes gives nothing back for a yield, and a share of the
 * core that is spent on polling is not there when an answer comes: a poller
 * that waits for long naps beside it. A ready descriptor ends a nap. */
static void test_poll_beside_burner(void **state)
{
	int fd = eventfd(1, EFD_CLOEXEC);
	struct fixture *f = *state;
	struct env_waiter *w;
	struct burner b = {.stop = false};
	uint64_t begun, mine, end, used;
	unsigned round = 0;
	long was, naps, more;
	cpu_set_t old;
	pthread_t t;

	needs_cores();
	assert_true(fd >= 0);
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_POLL, &w), 0);
	t = burner_start(&b, &old);
	begun = thread_ns();
	was = switches(true);
	used = atomic_load(&b.used_ns);
	end = env_now_ns(f->env) + patience_ns(60);
	/* The shares are looked at when the other has had time to compute. */
	while ((switches(true) - was < NAPS ||
		atomic_load(&b.used_ns) - used < BURNT_NS) &&
	       env_now_ns(f->env) < end)
		assert_int_not_equal(env_idle(f->env, w, round++),
				     ENV_IDLE_SLEEP);
	mine = thread_ns() - begun;
	used = atomic_load(&b.used_ns) - used;
	naps = switches(true) - was;
	assert_int_equal(env_waiter_watch(f->env, w, fd, EPOLLIN), 0);
	was = switches(true);
	for (int i = 0; i < 20; i++)
		env_idle(f->env, w, round++);
	more = switches(true) - was;
	burner_stop(&b, t, &old);
	env_waiter_free(f->env, w);
	close(fd);
	print_message("%ld naps, %.0f ms of the other's %.0f\n", naps,
		      (double)mine / 1e6, (double)used / 1e6);
	patience_met(naps >= NAPS && used >= BURNT_NS, 60,
		     "naps, and the other thread's share of the core");
	/* twenty, if naps went on */
	assert_true(more <= 5);
	/* half would be its share */
	assert_true(mine < (mine + used) * 2 / 5);
}

/* ... and one that may sleep finds out that its core is wanted. */
static void test_sleep_beside_burner(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w;
	struct burner b = {.stop = false};
	unsigned round;
	cpu_set_t old;
	bool wanted;
	uint64_t end;
	pthread_t t;

	needs_cores();
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_ADAPTIVE, &w), 0);
	assert_false(env_core_wanted(f->env, w));
	t = burner_start(&b, &old);
	end = env_now_ns(f->env) + patience_ns(60);
	do {
		for (round = 0; env_idle(f->env, w, round) != ENV_IDLE_SLEEP;
		     round++)
			;
		wanted = env_core_wanted(f->env, w);
	} while (!wanted && env_now_ns(f->env) < end);
	burner_stop(&b, t, &old);
	env_waiter_free(f->env, w);
	patience_met(wanted, 60, "a yield that the other thread makes dear");
}

#define PREEMPTED 20
#define SPIN_LOOK_NS (500 * MS)
#define SPIN_LOOK_ROUNDS 4096

/* A thread that spins without yielding on a core that others want is told: it
 * has lost the core so often since the waiter looked, half a second ago by the
 * test's clock. */
static void test_spin_beside_burner(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w;
	struct burner b = {.stop = false};
	unsigned round = 0;
	int warnings = 0;
	cpu_set_t old;
	pthread_t t;
	long was;

	needs_cores();
	f->env->log = count_line;
	f->env->log_arg = &warnings;
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_SPIN, &w), 0);
	t = burner_start(&b, &old);
	fake.step_ns = 0;
	for (; round < SPIN_LOOK_ROUNDS; round++)
		env_idle(f->env, w, round); /* the first look */
	was = switches(false);
	while (switches(false) - was < PREEMPTED)
		env_idle(f->env, w, round++);
	/* not before its time */
	assert_int_equal(warnings, 0);
	fake.now_ns += SPIN_LOOK_NS;
	for (unsigned i = 0; i < SPIN_LOOK_ROUNDS; i++)
		env_idle(f->env, w, round++);
	burner_stop(&b, t, &old);
	env_waiter_free(f->env, w);
	assert_int_equal(warnings, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define FAKE(name) cmocka_unit_test_setup_teardown(name, setup_fake, teardown)
		T(test_deadlines),
		T(test_deadlines_ppoll),
		T(test_sleep_is_idle),
		T(test_wake_needs_arm),
		T(test_fds),
		T(test_no_lost_wake),
		T(test_idle_by_mode),
		T(test_spin_warns_once),
		T(test_spin_second),
		T(test_yield_on_one_core),
		FAKE(test_turns),
		FAKE(test_hold),
		FAKE(test_naps),
		T(test_poll_beside_burner),
		T(test_sleep_beside_burner),
		FAKE(test_spin_beside_burner),
		T(test_signals),
		T(test_fd_limit),
		T(test_ready_fds),
		T(test_saw),
		T(test_forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
