/* SPDX-License-Identifier: MIT */
/*
 * engine_api.c - skein_engine_*: engines in the application's hands.
 */
#include "conn/ctx.h"
#include "conn/handle/thread.h"
#include "env/stop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

int skein_engine_new(struct skein_ctx *ctx, enum skein_wait wait,
		     struct skein_engine **engine)
{
	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	return eng_new(ctx, wait, engine);
}

int skein_engine_progress(struct skein_engine *eng)
{
	int moved;

	if (env_forked(eng->env) || engine_is_owner(eng->e))
		return 0;
	moved = conn_threads_reap(eng);
	if (!engine_try_enter(eng->e))
		return moved;
	moved += engine_poll(eng->e);
	engine_leave(eng->e);
	return moved;
}

static bool stopped(void *arg)
{
	struct skein_engine *eng = arg;

	return atomic_load_explicit(&eng->stop, memory_order_relaxed);
}

static uint64_t deadline_of(struct skein_engine *eng, uint64_t timeout_ns)
{
	return env_deadline(env_now_ns(eng->env), timeout_ns);
}

/* --- the stop that outlives engines ------------------------------------- */

struct skein_stop {
	struct env_stop stop;
};

int skein_stop_new(struct skein_stop **out)
{
	/* A stop belongs to no context, so it has no environment. */
	struct skein_stop *stop = calloc(1, sizeof(*stop));
	int rc;

	if (!stop)
		return -ENOMEM;
	rc = env_stop_init(&stop->stop);
	if (rc) {
		free(stop);
		return rc;
	}
	*out = stop;
	return 0;
}

void skein_stop_free(struct skein_stop *stop)
{
	if (!stop)
		return;
	env_stop_fini(&stop->stop);
	free(stop);
}

void skein_stop_set(struct skein_stop *stop)
{
	env_stop_set(&stop->stop);
}

bool skein_stop_is_set(const struct skein_stop *stop)
{
	return env_stop_is_set(&stop->stop);
}

int skein_stop_fd(const struct skein_stop *stop)
{
	return stop->stop.fd;
}

struct stop_run {
	struct skein_engine *eng;
	const struct skein_stop *stop; /* or NULL */
	uint64_t thread;
};

static bool stopped_either(void *arg)
{
	struct stop_run *run = arg;

	return (run->stop && skein_stop_is_set(run->stop)) || stopped(run->eng);
}

static bool has_reason(void *arg)
{
	struct stop_run *run = arg;

	return stopped_either(run) ||
	       conn_threads_filled(run->eng, run->thread);
}

/* Runs the engine. Replies for this thread that another thread's round has
 * brought are taken here too. */
static int run_engine(struct skein_engine *eng, const struct skein_stop *stop,
		      uint64_t timeout_ns)
{
	struct stop_run run = {eng, stop, env_thread_self(eng->env)};
	uint64_t deadline = deadline_of(eng, timeout_ns);
	int rc;

	do {
		rc = engine_run_until(eng->e, has_reason, &run, deadline);
		if (rc != -EDEADLK)
			conn_threads_reap(eng);
	} while (rc == 0 && !stopped_either(&run));
	if (rc == 0)
		atomic_store_explicit(&eng->stop, false, memory_order_relaxed);
	return rc;
}

int skein_engine_run(struct skein_engine *eng, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();

	if (env_forked(eng->env))
		return -SKEIN_EFORKED;
	return run_engine(eng, NULL, timeout_ns);
}

/* Threads that run the engine in turns with one stop share the watch. */
static int stop_watch(struct skein_engine *eng, const struct skein_stop *stop)
{
	int rc = 0;

	env_mutex_lock(eng->env, &eng->ctx->lock);
	if (!eng->stop_runs)
		rc = env_waiter_watch(eng->env, engine_waiter(eng->e),
				      stop->stop.fd, EPOLLIN);
	if (rc == 0)
		eng->stop_runs++;
	env_mutex_unlock(eng->env, &eng->ctx->lock);
	return rc;
}

static void stop_unwatch(struct skein_engine *eng,
			 const struct skein_stop *stop)
{
	env_mutex_lock(eng->env, &eng->ctx->lock);
	if (!--eng->stop_runs)
		env_waiter_unwatch(eng->env, engine_waiter(eng->e),
				   stop->stop.fd);
	env_mutex_unlock(eng->env, &eng->ctx->lock);
}

int skein_engine_run_stop(struct skein_engine *eng, uint64_t timeout_ns,
			  struct skein_stop *stop)
{
	ENV_HOLD_CANCEL();
	int rc;

	if (env_forked(eng->env))
		return -SKEIN_EFORKED;
	if (skein_stop_is_set(stop))
		return 0;
	rc = stop_watch(eng, stop);
	if (rc)
		return rc;
	rc = run_engine(eng, stop, timeout_ns);
	stop_unwatch(eng, stop);
	return rc;
}

void skein_engine_stop(struct skein_engine *eng)
{
	/* Relaxed: the flag orders nothing else; the kick has a fence. */
	atomic_store_explicit(&eng->stop, true, memory_order_relaxed);
	engine_kick(eng->e);
}

/* The waiter of the application's own loop. The engine's waiter does not do:
 * the thread that runs the engine drains it, and the loop would miss replies
 * that this thread's round brings. */
static struct env_waiter *app_waiter(struct skein_engine *eng)
{
	struct env_waiter *w = atomic_load(&eng->app);

	if (w || env_waiter_new(eng->env, ENV_WAIT_EVENT, &w))
		return w;
	if (env_waiter_watch(eng->env, w,
			     env_waiter_fd(eng->env, engine_waiter(eng->e)),
			     EPOLLIN)) {
		env_waiter_free(eng->env, w);
		return NULL;
	}
	atomic_store(&eng->app, w);
	return w;
}

int skein_engine_fd(struct skein_engine *eng)
{
	struct env_waiter *w;

	env_mutex_lock(eng->env, &eng->ctx->lock);
	w = app_waiter(eng);
	env_mutex_unlock(eng->env, &eng->ctx->lock);
	return w ? env_waiter_fd(eng->env, w) : -EMFILE;
}

int skein_engine_arm(struct skein_engine *eng)
{
	struct env_waiter *app = atomic_load(&eng->app);
	uint64_t deadline;
	int rc;

	if (env_forked(eng->env))
		return -SKEIN_EFORKED;
	if (app) {
		(void)env_waiter_ready(eng->env, app);
		env_waiter_arm(eng->env, app);
	}
	if (conn_threads_filled(eng, env_thread_self(eng->env)) ||
	    !engine_try_enter(eng->e))
		return 1;
	rc = engine_arm(eng->e, &deadline);
	engine_leave(eng->e);
	return rc;
}
