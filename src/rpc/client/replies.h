/* SPDX-License-Identifier: MIT */
/*
 * replies.h - what thread.c, replies.c and gather.c share: how a thread's call
 * is sent, and what the engine's owner does when a call has ended.
 *
 * Thread rule: the thread itself, unless a comment names the owner.
 */
#ifndef SKEIN_RPC_CLIENT_REPLIES_H
#define SKEIN_RPC_CLIENT_REPLIES_H

#include "conn/ctx.h"
#include "rpc/client/lane_client.h"

/* One attempt; the caller has done conn_check(). 0, -EAGAIN, or an error.
 * stack: of a blocking caller, for a large request. */
int rpc_thread_send(struct rpc_thread *s, struct rpc_client_req *r,
		    struct rpc_pending *stack);

/* One attempt to send n small asynchronous calls in one message. 0: the first
 * *sent of them left. Else the error of the first, as above. */
int rpc_thread_send_some(struct rpc_thread *s, struct rpc_client_req *r,
			 unsigned n, unsigned *sent);

/* The same for gathered calls, which were counted then, by the gather's own
 * node. own: this is the thread; else it is the owner. With gather->taken,
 * while RPC_POSTED is set. */
int rpc_thread_send_counted(struct rpc_thread *s, bool own,
			    struct rpc_client_req *r, unsigned n,
			    unsigned *sent);

/* Counts a call that is gathered. */
void rpc_thread_gathers(struct rpc_thread *s, size_t len);

/* Leaves at most COMBINER_BOUND gathered calls to the owner, which sends them as
 * soon as there is room. Returns how many, from the first on, there was memory
 * for. As rpc_thread_send_counted(). */
unsigned rpc_thread_leave_to_owner(struct rpc_thread *s,
				   const struct rpc_client_req *r, unsigned n);

/* Takes an rpc_async for the call, and room for its answer: 0 or -EAGAIN. */
int rpc_async_begin(struct rpc_thread *s, struct rpc_client_req *r);
/* Undoes that: the call was not sent. */
void rpc_async_undo(struct rpc_thread *s, struct rpc_async *a);
/* Both, around one attempt to send it. */
int rpc_thread_send_async(struct rpc_thread *s, struct rpc_client_req *r);
/* Wakes the thread that runs the engine: it may sleep, because it expects no
 * response. */
void rpc_tell_owner(struct skein_conn *conn);

/* Owner: the done() of asynchronous calls; arg is the rpc_async. */
void rpc_async_done(void *arg, const struct skein_rpc_result *res);

/* Frees the results that were shown to a done() in which the thread ended. */
void rpc_thread_drop_shown(struct rpc_thread *s);

/* Owner: a call of the thread has ended without an answer. Its message may
 * still be on its way: the server must read beyond all that has left by now. */
static inline void rpc_thread_unanswered(struct rpc_thread *s,
					 struct rpc_conn *rc,
					 enum skein_outcome outcome)
{
	if (outcome == SKEIN_UNKNOWN)
		atomic_store_explicit(
			&s->passed,
			atomic_load_explicit(&rc->client.published.req_valid,
					     memory_order_relaxed),
			memory_order_relaxed);
}

/* Owner: a call of the thread has ended. Release pairs with the acquire in
 * rpc_thread_idle(). */
static inline void rpc_thread_ended(struct rpc_thread *s)
{
	atomic_store_explicit(
		&s->ended,
		atomic_load_explicit(&s->ended, memory_order_relaxed) + 1,
		memory_order_release);
}

/* Owner: a call of the thread has ended: wakes the thread. A thread that runs
 * the engine does not sleep, so it needs no wake-up. */
static inline void rpc_thread_wake(struct engine *e, struct conn_thread *rec)
{
	if (!engine_runs_in(e, atomic_load_explicit(&rec->thread,
						    memory_order_relaxed)))
		conn_thread_wake(rec);
}

/* Owner: wakes the thread with new results, after the round has ended its
 * calls. */
static inline void rpc_lane_client_wake(struct rpc_lane_client *sh)
{
	struct conn_thread *rec = sh->unwoken;

	if (!rec)
		return;
	sh->unwoken = NULL;
	conn_thread_filled(rec);
}

/* Owner: the thread's replies have a new entry. In a round the thread is woken
 * once for the calls of it that end in a row. */
static inline void rpc_lane_client_replied(struct rpc_lane_client *sh,
					   struct conn_thread *rec)
{
	if (sh->unwoken == rec)
		return;
	rpc_lane_client_wake(sh);
	sh->unwoken = rec;
	if (!sh->in_round)
		rpc_lane_client_wake(sh);
}

/* Takes the memory of a fetched result from the client. NULL: the result is not
 * in memory of its own. */
static inline struct rpc_buf *rpc_take_buf(struct rpc_conn *rc)
{
	struct rpc_buf *buf = rc->client.rx.result_buf;

	if (buf)
		rc->port.ops->buf_let(&rc->port, buf);
	rc->client.rx.result_buf = NULL;
	return buf;
}

#endif
