/* SPDX-License-Identifier: MIT */
/*
 * background.c - the background thread: it runs an engine that no other thread
 * runs, and gives way to each thread that wants to run it.
 */
#include "base/assert.h"
#include "env/engine/state.h"

#define BACK_NS (1000 * 1000ull)

static bool back_must_stop(void *arg)
{
	struct engine *e = arg;

	return atomic_load_explicit(&e->back_stop, memory_order_relaxed);
}

/* Sleeps until a leaving owner, or engine_background_stop(), wakes us. */
static void back_park(struct engine *e)
{
	atomic_store_explicit(&e->back_parked, true, memory_order_relaxed);
	/* The fence in here pairs with the one in engine_leave(). */
	env_waiter_arm(e->env, e->back_w);
	if (engine_is_free(e) || back_must_stop(e))
		env_waiter_disarm(e->env, e->back_w);
	else
		env_waiter_sleep(e->env, e->back_w, ENV_NEVER);
	atomic_store_explicit(&e->back_parked, false, memory_order_relaxed);
}

static void back_nap(struct engine *e)
{
	uint64_t deadline = env_now_ns(e->env) + BACK_NS;

	env_waiter_arm(e->env, e->back_w);
	if (back_must_stop(e))
		env_waiter_disarm(e->env, e->back_w);
	else
		env_waiter_sleep(e->env, e->back_w, deadline);
}

/* Waits until the engine is free and no thread has entered for BACK_NS. */
static void back_wait(struct engine *e)
{
	unsigned seen, now;

	seen = atomic_load_explicit(&e->lead.enters, memory_order_relaxed);
	while (!back_must_stop(e)) {
		back_nap(e);
		now = atomic_load_explicit(&e->lead.enters,
					   memory_order_relaxed);
		if (now == seen && engine_is_free(e))
			return;
		if (now == seen)
			back_park(e); /* one owner, for long */
		seen = now;
	}
}

static void back_main(void *arg)
{
	struct engine *e = arg;
	struct run run = {.done = back_must_stop,
			  .arg = e,
			  .deadline_ns = ENV_NEVER,
			  .gives_way = true};

	while (!back_must_stop(e)) {
		if (engine_try_enter(e)) {
			engine_run_rounds(e, &run);
			engine_leave(e);
		}
		back_wait(e);
	}
}

int engine_background_start(struct engine *e)
{
	int rc;

	skein_assert(!e->back);
	/* Kept until engine_free(): a thread that leaves may be about to wake
	 * the background thread that is just being stopped. */
	if (!e->back_w) {
		rc = env_waiter_new(e->env, ENV_WAIT_EVENT, &e->back_w);
		if (rc)
			return rc;
	}
	atomic_store(&e->back_stop, false);
	/* Before it can own anything. */
	atomic_store(&e->has_back, true);
	rc = env_thread_start(e->env, "skein-engine", back_main, e, &e->back);
	if (rc)
		atomic_store(&e->has_back, false);
	return rc;
}

void engine_background_stop(struct engine *e)
{
	if (!e->back)
		return;
	/* The wakes carry the fence that orders this before them. */
	atomic_store_explicit(&e->back_stop, true, memory_order_release);
	env_waiter_wake(e->env, e->w);
	env_waiter_wake(e->env, e->back_w);
	env_thread_join(e->env, e->back);
	e->back = NULL;
	atomic_store(&e->has_back, false);
}

bool engine_has_background(struct engine *e)
{
	return atomic_load_explicit(&e->has_back, memory_order_relaxed);
}
