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

/* The largest request or response, in bytes. */
#define SKEIN_RPC_LEN_MAX (1u << 30)

/*
 * Handles requests of one id. Runs in the thread that runs the connection's
 * engine; must not block. Returns 0: the response built with
 * skein_rpc_resp_buf() is sent (an empty one when there was none); a negative
 * error: that error is the caller's status.
 */
typedef int skein_rpc_fn(struct skein_rpc_req *req, void *arg);

/* Registers a handler, before the first listener is opened or at any later
 * time. -EEXIST when the id is taken. */
SKEIN_API int skein_rpc_handle(struct skein_ctx *ctx, uint16_t id,
			       skein_rpc_fn *fn, void *arg);

/* The request's bytes: in place in the ring, 8-byte aligned, valid until the
 * handler returns. */
SKEIN_API const void *skein_rpc_req_data(const struct skein_rpc_req *req);
SKEIN_API size_t skein_rpc_req_len(const struct skein_rpc_req *req);
SKEIN_API struct skein_conn *skein_rpc_req_conn(const struct skein_rpc_req *);
/* The space that the caller reserved for the response. */
SKEIN_API size_t skein_rpc_resp_max(const struct skein_rpc_req *req);
/* A buffer of len bytes for the response, in place where it will be sent from;
 * calling again replaces it (the content is kept up to the smaller size). NULL
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
 * -ETIMEDOUT: see result->outcome. Any thread; runs the connection's engine.
 */
SKEIN_API int skein_rpc_call(struct skein_conn *conn, uint16_t id,
			     const void *req, size_t req_len, void *resp,
			     size_t resp_max, uint64_t timeout_ns,
			     struct skein_rpc_result *result);

/*
 * Starts a call. The request is copied before it returns; the call leaves with
 * the next progress round, with skein_rpc_flush(), or when the message is
 * full, whichever is first. done() runs exactly once when 0 was returned,
 * never otherwise, in the thread that runs the engine. -EAGAIN: the ring or
 * the window of outstanding calls is full: make progress, try again.
 */
SKEIN_API int skein_rpc_call_async(struct skein_conn *conn, uint16_t id,
				   const void *req, size_t req_len,
				   size_t resp_max, uint64_t timeout_ns,
				   skein_rpc_done_fn *done, void *arg);

/* Sends what was gathered. */
SKEIN_API int skein_rpc_flush(struct skein_conn *conn);

/* Counters of one connection, both directions. */
struct skein_rpc_stats {
	uint64_t calls; /* requests sent (client), served (server) */
	uint64_t messages_sent;
	uint64_t messages_received;
	uint64_t doorbells;
	uint64_t bytes_sent;
	uint64_t head_reads;   /* READs of the peer's Head */
	uint64_t full;	       /* times a call met a full ring */
	uint64_t wakeups_sent; /* messages sent with an immediate */
};
SKEIN_API int skein_rpc_stats(struct skein_conn *conn,
			      struct skein_rpc_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
