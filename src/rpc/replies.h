/* SPDX-License-Identifier: MIT */
/*
 * replies.h - what thread.c and replies.c have in common: how a call of a
 * thread is sent, and what the engine's owner does when one has ended.
 */
#ifndef SKEIN_RPC_REPLIES_H
#define SKEIN_RPC_REPLIES_H

#include "conn/ctx.h"
#include "rpc/lane_client.h"

/* One attempt, conn_check() being done: 0, -EAGAIN, or an error. stack: of a
 * caller who waits, for a large request. */
int rpc_thread_send(struct rpc_thread *s, struct rpc_client_req *r,
		    struct rpc_pending *stack);

/* One attempt to send n asynchronous calls, all of them small, in one message:
 * the first *sent of them left when it is 0. Errors as above, of the first. */
int rpc_thread_send_some(struct rpc_thread *s, struct rpc_client_req *r,
			 unsigned n, unsigned *sent);

/* The owner sends them as soon as there is room, at most COMBINER_BOUND, of a
 * thread that cannot wait. How many, from the first on, there is memory for. */
unsigned rpc_thread_leave_to_owner(struct rpc_thread *s,
				   const struct rpc_client_req *r, unsigned n);

/* By its thread, inside a done(): what it has gathered is older than what it
 * sends now. */
void rpc_thread_send_gathered(struct rpc_thread *s);

/* Owner: the done() of asynchronous calls, arg being an rpc_async. */
void rpc_async_done(void *arg, const struct skein_rpc_result *res);

/* The results that a thread was shown that ended inside a done(). */
void rpc_thread_drop_shown(struct rpc_thread *s);

/* Owner: one call of the thread's has ended without an answer. It may still be on
 * its way: the server must get beyond what has left by now. */
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

/* Owner: one has ended. Release pairs with the acquire in rpc_thread_idle(). */
static inline void rpc_thread_ended(struct rpc_thread *s)
{
	atomic_store_explicit(
		&s->ended,
		atomic_load_explicit(&s->ended, memory_order_relaxed) + 1,
		memory_order_release);
}

/* Owner: the thread has news. If it is the one that runs the engine, as one alone
 * is, it does not sleep. */
static inline void rpc_thread_wake(struct engine *e, struct conn_thread *rec)
{
	if (!engine_runs_in(e, atomic_load_explicit(&rec->thread,
						    memory_order_relaxed)))
		conn_thread_wake(rec);
}

/* Owner: behind the calls that a round has ended. */
static inline void rpc_lane_client_wake(struct rpc_lane_client *sh)
{
	struct conn_thread *rec = sh->unwoken;

	if (!rec)
		return;
	sh->unwoken = NULL;
	conn_thread_filled(rec);
}

/* Owner: replies has news. In a round its thread is told behind those of its
 * calls that end in a row. */
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

/* Whose memory a fetched result lies in: taken out of the client's hands. */
static inline struct rpc_buf *rpc_take_buf(struct rpc_conn *rc)
{
	struct rpc_buf *buf = rc->client.rx.result_buf;

	if (buf)
		rc->port.ops->buf_let(&rc->port, buf);
	rc->client.rx.result_buf = NULL;
	return buf;
}

#endif
