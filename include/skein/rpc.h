/* SPDX-License-Identifier: MIT */
/*
 * rpc.h - remote procedure calls over a connection.
 *
 * The server registers handlers by id; clients call them. Requests and
 * responses travel by RDMA WRITE into rings at the other end and are found by
 * polling memory (or, when the waiting side sleeps, by WRITE with immediate).
 * Many requests share one message. The message layout stands in
 * docs/protocol/rpc.md.
 *
 * Every call ends exactly once, as done, not sent, or unknown.
 */
#ifndef SKEIN_RPC_H
#define SKEIN_RPC_H

#include <skein/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skein_rpc_req; /* a request in its handler's hands */

/* The largest request or response: 4 GiB less one byte. What does not fit into a
 * message is copied, as a whole and by the thread that runs the engine. */
#define SKEIN_RPC_LEN_MAX UINT32_MAX

/*
 * Handles requests of one id. Runs in the thread that runs the connection's
 * engine, and must not block, or in a pool's. Returns 0: the response built with
 * skein_rpc_resp_buf() is sent (an empty one when there was none); a negative
 * error: that error is the caller's status.
 */
typedef int skein_rpc_fn(struct skein_rpc_req *req, void *arg);

/* Registers a handler, before the first listener is opened or at any later
 * time. -EEXIST when the id is taken. */
SKEIN_API int skein_rpc_handle(struct skein_ctx *ctx, uint16_t id,
			       skein_rpc_fn *fn, void *arg);

/*
 * Removes the handler of an id, a pool's too: calls that it has begun, or that wait
 * in its pool, finish; later ones are answered with -SKEIN_ENOHANDLER. Waits until
 * no thread runs it any more, at most timeout_ns; then arg is the application's
 * again, and the id may be given anew. A request that it has deferred is not waited
 * for. -ETIMEDOUT: some thread runs it still; the id stays taken until another call
 * has returned 0. -ENOENT: the id has none. -EDEADLK inside an engine, and nothing
 * was removed. Any thread but one that runs the handler; runs engines.
 */
SKEIN_API int skein_rpc_handle_remove(struct skein_ctx *ctx, uint16_t id,
				      uint64_t timeout_ns);

/*
 * Answers that come later.
 *
 * skein_rpc_defer(), in a handler, puts its request aside: the bytes stay valid
 * (*later has its own) until skein_rpc_answer(), which any thread may call, once
 * for each; req is no longer the handler's, its result and what it returns do
 * not count. Results are built by skein_rpc_resp_buf(*later). Answers go out as
 * they come, not in the order of requests. -ENOMEM, and -EALREADY for a request
 * that was deferred before.
 *
 * A connection has at most SKEIN_RPC_LATER (1024) such requests, of
 * SKEIN_RPC_LATER_LEN bytes (4 MiB), and takes up no request beyond.
 *
 * skein_rpc_answer(): status as a handler returns it. -ENOTCONN: the connection
 * has ended, nobody will read it. Either way *later is gone. One that is never
 * answered holds up nobody but its caller; its memory is freed with the context,
 * behind which nothing may be answered any more.
 */
SKEIN_API int skein_rpc_defer(struct skein_rpc_req *req,
			      struct skein_rpc_req **later);
SKEIN_API int skein_rpc_answer(struct skein_rpc_req *req, int status);

/* Threads that run handlers, so that slow ones hold up nobody else: 1 to 64.
 * free() waits for the handlers that run, answers what waits for a thread with
 * -ECANCELED, and the pool's ids have no handler any more; the context's close
 * does the same. Any thread, not a pool's own. */
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
/* NULL for one that was deferred, in workers too: it may outlive its
 * connection. */
SKEIN_API struct skein_conn *skein_rpc_req_conn(const struct skein_rpc_req *);
/* What skein_conn_shard() says of the connection it came by, deferred or not. */
SKEIN_API unsigned skein_rpc_req_shard(const struct skein_rpc_req *req);
/* The space that the caller reserved for the response. */
SKEIN_API size_t skein_rpc_resp_max(const struct skein_rpc_req *req);
/* A buffer of len bytes for the response, in place where it will be sent from
 * (copied there, of a deferred request); calling again replaces it (the content is kept up to the smaller size). NULL
 * when len exceeds the caller's reservation or memory is short. */
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
 * (resp_max bytes; a larger one is -EMSGSIZE, done). Returns 0 or the status;
 * result may be NULL (then only the status is known). -ENOTCONN: not sent.
 * -ETIMEDOUT: see result->outcome; it returns by then, whatever the thread does
 * that runs the engine. Any thread; runs the connection's engine.
 */
SKEIN_API int skein_rpc_call(struct skein_conn *conn, uint16_t id,
			     const void *req, size_t req_len, void *resp,
			     size_t resp_max, uint64_t timeout_ns,
			     struct skein_rpc_result *result);

/*
 * Starts a call. The request is copied before it returns. The call leaves at
 * once; those that are made inside a done() on the same connection leave
 * together, behind the done() of that round. -EAGAIN: the ring or the window of
 * outstanding calls is full: make progress, try again.
 *
 * done() runs exactly once when 0 was returned, never otherwise, in the thread
 * that made the call: inside its own next progress, run, reap or blocking call on
 * the connection's engine. When that thread has ended, it runs in whichever
 * thread runs the engine; of calls that nobody has asked about, when the
 * connection closes.
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
 * Starts n calls, in their order, that leave together: for a thread that has
 * several at hand, as after skein_rpc_reap(). They share messages, among
 * themselves and with those of other threads. Each is a call as of
 * skein_rpc_call_async(). Returns 0 when the first *begun of them have begun,
 * one at least (n being 0, none): the others were not taken, for want of room.
 * -EAGAIN, or an error: none was. -EMSGSIZE: one of them is too long.
 */
SKEIN_API int skein_rpc_call_batch(struct skein_conn *conn,
				   const struct skein_rpc_entry *calls,
				   unsigned n, unsigned *begun);

/*
 * Gives a call up: the oldest one under way that skein_rpc_call_async() was
 * given this done and arg for. It ends inside, by done() with -ECANCELED: as not
 * sent when it had not left, else as unknown; its answer, if one comes, is
 * dropped. -ENOENT: there is none, it has ended. Any thread; waits for the thread
 * that runs the engine, unless that is the caller, for a second: -ETIMEDOUT, and
 * the call ends when that thread goes on. done() runs where it would
 * have run.
 */
SKEIN_API int skein_rpc_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
			       void *arg);

/*
 * Runs the done() of the calling thread's asynchronous calls on this connection
 * that have ended. When there are none, but calls are under way, waits for one, at
 * most timeout_ns, and runs the connection's engine if no other thread does.
 * Returns how many ended. done() must not close the connection. -EOPNOTSUPP for
 * accepted connections; -EDEADLK when it would have to wait inside the engine;
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
	/* Of several QPs; of a connection that is served, all of them together:
	 * calls / messages_received is the degree of combining. */
	uint64_t credit_grants, credit_declines;
	uint32_t lanes, lanes_active;
	/* Of a connection that was opened here: credits that are left (0 with
	 * one QP, which needs none),
	 * threads that the scheduler has given another lane, and how many
	 * messages had 1, 2, ... calls (the last: so many or more), with their
	 * lower median. */
	uint64_t credits;
	uint64_t migrations;
	uint32_t degree_median;
	uint64_t degrees[SKEIN_RPC_DEGREES];
	/* Results that were fetched (a server: left for that); of a connection
	 * that was opened here: READs for them, those that found none, and
	 * recalls; of one that is served: fetched messages that were replied
	 * all the same. */
	uint64_t fetched, fetched_messages;
	uint64_t fetch_reads, fetch_empty, recalls, resent;
	/* Results that were replied; switches between the two (auto); of a
	 * connection that is served: all posts. */
	uint64_t replied, switches, posts;
};
/* -EINVAL: stats->size is not set. -ENOTCONN; -ETIMEDOUT: another thread has had
 * the engine for a second. */
SKEIN_API int skein_rpc_get_stats(struct skein_conn *conn,
				  struct skein_rpc_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
