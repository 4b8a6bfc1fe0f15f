/* SPDX-License-Identifier: MIT */
/*
 * gather.h - asynchronous calls that wait for a moment and leave together: what
 * replies.c and thread.c use of gather.c.
 *
 * Thread rule: the thread itself, unless a comment names the owner.
 */
#ifndef SKEIN_RPC_CLIENT_GATHER_H
#define SKEIN_RPC_CLIENT_GATHER_H

#include "rpc/client/replies.h"

/* A done() of the thread runs. */
static inline bool rpc_in_done(const struct rpc_thread *s)
{
	return s->gathers & ~RPC_FLAGS;
}

/* Does the thread's next call wait for others? With RPC_GATHER_FROM under way
 * it has company; but while another thread runs the engine this one need not
 * come back soon. */
static inline bool rpc_gathers_now(struct skein_conn *conn,
				   const struct rpc_thread *s)
{
	return __builtin_expect(s->gathers != 0, 0) ||
	       __builtin_expect(s->unreaped >= RPC_GATHER_FROM &&
					!engine_has_owner(conn_engine(conn)),
				0);
}

/* Makes s->gather. 0 or -ENOMEM. */
int rpc_gather_make(struct rpc_thread *s);
/* Another thread takes the record, which has s->gather: the tuner goes on. */
void rpc_gather_again(struct rpc_thread *s);

/* Where rpc_gathers_now(): puts the call behind the gathered ones, or sends it
 * behind them. 0, -EAGAIN, an error; 1: what was gathered has left, so the call
 * is to be looked at again. */
int rpc_gather(struct rpc_thread *s, struct rpc_client_req *r);

/* Sends what is gathered, which is older than what the thread sends now. */
void rpc_thread_send_gathered(struct rpc_thread *s);

/* With a latency bound: a call has ended. */
void rpc_gather_ended(struct rpc_thread *s, struct rpc_async *a);

/* The handle ends, or the thread has: ends the gathered calls as not sent. */
int rpc_thread_end_gathered(struct rpc_thread *s);
/* The same, by the owner, of a thread that has ended, in a done() or not. */
int rpc_thread_drop_gathered(struct rpc_thread *s);

#endif
