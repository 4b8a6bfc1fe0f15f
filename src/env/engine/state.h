/* SPDX-License-Identifier: MIT */
/*
 * state.h - what engine.c and background.c have in common: an engine's
 * insides. engine.c says which thread owns each field.
 */
#ifndef SKEIN_ENV_ENGINE_STATE_H
#define SKEIN_ENV_ENGINE_STATE_H

#include "env/engine/engine.h"

/* What a thread runs the engine for, or waits for its owner for, and until
 * when. */
struct run {
	bool (*done)(void *arg);
	void *arg;
	uint64_t deadline_ns;
	bool gives_way; /* to threads that wait in a place */
	/* NULL, or the thread's own, by which it idles: it lets go of the
	 * engine while it gives its core away. */
	struct env_waiter *w;
	unsigned round;	 /* fruitless ones, since the last fruit */
	bool sleep_next; /* env_idle() has said sleep: the next fruitless
			  * round does */
};

struct engine {
	struct engine_lead lead; /* first */
	struct skein_env *env;
	struct env_waiter *w; /* where the owner sleeps */
	enum env_wait_mode mode;

	atomic_bool kicked;
	_Atomic(struct engine_call *) calls; /* newest first */

	/* the owner's */
	struct list_node objs;
	struct list_node *cursor; /* the next object of this round */
	uint64_t now_ns;
	uint64_t next_beat_ns;
	uint64_t hot_until_ns;
	bool fruitless;		/* the last round moved nothing */
	uint64_t busy_since_ns; /* when the first round behind such a one began */
	bool fd_ready;		/* the waiter knows of one that is ready */

	struct env_mutex lock;
	struct list_node places; /* oldest first */
	struct list_node spare;	 /* places that nobody uses */
	atomic_uint n_places;

	struct env_thread *back; /* of the thread that starts and stops it */
	atomic_bool has_back;
	struct env_waiter *back_w;
	atomic_bool back_parked; /* sleeps until an owner leaves */
	atomic_bool back_stop;
};

static inline bool engine_is_free(struct engine *e)
{
	return !atomic_load_explicit(&e->lead.owner, memory_order_relaxed);
}

/* Rounds until run is over: 0, or -ETIMEDOUT; -EAGAIN: it is time to let go. The
 * caller owns the engine. */
int engine_run_rounds(struct engine *e, struct run *run);

#endif
