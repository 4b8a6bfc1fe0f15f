/* SPDX-License-Identifier: MIT */
/*
 * test_env.c - clock, randomness, allocation, log, threads and mutexes of the
 * real environment; every allocation of an engine failing in turn.
 */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "env/engine/engine.h"
#include "env/env.h"
#include "unit/alloc_sweep.h"
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

static void test_clock(void **state)
{
	struct skein_env *env = *state;
	uint64_t t, last = env_now_ns(env);
	struct timespec ts;
	int i;

	for (i = 0; i < 100000; i++, last = t) {
		t = env_now_ns(env);
		assert_true(t >= last);
	}
	/* The clock of deadlines is CLOCK_MONOTONIC, which others read too. */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	t = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	assert_true(t >= last);
	assert_true(env_now_ns(env) >= t);
}

static void test_random(void **state)
{
	unsigned char buf[300], zeros[50] = {0};
	struct skein_env *env = *state;

	assert_true(env_random_u64(env) != env_random_u64(env));
	memset(buf, 0, sizeof(buf));
	env_random(env, buf, sizeof(buf) - 50);
	assert_memory_equal(buf + 250, zeros, 50);
	assert_memory_not_equal(buf + 200, zeros, 50);
	env_random(env, buf, 0);
}

static void test_alloc(void **state)
{
	struct skein_env *env = *state;
	char *s, zeros[200] = {0};
	void *p;

	p = env_alloc(env, sizeof(zeros));
	assert_memory_equal(p, zeros, sizeof(zeros));
	env_free(env, p);
	p = env_alloc(env, 0);
	assert_non_null(p);
	env_free(env, p);
	p = env_alloc_aligned(env, 64, sizeof(zeros));
	assert_int_equal((uintptr_t)p % 64, 0);
	assert_memory_equal(p, zeros, sizeof(zeros));
	env_free(env, p);
	assert_null(env_alloc_aligned(env, 64, SIZE_MAX - 3));
	s = env_strdup(env, "skein");
	assert_string_equal(s, "skein");
	env_free(env, s);
	env_free(env, NULL);
}

static int make_engine(struct skein_env *env, void *arg)
{
	struct engine *e = arg;
	int rc = engine_new(env, ENV_WAIT_ADAPTIVE, &e);

	if (rc) {
		assert_ptr_equal(e, arg); /* untouched on failure */
		return rc;
	}
	rc = engine_background_start(e);
	if (!rc)
		engine_background_stop(e);
	engine_free(e);
	return rc;
}

static int make_memory(struct skein_env *env, void *arg)
{
	void *p = arg;
	int fd = -7, rc = env_mem_alloc(env, "skein-test", 100, &fd, &p);

	if (rc) {
		assert_int_equal(fd, -7);
		assert_ptr_equal(p, arg);
		return rc;
	}
	env_mem_free(env, fd, p, 100);
	return 0;
}

static void test_alloc_sweep(void **state)
{
	assert_true(alloc_sweep(*state, make_engine, state) >= 6);
	assert_int_equal(alloc_sweep(*state, make_memory, state), 1);
}

struct lines {
	int n;
	enum env_log_level level;
	char text[2000];
};

static void keep_line(void *arg, enum env_log_level level, const char *msg)
{
	struct lines *l = arg;

	l->n++;
	l->level = level;
	assert_true(strlen(msg) < sizeof(l->text));
	strcpy(l->text, msg);
}

static void test_log(void **state)
{
	struct skein_env *env = *state;
	struct lines l = {0};
	char big[5000];

	env->log = keep_line;
	env->log_arg = &l;
	env->log_level = ENV_LOG_WARN;
	env_log(env, ENV_LOG_INFO, "too fine %d", 1);
	assert_int_equal(l.n, 0);
	env_log(env, ENV_LOG_WARN, "qp 0x%x", 17);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.level, ENV_LOG_WARN);
	assert_string_equal(l.text, "qp 0x11");
	memset(big, 'x', sizeof(big));
	big[sizeof(big) - 1] = 0;
	env_log(env, ENV_LOG_ERROR, "%s", big); /* cut, not overrun */
	assert_int_equal(l.n, 2);
	env->log = NULL;
	env_log(env, ENV_LOG_ERROR, "silence");
	assert_int_equal(l.n, 2);
}

static struct {
	struct env_ops ops;
	uint64_t now_ns;
} fake;

static uint64_t fake_now(struct skein_env *env)
{
	(void)env;
	return fake.now_ns;
}

/* Of many lines one, also at the beginning of time; then, when it is due again, one
 * that counts. */
static void test_log_rare(void **state)
{
	struct skein_env *env = *state;
	struct env_log_limit r = {0}, other = {0};
	struct lines l = {0};
	int i;

	fake.ops = *env->ops;
	fake.ops.now_ns = fake_now;
	fake.now_ns = 0;
	env->ops = &fake.ops;
	env->log = keep_line;
	env->log_arg = &l;
	for (i = 0; i < 1000; i++)
		env_log_rare(env, &r, ENV_LOG_WARN, "line %d", i);
	assert_int_equal(l.n, 1);
	assert_int_equal(l.level, ENV_LOG_WARN);
	assert_string_equal(l.text, "line 0");
	fake.now_ns = ENV_RARE_NS - 1;
	env_log_rare(env, &r, ENV_LOG_WARN, "line %d", i);
	assert_int_equal(l.n, 1);
	env_log_rare(env, &other, ENV_LOG_WARN, "another");
	assert_int_equal(l.n, 2);
	for (i = 0; i < 2; i++, fake.now_ns += ENV_RARE_NS) {
		fake.now_ns++;
		env_log_rare(env, &r, ENV_LOG_WARN, "later %d", i);
		assert_int_equal(l.n, 3 + i);
		assert_string_equal(
			l.text,
			i ? "later 1"
			  : "later 0 (1000 more since the last such line)");
	}
}

struct shared {
	struct skein_env *env;
	struct env_mutex lock;
	int count;
	uint64_t self;
	sigset_t mask;
};

static void count_up(void *arg)
{
	struct shared *s = arg;
	int i;

	for (i = 0; i < 20000; i++) {
		env_mutex_lock(s->env, &s->lock);
		s->count++;
		env_mutex_unlock(s->env, &s->lock);
	}
	env_mutex_lock(s->env, &s->lock);
	s->self = env_thread_self(s->env);
	pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
	env_mutex_unlock(s->env, &s->lock);
}

static void test_threads(void **state)
{
	struct shared s = {.env = *state};
	struct env_thread *a, *b;
	sigset_t mine;

	env_mutex_init(s.env, &s.lock);
	assert_int_equal(env_thread_start(s.env, "skein-test-with-a-long-name",
					  count_up, &s, &a),
			 0);
	assert_int_equal(env_thread_start(s.env, "b", count_up, &s, &b), 0);
	count_up(&s);
	assert_true(env_thread_self(s.env) != 0);
	env_thread_join(s.env, a);
	env_thread_join(s.env, b);
	assert_int_equal(s.count, 60000);
	env_mutex_fini(s.env, &s.lock);
	/* Whichever ended last: a thread of ours has all signals blocked, and the
	 * caller's own mask is as it was. */
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_false(sigismember(&mine, SIGTERM));
	if (s.self != env_thread_self(s.env))
		assert_true(sigismember(&s.mask, SIGTERM));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_clock),	     T(test_random),   T(test_alloc),
		T(test_log),	     T(test_log_rare), T(test_threads),
		T(test_alloc_sweep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
