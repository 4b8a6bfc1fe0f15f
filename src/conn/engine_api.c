/* SPDX-License-Identifier: MIT */
/*
 * engine_api.c - skein_engine_*: engines in the application's hands.
 */
#include "conn/ctx.h"

#include <errno.h>

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

	if (env_forked(eng->env))
		return 0;
	if (!engine_try_enter(eng->e))
		return 0;
	moved = engine_poll(eng->e);
	engine_leave(eng->e);
	return moved;
}

static bool stopped(void *arg)
{
	struct skein_engine *eng = arg;

	return atomic_load_explicit(&eng->stop, memory_order_relaxed);
}

int skein_engine_run(struct skein_engine *eng, uint64_t timeout_ns)
{
	uint64_t now = env_now_ns(eng->env), deadline = ENV_NEVER;
	int rc;

	if (env_forked(eng->env))
		return -SKEIN_EFORKED;
	if (timeout_ns < ENV_NEVER - now)
		deadline = now + timeout_ns;
	rc = engine_run_until(eng->e, stopped, eng, deadline);
	if (rc == 0)
		atomic_store_explicit(&eng->stop, false, memory_order_relaxed);
	return rc;
}

void skein_engine_stop(struct skein_engine *eng)
{
	/* Nothing is published by it but itself; the kick carries a fence. */
	atomic_store_explicit(&eng->stop, true, memory_order_relaxed);
	engine_kick(eng->e);
}

int skein_engine_fd(struct skein_engine *eng)
{
	return env_waiter_fd(eng->env, engine_waiter(eng->e));
}

int skein_engine_arm(struct skein_engine *eng)
{
	uint64_t deadline;
	int rc;

	if (env_forked(eng->env))
		return -SKEIN_EFORKED;
	if (!engine_try_enter(eng->e))
		return 1;
	rc = engine_arm(eng->e, &deadline);
	engine_leave(eng->e);
	return rc;
}
