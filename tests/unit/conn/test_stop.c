/* SPDX-License-Identifier: MIT */
/*
 * test_stop.c - skein_stop: ends runs of engines from signal handlers and
 * other threads, asleep or not, and may be set when they are long gone.
 */
#include "unit/cm.h"

#include "conn/ctx.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <skein/skein.h>
#include <sys/time.h>

static struct skein_stop *stop;

static void on_alarm(int number)
{
	skein_stop_set(stop);
}

static struct skein_ctx *ctx_new(enum skein_wait wait)
{
	struct skein_ctx_attr attr = {
		.size = sizeof(attr), .device = "soft", .wait = wait};
	struct skein_ctx *ctx;

	assert_int_equal(skein_ctx_open(&attr, &ctx), 0);
	return ctx;
}

static void alarm_in(unsigned ms)
{
	struct itimerval t = {.it_value.tv_usec = ms * 1000};

	assert_int_equal(setitimer(ITIMER_REAL, &t, NULL), 0);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* From a handler, while the engine sleeps, polls; and once the context is
 * closed, where skein_engine_stop() would find the engine freed. */
static void test_signal(void **state)
{
	static const enum skein_wait waits[] = {SKEIN_WAIT_EVENT,
						SKEIN_WAIT_POLL};
	struct skein_ctx *ctx;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(skein_stop_new(&stop), 0);
		assert_false(skein_stop_is_set(stop));
		signal(SIGALRM, on_alarm);
		ctx = ctx_new(waits[i]);
		alarm_in(20);
		assert_int_equal(skein_engine_run_stop(skein_ctx_engine(ctx),
						       SKEIN_S(20), stop),
				 0);
		assert_true(skein_stop_is_set(stop));
		assert_true(readable(skein_stop_fd(stop)));
		/* It stays set. */
		assert_int_equal(skein_engine_run_stop(skein_ctx_engine(ctx),
						       SKEIN_S(20), stop),
				 0);
		/* And keeps nobody awake who does not run with it. */
		assert_false(readable(skein_engine_fd(skein_ctx_engine(ctx))));
		assert_int_equal(skein_engine_run(skein_ctx_engine(ctx),
						  SKEIN_MS(5)),
				 -ETIMEDOUT);
		skein_ctx_close(ctx);
		raise(SIGALRM);
		raise(SIGALRM);
		signal(SIGALRM, SIG_DFL);
		skein_stop_free(stop);
	}
}

static void test_timeout(void **state)
{
	struct skein_ctx *ctx = ctx_new(SKEIN_WAIT_EVENT);
	struct skein_engine *engine = skein_ctx_engine(ctx);

	assert_int_equal(skein_stop_new(&stop), 0);
	assert_int_equal(skein_engine_run_stop(engine, SKEIN_MS(5), stop),
			 -ETIMEDOUT);
	/* The engine's own stop ends it too. */
	skein_engine_stop(engine);
	assert_int_equal(skein_engine_run_stop(engine, SKEIN_S(20), stop), 0);
	assert_false(skein_stop_is_set(stop));
	/* Freed while the engine is there: not watched any more. */
	skein_stop_set(stop);
	skein_stop_free(stop);
	assert_int_equal(skein_engine_run(engine, SKEIN_MS(5)), -ETIMEDOUT);
	skein_ctx_close(ctx);
	skein_stop_free(NULL);
}

static void *run_one(void *arg)
{
	assert_int_equal(skein_engine_run_stop(arg, SKEIN_FOREVER, stop), 0);
	return NULL;
}

/* One stop, two engines, two threads each: all end. */
static void test_many(void **state)
{
	struct skein_ctx *ctx = ctx_new(SKEIN_WAIT_EVENT);
	struct skein_engine *engines[2] = {skein_ctx_engine(ctx)};
	pthread_t t[4];

	assert_int_equal(
		skein_engine_new(ctx, SKEIN_WAIT_ADAPTIVE, &engines[1]), 0);
	assert_int_equal(skein_stop_new(&stop), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, run_one,
						engines[i % 2]),
				 0);
	skein_stop_set(stop);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	skein_ctx_close(ctx);
	skein_stop_free(stop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signal),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
