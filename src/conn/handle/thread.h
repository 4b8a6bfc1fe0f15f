/* SPDX-License-Identifier: MIT */
/*
 * thread.h - thread records: what a handle with lanes knows of each application
 * thread, at the end that opened the handle.
 *
 * A thread gets its record when it first asks for it, and leaves it when the
 * thread ends (env_thread_on_exit()) or the handle closes. The record of an
 * ended thread goes to another thread once every module says that nothing of
 * the old thread is under way. Until then its number means the old thread. The
 * memory of records stays until the handle closes: a pointer to one is safe to
 * read until then.
 *
 * A thread finds its own record without a lock or a write: by one compare for
 * the first thread, by a hash for the others.
 *
 * Thread rule: the record's own thread, except where a comment says otherwise.
 */
#ifndef SKEIN_CONN_HANDLE_THREAD_H
#define SKEIN_CONN_HANDLE_THREAD_H

#include <stdalign.h>
#include <stdatomic.h>

#include "conn/conn.h"
#include "conn/handle/sendq.h"

#define CONN_THREADS_MAX 65535u

enum conn_thread_state {
	CONN_THREAD_FREE,
	CONN_THREAD_TAKEN, /* belongs to a running thread */
	CONN_THREAD_LEFT, /* its thread has ended; something may be under way */
};

struct conn_thread {
	/* Any thread reads these. */
	alignas(64) _Atomic(uint64_t) thread; /* env_thread_self(), 0: none */
	_Atomic(uint32_t) state;	      /* enum conn_thread_state */
	uint16_t number; /* 0 to CONN_THREADS_MAX - 1; constant */
	/* lane: where the thread sends now. The thread writes it; while held is
	 * not zero, the engine's owner does. lane_wanted: where the thread
	 * scheduler wants it; the engine's owner writes it, as it runs the
	 * scheduler. Both begin as the same random lane. */
	_Atomic(uint16_t) lane, lane_wanted;
	/* Until then a thread with lane != lane_wanted sends nothing, so that
	 * its old lane drains. Written together with lane_wanted. */
	_Atomic(uint64_t) drain_ns;
	/* Requests that the thread has left to the engine's owner. Until the
	 * owner has sent them the thread sends nothing, which would overtake
	 * them. */
	_Atomic(uint32_t) held;
	struct skein_conn *handle;
	struct skein_conn *const *lanes; /* the handle's */
	/* Each module's state: stays when the record goes to another thread. */
	void *modules[CONN_MODULE_MAX];

	/* Written by the thread; a leader reads and answers req. */
	alignas(64) struct conn_req req;
	uint32_t wrs_begun; /* memory operations that the thread has begun */
	/* Written by the engine's owner: how many of them have ended. */
	alignas(64) _Atomic(uint32_t) wrs_ended;

	/* conn's own */
	alignas(64) struct env_exit on_exit;
	_Atomic(struct env_waiter *) waiter;
	struct list_node link;
	struct list_node filled; /* skein_engine.replies */
};

/* The calling thread's record, made at the first call. handle: any lane of it.
 * 0, -EAGAIN when CONN_THREADS_MAX threads have one, -ENOMEM, or the error of a
 * module's thread_taken(). Any thread. */
int conn_thread(struct skein_conn *handle, struct conn_thread **rec);
/* The same in one compare for the first thread, NULL for any other. first:
 * conn_thread_first(handle), valid as long as the handle. */
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
/* The calling thread's record, or NULL if it has none. Slower. Any thread. */
struct conn_thread *conn_thread_find(struct skein_conn *handle);

/* The index of the lane on which the thread sends. The thread moves to
 * lane_wanted once nothing of it is under way (FLOCK, 3.4.2: it has all
 * responses of the old QP before it sends on the new one). -EAGAIN: something
 * is under way, and drain_ns has not come: the thread sends nothing. After
 * drain_ns a thread with longer calls stays on its lane. */
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
/* When a thread that got -EAGAIN from conn_thread_lane() may send again at the
 * latest; ENV_NEVER when it need not wait for a change of lanes. */
uint64_t conn_thread_drained_ns(struct conn_thread *rec);
/* Has the engine's owner still to send requests of this thread? Then the thread
 * sends nothing. */
static inline bool conn_thread_held(const struct conn_thread *rec)
{
	/* Acquire pairs with the owner's release when it has sent them: a
	 * thread that reads 0 also sees the lane that the owner has set. */
	return atomic_load_explicit(&rec->held, memory_order_acquire) != 0;
}
/* Is nothing of the record's thread under way? Called by that thread, or after
 * it has ended. */
bool conn_thread_idle(struct conn_thread *rec);

/* The waiter on which the record's thread sleeps; made at the first call. Any
 * thread may call conn_thread_wake(), which does nothing before that. */
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

/* Engine's owner: another thread, the record's, has replies to take by the
 * modules' thread_reap(). Wakes it wherever it sleeps: on its record's waiter,
 * in an engine's run, or in a loop of the application. */
void conn_thread_filled(struct conn_thread *rec);
/* Runs thread_reap() for the calling thread's records that have replies: how
 * many moved. */
int conn_threads_reap(struct skein_engine *eng);
int conn_replies_reap(struct skein_conn *conn); /* of its engine */
/* Has `thread` a record with replies to take? Any thread. */
bool conn_threads_filled(struct skein_engine *eng, uint64_t thread);

/* Records that exist have the numbers 0 to conn_threads() - 1; some may be
 * free. Any thread; meant for the engine's owner. */
unsigned conn_threads(struct skein_conn *handle);
struct conn_thread *conn_thread_at(struct skein_conn *handle, unsigned number);
/* Counts threads that have ended: when it grows, look for CONN_THREAD_LEFT. */
unsigned conn_threads_left(struct skein_conn *handle);

#endif
