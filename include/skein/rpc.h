/* SPDX-License-Identifier: MIT */
/*
 * rpc.h - remote procedure calls over a connection.
 *
 * The server registers handlers by id; clients call them. Requests and
 * responses travel by RDMA WRITE into rings at the other end, which polls its
 * memory for them (a side that sleeps is woken by WRITE with immediate). Many
 * requests share one message. docs/protocol/rpc.md has the layout.
 *
 * Every call ends exactly once, as done, not sent, or unknown.
 */
#ifndef SKEIN_RPC_H
#define SKEIN_RPC_H

#include <skein/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skein_rpc_req; /* a request, as its handler has it */

/* The largest request or response: 4 GiB less one byte. One that does not fit
 * into a message is copied as a whole, by the thread that runs the engine. */
#define SKEIN_RPC_LEN_MAX UINT32_MAX

/*
 * Handles requests of one id. Runs in the thread that runs the connection's
 * engine, and must not block there, or in a thread of a pool. Returns 0: the
 * response built with skein_rpc_resp_buf() is sent (an empty one when there was
 * none); or a negative error, which becomes the caller's status.
 */
typedef int skein_rpc_fn(struct skein_rpc_req *req, void *arg);

/* Registers a handler, before the first listener is opened or at any later
 * time. -EEXIST when the id is taken. */
SKEIN_API int skein_rpc_handle(struct skein_ctx *ctx, uint16_t id,
			       skein_rpc_fn *fn, void *arg);

/*
 * Removes the handler of an id, also one of a pool. Calls that it has begun,
 * and calls that wait in its pool, finish; later ones get -SKEIN_ENOHANDLER.
 * Waits until no thread runs the handler any more, at most timeout_ns; then arg
 * is the application's again, and the id is free. Does not wait for requests
 * that the handler has deferred. -ETIMEDOUT: a thread still runs the handler;
 * the id stays taken until another call has returned 0. -ENOENT: the id has no
 * handler. -EDEADLK: called inside an engine, nothing was removed. Any thread
 * except one that runs the handler; runs engines.
 */
SKEIN_API int skein_rpc_handle_remove(struct skein_ctx *ctx, uint16_t id,
				      uint64_t timeout_ns);

/*
 * Answers that come later.
 *
 * skein_rpc_defer(), called in a handler, defers its request: *later has its
 * own copy of the bytes, valid until skein_rpc_answer(). Any thread may call
 * that, once for each request. The handler uses req no more; its response and
 * its return value do not count. skein_rpc_resp_buf(*later) builds the
 * response. Answers leave as they come, not in the order of requests. -ENOMEM;
 * -EALREADY: the request was deferred before.
 *
 * A connection has at most SKEIN_RPC_LATER (1024) such requests, of
 * SKEIN_RPC_LATER_LEN bytes (4 MiB) together, and takes no request beyond that.
 *
 * skein_rpc_answer(): status as a handler returns it. -ENOTCONN: the connection
 * has ended, and no answer is sent. In both cases *later is freed. A request
 * that is never answered holds up only its caller; its memory is freed with the
 * context. After skein_ctx_close() no request may be answered any more.
 */
SKEIN_API int skein_rpc_defer(struct skein_rpc_req *req,
			      struct skein_rpc_req **later);
SKEIN_API int skein_rpc_answer(struct skein_rpc_req *req, int status);

/* A pool of 1 to 64 threads that run handlers, so that slow handlers do not
 * hold up others. skein_rpc_pool_free() waits for running handlers and answers
 * requests that wait for a thread with -ECANCELED; then the pool's ids have no
 * handler any more. skein_ctx_close() does the same. Any thread, except the
 * pool's own. */
struct skein_rpc_pool;
SKEIN_API int skein_rpc_pool_new(struct skein_ctx *ctx, unsigned threads,
				 struct skein_rpc_pool **pool);
SKEIN_API void skein_rpc_pool_free(struct skein_rpc_pool *pool);

/* As skein_rpc_handle(), but fn runs in a thread of the pool, several at once,
 * and may block. -EINVAL for a pool of another context. */
SKEIN_API int skein_rpc_handle_workers(struct skein_ctx *ctx, uint16_t id,
				       skein_rpc_fn *fn, void *arg,
				       struct skein_rpc_pool *pool);

/* The request's bytes: in place in the ring, 8-byte aligned, valid until the
 * handler returns. */
SKEIN_API const void *skein_rpc_req_data(const struct skein_rpc_req *req);
SKEIN_API size_t skein_rpc_req_len(const struct skein_rpc_req *req);
/* NULL for a deferred request, and for requests in a pool: they may outlive the
 * connection. */
SKEIN_API struct skein_conn *skein_rpc_req_conn(const struct skein_rpc_req *);
/* skein_conn_shard() of the connection that brought the request, also for a
 * deferred one. */
SKEIN_API unsigned skein_rpc_req_shard(const struct skein_rpc_req *req);
/* The space that the caller reserved for the response. */
SKEIN_API size_t skein_rpc_resp_max(const struct skein_rpc_req *req);
/* A buffer of len bytes for the response, in the memory it is sent from (for a
 * deferred request it is copied there later). A second call replaces the buffer
 * and keeps the content up to the smaller size. NULL: len exceeds the space
 * that the caller reserved, or memory is short. */
SKEIN_API void *skein_rpc_resp_buf(struct skein_rpc_req *req, size_t len);

struct skein_rpc_result {
	enum skein_outcome outcome;
	int status;	  /* 0, or a negative error */
	const void *data; /* the response, when done with status 0 */
	size_t len;
};

/* data is valid until the callback returns. May make further calls. */
typedef void skein_rpc_done_fn(void *arg, const struct skein_rpc_result *res);

/*
 * Calls and waits, at most timeout_ns. The response is copied to resp
 * (resp_max bytes; for a larger one the outcome is done, with -EMSGSIZE).
 * Returns 0 or the status; result may be NULL (then only the status is known).
 * -ENOTCONN: not sent. -ETIMEDOUT: see result->outcome; returns in time even if
 * another thread that runs the engine is busy. Any thread; runs the
 * connection's engine.
 */
SKEIN_API int skein_rpc_call(struct skein_conn *conn, uint16_t id,
			     const void *req, size_t req_len, void *resp,
			     size_t resp_max, uint64_t timeout_ns,
			     struct skein_rpc_result *result);

/*
 * Starts a call. The request is copied before it returns. -EAGAIN: the ring or
 * the window of outstanding calls is full: make progress, try again.
 *
 * The call leaves at once while fewer than 4 calls of the thread are under way
 * on the connection (done() has not run), or another thread runs the engine.
 * Later ones of up to 256 bytes gather, and leave together: with the 16th,
 * before the thread's other calls of this file, or when it reaps or cancels
 * (memory operations overtake them); at the latest
 * when a thread next runs the engine, in any way. A thread that turns to other
 * work calls skein_engine_progress() first, or uses skein_rpc_call_batch(). A
 * call's timeout begins when it leaves. Calls that a done() makes on the same
 * connection leave together, after all done() of that round.
 *
 * With skein_conn_attr.latency_bound_ns a call waits for company, at most until
 * the thread next makes progress, reaps, runs the engine or makes a blocking
 * call; calls that are still waiting when the connection closes end as not
 * sent. There done() of calls that cannot leave may run inside this function.
 *
 * done() runs exactly once when 0 was returned, never otherwise (of calls that
 * could not be sent perhaps before that of older ones), in the thread
 * that made the call: inside its next progress, run, reap or blocking call on
 * the connection's engine. If that thread has ended, done() runs in the thread
 * that runs the engine. It runs at the latest when the connection closes.
 */
SKEIN_API int skein_rpc_call_async(struct skein_conn *conn, uint16_t id,
				   const void *req, size_t req_len,
				   size_t resp_max, uint64_t timeout_ns,
				   skein_rpc_done_fn *done, void *arg);

/* A call, as skein_rpc_call_async() has its arguments. */
struct skein_rpc_entry {
	uint16_t id;
	const void *req;
	size_t req_len;
	size_t resp_max;
	uint64_t timeout_ns;
	skein_rpc_done_fn *done;
	void *arg;
};

/*
 * Starts n calls, in their order, that leave at once, together: for a thread
 * that has several ready, as after skein_rpc_reap(). They share messages with each other
 * and with calls of other threads. Each is as one of skein_rpc_call_async().
 * Returns 0 when the first *begun calls have begun, at least one (none when n
 * is 0): there was no room for the others. -EAGAIN or another error: none has
 * begun. -EMSGSIZE: one of them is too long.
 */
SKEIN_API int skein_rpc_call_batch(struct skein_conn *conn,
				   const struct skein_rpc_entry *calls,
				   unsigned n, unsigned *begun);

/*
 * Gives up the oldest call under way that skein_rpc_call_async() started with
 * this done and arg. The call ends with -ECANCELED: not sent when it had not
 * left, else unknown; an answer that still comes is dropped. done() runs in the
 * thread where it would have run. -ENOENT: no such call, it has ended, or it has
 * not left the thread that made it. Any thread. Waits at most one second for
 * another thread that runs the engine: then -ETIMEDOUT, and the call ends when
 * that thread goes on.
 */
SKEIN_API int skein_rpc_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
			       void *arg);

/*
 * Runs done() of the calling thread's asynchronous calls on this connection
 * that have ended, and returns how many. If none has, but calls are under way,
 * waits for one, at most timeout_ns, and runs the connection's engine if no
 * other thread does. done() must not close the connection. -EOPNOTSUPP: an
 * accepted connection; -EDEADLK: it would have to wait inside the engine;
 * -SKEIN_EFORKED.
 */
SKEIN_API int skein_rpc_reap(struct skein_conn *conn, uint64_t timeout_ns);

#define SKEIN_RPC_DEGREES 16

/* Counters of one connection, both directions. */
struct skein_rpc_stats {
	size_t size;	/* sizeof(struct skein_rpc_stats), set by the caller */
	uint64_t calls; /* requests sent (client), served (server) */
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t doorbells; /* of a connection opened here: all posts */
	uint64_t bytes_sent;
	uint64_t head_reads;   /* READs of the peer's Head */
	uint64_t full;	       /* times a call met a full ring */
	uint64_t wakeups_sent; /* messages sent with an immediate */
	uint64_t deferred;     /* requests that were answered later */
	/* With several QPs. On an accepted connection all of them together:
	 * calls / messages_received is the degree of combining. */
	uint64_t credit_grants, credit_declines;
	uint32_t lanes, lanes_active;
	/* On a connection that was opened here: credits that are left (0 with
	 * one QP, which needs none), how often the scheduler has moved a thread
	 * to another lane, and how many messages had 1, 2, ... calls (the last:
	 * SKEIN_RPC_DEGREES or more), with their lower median. */
	uint64_t credits;
	uint64_t migrations;
	uint32_t degree_median;
	uint64_t degrees[SKEIN_RPC_DEGREES];
	/* Results that were fetched (server: left to be fetched). On a
	 * connection that was opened here: READs for them, READs that found
	 * none, and recalls. On an accepted one, resent: messages left to be
	 * fetched that were then replied. */
	uint64_t fetched, fetched_messages;
	uint64_t fetch_reads, fetch_empty, recalls, resent;
	/* Results that were replied; switches between the two (auto); on an
	 * accepted connection: all posts. */
	uint64_t replied, switches, posts;
	/* On a connection that was opened here. fetch_rests: READs for the rest
	 * of messages that were longer than F, the bytes of a first READ.
	 * fetch_len: F of the last one (of several QPs, the largest); how often
	 * it was chosen anew. fetch_tries: R, the READs that may find nothing
	 * before a slow answer counts against fetching. */
	uint64_t fetch_rests, fetch_len_changes;
	uint32_t fetch_len, fetch_tries;
	/* With a latency bound: calls that were measured (the oldest of each
	 * batch), how many of them took longer than the bound, how often too
	 * many did with batches of one call, and the largest batch of a thread
	 * now. */
	uint64_t timed, late, bound_unmet;
	uint32_t batch;
};
/* -EINVAL: stats->size is not set. -ENOTCONN. -ETIMEDOUT: another thread has
 * kept the engine for one second. */
SKEIN_API int skein_rpc_get_stats(struct skein_conn *conn,
				  struct skein_rpc_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
