/* SPDX-License-Identifier: MIT */
/*
 * engine.h - which thread makes progress, and when it may sleep.
 *
 * Modules create no threads. They register progress objects with an engine;
 * exactly one thread runs an engine at a time: a waiting caller, the
 * application through skein_engine_progress(), or a background thread. That
 * thread polls the objects in the order in which they were added. An object may
 * add or delete objects (itself too) from inside poll().
 *
 * Time is read at most once a round; of rounds that find nothing and follow
 * each other without a pause, in every eighth. System calls happen on the slow
 * beat only (ENGINE_BEAT_NS, or every round in which a watched fd is known
 * ready).
 *
 * Thread rule: engine_enter()/engine_leave() bracket ownership. engine_add(),
 * engine_del() and all state of the objects belong to the owner. engine_kick()
 * and engine_post() may be called by any thread. A thread that runs an engine, or
 * waits for it, is not cancelled meanwhile: the public calls see to that, each
 * from its entry to its return (env_cancel_off()).
 */
#ifndef SKEIN_ENV_ENGINE_ENGINE_H
#define SKEIN_ENV_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "base/list.h"
#include "env/env.h"

#define ENGINE_BEAT_NS (5 * 1000 * 1000ull)

struct engine;
struct engine_obj;

struct engine_obj_ops {
	/* One round of work at time now_ns. Returns how many things moved;
	 * 0 is a fruitless round. Never blocks. */
	int (*poll)(struct engine_obj *obj, uint64_t now_ns);
	/* Before a sleep: request notification from every source that poll()
	 * looks at. Returns 0 when armed, 1 when there is work or the switch
	 * to event mode is still under way: the engine polls on. May be NULL
	 * for an object that only has fds or deadlines. Neither adds nor
	 * deletes objects. */
	int (*arm)(struct engine_obj *obj);
	/* The time at which poll() must run although nothing happened, or
	 * ENV_NEVER. May be NULL. */
	uint64_t (*next_deadline)(struct engine_obj *obj);
	/* The slow beat: poll() for what costs a system call to look at
	 * (control sockets). Called when a watched fd is ready and at least
	 * every ENGINE_BEAT_NS. Returns as poll(). May be NULL. */
	int (*beat)(struct engine_obj *obj, uint64_t now_ns);
	/* Is all that poll() may find announced by a watched fd, a wake-up or a
	 * deadline? When all objects say so, the owner sleeps in ENV_WAIT_POLL
	 * too. NULL: no. */
	bool (*by_fd)(struct engine_obj *obj);
};

struct engine_obj {
	const struct engine_obj_ops *ops;
	struct list_node link; /* the engine's; zeroed when not added */
};

/* A closure that the engine's owner runs once. Its memory is the poster's, and
 * must stay until it has run. */
struct engine_call {
	void (*fn)(struct engine_call *call);
	struct engine_call *next;
};

/* The first field of an engine: its owner, so that the functions below read it
 * without a call. Only they and engine.c use it. */
struct engine_lead {
	struct skein_env *env;
	_Atomic(uint64_t) owner; /* env_thread_self(), 0: free */
	atomic_uint enters;	 /* counts ownerships; written by owners */
};

int engine_new(struct skein_env *env, enum env_wait_mode mode,
	       struct engine **e);
/* All objects have been deleted and the background thread stopped. */
void engine_free(struct engine *e);

struct env_waiter *engine_waiter(struct engine *e);
/* The time of the current round. Owner only. */
uint64_t engine_now_ns(struct engine *e);

/* Becomes the owner: true at once, or false when another thread is. Recursive
 * entry by the owner is not allowed. */
static inline bool engine_try_enter(struct engine *e)
{
	struct engine_lead *l = (struct engine_lead *)(void *)e;
	uint64_t nobody = 0;

	/* The plain load first: a thread that looks often must not take the
	 * line from the owner. Acquire pairs with the release in
	 * engine_leave(): all that the last owner wrote is seen. */
	if (atomic_load_explicit(&l->owner, memory_order_relaxed))
		return false;
	if (!atomic_compare_exchange_strong_explicit(
		    &l->owner, &nobody, env_thread_self(l->env),
		    memory_order_acquire, memory_order_relaxed))
		return false;
	/* Only owners write it: no locked operation is needed to count. */
	atomic_store_explicit(
		&l->enters,
		atomic_load_explicit(&l->enters, memory_order_relaxed) + 1,
		memory_order_relaxed);
	return true;
}
/* Waits for ownership (env_idle, then sleeps until the owner leaves), at most
 * until deadline_ns: 0, -ETIMEDOUT, or -EDEADLK when the caller has it. */
int engine_enter(struct engine *e, uint64_t deadline_ns);
void engine_leave(struct engine *e);
static inline bool engine_is_owner(struct engine *e)
{
	struct engine_lead *l = (struct engine_lead *)(void *)e;

	return atomic_load_explicit(&l->owner, memory_order_relaxed) ==
	       env_thread_self(l->env);
}

/* Any thread: does a thread run the engine at this moment? */
static inline bool engine_has_owner(struct engine *e)
{
	struct engine_lead *l = (struct engine_lead *)(void *)e;

	return atomic_load_explicit(&l->owner, memory_order_relaxed) != 0;
}

/* Owner: is this the thread of that name? Cheaper than looking up the name of
 * the calling thread. */
static inline bool engine_runs_in(struct engine *e, uint64_t thread)
{
	struct engine_lead *l = (struct engine_lead *)(void *)e;

	return atomic_load_explicit(&l->owner, memory_order_relaxed) == thread;
}

/* Owner only. */
void engine_add(struct engine *e, struct engine_obj *obj);
void engine_del(struct engine *e, struct engine_obj *obj);

/* In beat(): did the last look at the watched fds find this one ready? Owner
 * only. */
bool engine_fd_ready(struct engine *e, int fd);
/* How long every round has found work: the owner lacks processor time. Owner
 * only. */
uint64_t engine_busy_ns(struct engine *e);

/* From a beat: the other end of a socket is about to answer. Beats stay close
 * for another ENGINE_BEAT_NS. Owner only. */
void engine_expect(struct engine *e);

/* One round over all objects. Owner only. Returns what moved. */
int engine_poll(struct engine *e);

/* Until when a thread runs the engine, and how. */
struct engine_run {
	/* Called often, by the calling thread and by the owner (which looks
	 * after waiting threads), never after the return; it must be cheap and
	 * safe without ownership (read one atomic), and must not call the
	 * engine. Code that makes it true outside a round calls engine_kick()
	 * after. */
	bool (*done)(void *arg);
	void *arg;
	uint64_t deadline_ns;
	/* Not 0: the timeout, instead of deadline_ns. It saves a look at the
	 * clock if no other thread runs the engine and done() is true after the
	 * first round. That round is run in any case. */
	uint64_t timeout_ns;
	/* NULL, or a waiter of the thread's own. Then the engine's owner does
	 * not check this thread's done(): the thread that makes done() true
	 * must wake w afterwards. As owner this thread idles by w, and it
	 * releases the engine while it gives its core away: so of many threads
	 * on one core, the thread that runs looks for answers. */
	struct env_waiter *w;
	/* The caller has entered, outside a round; it has left on return. One
	 * round is run in any case. */
	bool entered;
};

/*
 * Runs rounds until how->done(arg) is true, or the deadline. Takes ownership when
 * no other thread has it, else waits for the owner (or for done) without it, and
 * takes over when the owner leaves. 0, -ETIMEDOUT, or -EDEADLK when called from
 * inside a round.
 */
int engine_run(struct engine *e, const struct engine_run *how);

/* The usual run: done(arg), or the deadline. */
static inline int engine_run_until(struct engine *e, bool (*done)(void *arg),
				   void *arg, uint64_t deadline_ns)
{
	struct engine_run how = {
		.done = done, .arg = arg, .deadline_ns = deadline_ns};

	return engine_run(e, &how);
}

/*
 * For an application with an event loop of its own, which owns the engine: arms
 * everything and says until when it may sleep (ENV_NEVER: for ever) on
 * env_waiter_fd(engine_waiter(e)); then engine_disarm(), and a round. Returns 0
 * armed, or 1 (disarmed) when there is work: run a round at once.
 */
int engine_arm(struct engine *e, uint64_t *deadline_ns);
void engine_disarm(struct engine *e);

/* Wakes the engine's sleeper so that it runs a round. Any thread. */
void engine_kick(struct engine *e);
/* Hands a closure to the owner: runs in a coming round. Any thread. */
void engine_post(struct engine *e, struct engine_call *call);

/* Starts a thread that runs the engine while no other thread does. It gives way
 * to callers at once, and comes back a millisecond or two after the last caller
 * has left. */
int engine_background_start(struct engine *e);
void engine_background_stop(struct engine *e);
/* Any thread; asked by a thread that can leave work to the owner by
 * engine_post(). */
bool engine_has_background(struct engine *e);

#endif
