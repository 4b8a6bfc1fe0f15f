/* SPDX-License-Identifier: MIT */
/*
 * thread.h - a thread's place on a handle with lanes, at the end that opened it.
 *
 * A thread gets its thread record when it first asks for it, and leaves it when
 * it ends (env_thread_on_exit()) or the handle closes. A thread record whose
 * thread has ended is given to another thread when every module says that
 * nothing of the old one is under way: until then its number means the old one.
 * The memory of thread records stays until the handle closes, so whoever holds
 * a pointer may look at it.
 *
 * Finding the own thread record takes no lock and writes nothing: one compare
 * for the thread that came first, a look into a hash for the others.
 *
 * Thread rule: the thread whose thread record it is, but for what says otherwise.
 */
#ifndef SKEIN_CONN_THREAD_H
#define SKEIN_CONN_THREAD_H

#include <stdalign.h>
#include <stdatomic.h>

#include "conn/conn.h"
#include "conn/sendq.h"

#define CONN_THREADS_MAX 65535u

enum conn_thread_state {
	CONN_THREAD_FREE,
	CONN_THREAD_TAKEN, /* a thread's */
	CONN_THREAD_LEFT, /* its thread has ended; something may be under way */
};

struct conn_thread {
	/* Any thread reads these. */
	alignas(64) _Atomic(uint64_t) thread; /* env_thread_self(), 0: none */
	_Atomic(uint32_t) state;	      /* enum conn_thread_state */
	uint16_t number; /* 0 to CONN_THREADS_MAX - 1; constant */
	/* Where the thread sends now (it writes; the owner, while held is not
	 * zero), and where it should by the scheduler of threads (whoever runs
	 * that writes). Both begin as a lane drawn at random. */
	_Atomic(uint16_t) lane, lane_wanted;
	/* Until then a thread that is wanted elsewhere sends nothing, so that it
	 * can go; by whoever writes lane_wanted. */
	_Atomic(uint64_t) drain_ns;
	/* Requests that the thread has left to the owner: until these are sent
	 * it sends nothing else, which would overtake them. */
	_Atomic(uint32_t) held;
	struct skein_conn *handle;
	struct skein_conn *const *lanes; /* the handle's */
	/* Each module's own: kept when the thread record goes from thread to
	 * thread. */
	void *modules[CONN_MODULE_MAX];

	/* The thread's, and a leader's. */
	alignas(64) struct conn_req req;
	uint32_t wrs_begun; /* memory operations of the thread */
	/* The owner's: as many have ended. */
	alignas(64) _Atomic(uint32_t) wrs_ended;

	/* conn's own */
	alignas(64) struct env_exit on_exit;
	_Atomic(struct env_waiter *) waiter;
	struct list_node link;
	struct list_node filled; /* skein_engine.replies */
};

/* The calling thread's thread record. handle: any lane of it. 0, -EAGAIN when
 * CONN_THREADS_MAX threads have one, -ENOMEM, or what a module's seat_taken()
 * says. Any thread. */
int conn_thread(struct skein_conn *handle, struct conn_thread **rec);
/* The same in one compare for the thread that came first, else NULL. first:
 * conn_thread_first() of the handle, which stays as long as that. */
const _Atomic(struct conn_thread *) *conn_thread_first(
	struct skein_conn *handle);
static inline struct conn_thread *conn_thread_if_first(
	const _Atomic(struct conn_thread *) *first, struct skein_env *env)
{
	/* Acquire pairs with the release in thread.c. */
	struct conn_thread *rec =
		atomic_load_explicit(first, memory_order_acquire);

	return rec && atomic_load_explicit(&rec->thread,
					   memory_order_relaxed) ==
				       env_thread_self(env)
		       ? rec
		       : NULL;
}
/* The same if it has one, else NULL, and slower. Any thread. */
struct conn_thread *conn_thread_find(struct skein_conn *handle);

/* The lane on which the thread sends, by its index: lane, or lane_wanted from now
 * on if nothing of the thread is under way (FLOCK, 3.4.2: it has all responses of
 * the old QP before it sends on the new one). -EAGAIN: it waits for that, until
 * drain_ns; who has calls that take longer stays. */
int conn_thread_moved(struct conn_thread *rec);
static inline int conn_thread_lane(struct conn_thread *rec)
{
	uint16_t lane = atomic_load_explicit(&rec->lane, memory_order_relaxed);

	if (__builtin_expect(lane != atomic_load_explicit(&rec->lane_wanted,
							  memory_order_relaxed),
			     0))
		return conn_thread_moved(rec);
	return lane;
}
/* When a thread that got -EAGAIN may try again at the latest, as far as that is
 * for its lane to say; ENV_NEVER. */
uint64_t conn_thread_drained_ns(struct conn_thread *rec);
/* Must the thread wait with what it wants to send? */
static inline bool conn_thread_held(const struct conn_thread *rec)
{
	/* Acquire pairs with the release of who has sent them: lane is what
	 * the owner has made of it. */
	return atomic_load_explicit(&rec->held, memory_order_acquire) != 0;
}
/* Is nothing of its thread under way? Of the thread's own thread record, or one
 * whose thread has ended. */
bool conn_thread_idle(struct conn_thread *rec);

/* Where its thread sleeps; made when first asked for. Any thread may wake it:
 * conn_thread_wake() (nothing when there is no waiter yet). */
int conn_thread_waiter_new(struct conn_thread *rec, struct env_waiter **w);
static inline int conn_thread_waiter(struct conn_thread *rec,
				     struct env_waiter **w)
{
	/* Relaxed: its thread has made it. */
	*w = atomic_load_explicit(&rec->waiter, memory_order_relaxed);
	return __builtin_expect(*w != NULL, 1) ? 0
					       : conn_thread_waiter_new(rec, w);
}
void conn_thread_wake(struct conn_thread *rec);

/* Owner: its thread, which is another one, has replies to take by the modules'
 * seat_reap(). It is told wherever it may be: on its thread record's waiter, in
 * an engine's run, in a loop of its own. */
void conn_thread_filled(struct conn_thread *rec);
/* Runs seat_reap() of the calling thread's thread records that are filled. What
 * moved. */
int conn_threads_reap(struct skein_engine *eng);
int conn_replies_reap(struct skein_conn *conn); /* of its engine */
/* Has that thread such a thread record? Any thread. */
bool conn_threads_filled(struct skein_engine *eng, uint64_t thread);

/* The thread records that have ever been taken are 0 to conn_threads() - 1;
 * some may be free. Any thread; meant for the engine's owner. */
unsigned conn_threads(struct skein_conn *handle);
struct conn_thread *conn_thread_at(struct skein_conn *handle, unsigned number);
/* Grows with each thread that ends: a reason to look for CONN_THREAD_LEFT. */
unsigned conn_threads_left(struct skein_conn *handle);

#endif
