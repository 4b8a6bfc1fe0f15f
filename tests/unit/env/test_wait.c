/* SPDX-License-Identifier: MIT */
/*
 * test_wait.c - waiters: no wake-up lost, none invented without end, deadlines
 * exact enough, fds level-triggered, idling by mode, descriptors exhausted.
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
 * must not become one of whole milliseconds each time (a rounded timeout). */
static void deadlines(struct fixture *f)
{
	uint64_t t, late, least = UINT64_MAX;
	int i;

	for (i = 0; i < 50; i++) {
		t = env_now_ns(f->env) + 200000;
		env_waiter_arm(f->env, f->w);
		assert_int_equal(env_waiter_sleep(f->env, f->w, t), -ETIMEDOUT);
		assert_true(env_now_ns(f->env) >= t);
		late = env_now_ns(f->env) - t;
		least = late < least ? late : least;
	}
	assert_true(least < MS / 2);
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
				      env_now_ns(f->env) + 5000 * MS);
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
	enum env_idle_verdict v = ENV_IDLE_AGAIN;
	uint64_t end = env_now_ns(f->env) + ns;
	struct env_waiter *w;

	assert_int_equal(env_waiter_new(f->env, mode, &w), 0);
	for (*rounds = 0; v != ENV_IDLE_SLEEP && env_now_ns(f->env) < end;)
		v = env_idle(f->env, w, (*rounds)++);
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
	assert_int_equal(idle_until(f, ENV_WAIT_ADAPTIVE, 1000 * MS, &rounds),
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
 * time slice (some ms): 2000 of them in well under 2000 slices. */
struct tag {
	struct fixture *f;
	atomic_int turn;
	cpu_set_t cpu;
	struct env_waiter *w; /* the first one's; NULL: one for this game */
	bool in_turns; /* after BRIEF_RUN waits below BRIEF rounds it said so */
};

#define BRIEF 8u
#define BRIEF_RUN 32

static void play(struct tag *g, int me)
{
	struct env_waiter *w = me ? NULL : g->w;
	int i, run = 0;
	unsigned round;

	pthread_setaffinity_np(pthread_self(), sizeof(g->cpu), &g->cpu);
	if (!w && env_waiter_new(g->f->env, ENV_WAIT_POLL, &w))
		return;
	for (i = me; i < 4000; i += 2) {
		for (round = 0; atomic_load(&g->turn) != i; round++)
			env_idle(g->f->env, w, round);
		atomic_store(&g->turn, i + 1);
		run = round < BRIEF ? run + 1 : 0;
		if (!me && run >= BRIEF_RUN)
			g->in_turns |= env_idle_yields(g->f->env, w, 0);
	}
	if (me || !g->w)
		env_waiter_free(g->f->env, w);
}

static void *play_second(void *arg)
{
	play(arg, 1);
	return NULL;
}

static void play_on_one_core(struct tag *g)
{
	cpu_set_t old;
	pthread_t t;
	int cpu = 0;

	atomic_store(&g->turn, 0);
	pthread_getaffinity_np(pthread_self(), sizeof(old), &old);
	while (!CPU_ISSET(cpu, &old))
		cpu++;
	CPU_ZERO(&g->cpu);
	CPU_SET(cpu, &g->cpu);
	assert_int_equal(pthread_create(&t, NULL, play_second, g), 0);
	play(g, 0);
	pthread_join(t, NULL);
	pthread_setaffinity_np(pthread_self(), sizeof(old), &old);
	assert_int_equal(atomic_load(&g->turn), 4000);
}

static void test_yield_on_one_core(void **state)
{
	struct tag g = {.f = *state};

	play_on_one_core(&g);
}

/* They find out that they share it: a wait begins with the yield, and hardly
 * looks in vain. Others on the core may spoil a game. Without the partner it looks
 * again before it yields, as any other. */
static void test_turns_on_one_core(void **state)
{
	struct tag g = {.f = *state};
	struct skein_env *env = g.f->env;
	uint64_t end = env_now_ns(env) + 30000 * MS;

	assert_int_equal(env_waiter_new(env, ENV_WAIT_POLL, &g.w), 0);
	assert_false(env_idle_yields(env, g.w, 0));
	while (!g.in_turns && env_now_ns(env) < end)
		play_on_one_core(&g);
	assert_true(g.in_turns);
	do {
		env_idle(env, g.w, 0);
	} while (env_idle_yields(env, g.w, 0) && env_now_ns(env) < end);
	assert_false(env_idle_yields(env, g.w, 0));
	env_waiter_free(env, g.w);
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
		rc = sleep_for(f, 10000 * MS);
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
	uint64_t used_ns;
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
		;
	b->used_ns = thread_ns() - begun;
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

/* Pins the caller to its first core, and beside it a thread that computes. */
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
	return t;
}

static void burner_stop(struct burner *b, pthread_t t, const cpu_set_t *old)
{
	atomic_store(&b->stop, true);
	pthread_join(t, NULL);
	pthread_setaffinity_np(pthread_self(), sizeof(*old), old);
}

/* A thread that computes gives nothing back for a yield, and a share of the
 * core that is spent on polling is not there when an answer comes: a poller
 * that waits for long naps beside it. A ready descriptor ends a nap. */
static void test_poll_beside_burner(void **state)
{
	int fd = eventfd(1, EFD_CLOEXEC);
	struct fixture *f = *state;
	struct env_waiter *w;
	struct burner b = {.stop = false};
	struct rusage was, is;
	uint64_t begun, mine, end;
	unsigned round = 0;
	cpu_set_t old;
	pthread_t t;
	long naps;

	needs_cores();
	assert_true(fd >= 0);
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_POLL, &w), 0);
	t = burner_start(&b, &old);
	begun = thread_ns();
	getrusage(RUSAGE_THREAD, &was);
	end = env_now_ns(f->env) + 1000 * MS;
	while (env_now_ns(f->env) < end)
		assert_int_not_equal(env_idle(f->env, w, round++),
				     ENV_IDLE_SLEEP);
	mine = thread_ns() - begun;
	getrusage(RUSAGE_THREAD, &is);
	naps = is.ru_nvcsw - was.ru_nvcsw;
	assert_int_equal(env_waiter_watch(f->env, w, fd, EPOLLIN), 0);
	getrusage(RUSAGE_THREAD, &was);
	for (int i = 0; i < 20; i++)
		env_idle(f->env, w, round++);
	getrusage(RUSAGE_THREAD, &is);
	burner_stop(&b, t, &old);
	env_waiter_free(f->env, w);
	close(fd);
	print_message("%ld naps, %.0f ms of the other's %.0f\n", naps,
		      (double)mine / 1e6, (double)b.used_ns / 1e6);
	/* a hundred; ten on a loaded machine */
	assert_true(naps >= 3);
	/* twenty, if naps went on */
	assert_true(is.ru_nvcsw - was.ru_nvcsw <= 5);
	/* half would be its share */
	assert_true(mine < (mine + b.used_ns) * 2 / 5);
}

#define HELD_WAITS 1001

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* ... and one that may sleep does so soon: its core is wanted, and it is said. */
static void test_sleep_beside_burner(void **state)
{
	static uint64_t used[HELD_WAITS];
	struct fixture *f = *state;
	struct env_waiter *w;
	struct burner b = {.stop = false};
	unsigned round, wanted = 0;
	cpu_set_t old;
	pthread_t t;

	needs_cores();
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_ADAPTIVE, &w), 0);
	assert_false(env_core_wanted(f->env, w));
	t = burner_start(&b, &old);
	/* The first ones yield, until that was dear. */
	for (int i = 0; i < HELD_WAITS; i++) {
		used[i] = thread_ns();
		for (round = 0; env_idle(f->env, w, round) != ENV_IDLE_SLEEP;
		     round++)
			;
		used[i] = thread_ns() - used[i];
		wanted += env_core_wanted(f->env, w);
	}
	burner_stop(&b, t, &old);
	env_waiter_free(f->env, w);
	qsort(used, HELD_WAITS, sizeof(used[0]), by_size);
	print_message("median of %d waits: %.1f us\n", HELD_WAITS,
		      (double)used[HELD_WAITS / 2] / 1e3);
	/* on a core of its own it looks for 30 us */
	assert_true(used[HELD_WAITS / 2] < 25000);
	assert_true(wanted > HELD_WAITS / 2);
}

/* A thread that spins without yielding on a core that others want is told. */
static void test_spin_beside_burner(void **state)
{
	struct fixture *f = *state;
	struct env_waiter *w;
	struct burner b = {.stop = false};
	unsigned round = 0;
	int warnings = 0;
	cpu_set_t old;
	uint64_t end;
	pthread_t t;

	needs_cores();
	f->env->log = count_line;
	f->env->log_arg = &warnings;
	assert_int_equal(env_waiter_new(f->env, ENV_WAIT_SPIN, &w), 0);
	t = burner_start(&b, &old);
	end = env_now_ns(f->env) + 20000 * MS;
	while (!warnings && env_now_ns(f->env) < end)
		env_idle(f->env, w, round++);
	burner_stop(&b, t, &old);
	env_waiter_free(f->env, w);
	assert_int_equal(warnings, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
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
		T(test_turns_on_one_core),
		T(test_poll_beside_burner),
		T(test_sleep_beside_burner),
		T(test_spin_beside_burner),
		T(test_signals),
		T(test_fd_limit),
		T(test_ready_fds),
		T(test_saw),
		T(test_forked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
