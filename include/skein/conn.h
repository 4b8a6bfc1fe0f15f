/* SPDX-License-Identifier: MIT */
/*
 * conn.h - connections: the handle through which everything else is reached.
 *
 * A connection joins two contexts, usually in two processes. RPC (rpc.h) and
 * memory operations (mem.h) go through the same handle.
 *
 * Addresses are "HOST:PORT": a name, an IPv4 address, or an IPv6 address in
 * brackets; ":PORT" listens on all addresses; port 0 listens on a free one.
 *
 * Thread rule: a handle may be used by several threads; closing it is the last
 * use. Callbacks run in the thread that runs the connection's engine, must not
 * block, and must not close the context.
 */
#ifndef SKEIN_CONN_H
#define SKEIN_CONN_H

#include <skein/ctx.h>

#ifdef __cplusplus
extern "C" {
#endif

struct skein_conn;
struct skein_listener;

enum skein_conn_state {
	SKEIN_CONN_CONNECTING, /* the handshake is under way */
	SKEIN_CONN_READY,      /* calls and operations go through */
	SKEIN_CONN_CLOSING,    /* draining: nothing new is taken */
	SKEIN_CONN_BROKEN,     /* failed: skein_conn_error() tells the story */
};

/* How connections are made. Pooled: of virtual queue pairs (docs/vqp.md), by one
 * message and its answer, without a socket or a queue pair of their own. Needs a
 * meta server (skein meta, SKEIN_META), and both ends pooled. A pooled
 * connection has one QP; streams and multicast groups are not pooled. */
enum skein_pooled {
	SKEIN_POOLED_DEFAULT, /* SKEIN_POOLED, else no */
	SKEIN_POOLED_NO,
	SKEIN_POOLED_POOL,
};

struct skein_listener_attr {
	size_t size;
	/* Connections are given to these engines: the n-th shard that a
	 * client asks for is engine n modulo engine_count. NULL: the default
	 * engine takes all. */
	struct skein_engine *const *engines;
	unsigned engine_count;
	/* Handshakes at once; further clients are refused with -SKEIN_EBUSY,
	 * and told when to try again. Default 128. */
	unsigned handshakes_max;
	/* live connections; default 65536 */
	unsigned conns_max;
	/* how long a handshake may take; default 5 s */
	uint64_t handshake_timeout_ns;
	/* Called when a connection is ready (state READY) and when it has ended
	 * (BROKEN or CLOSING: the last call for this conn). May be NULL. The
	 * listener owns accepted connections and frees them after that. */
	void (*on_conn)(void *arg, struct skein_conn *conn,
			enum skein_conn_state state);
	void *arg;
	/* POOL: takes pooled connections too, by every address of the host; the
	 * first engine serves them. The port is this process's number at the
	 * meta server. */
	enum skein_pooled pooled;
};

/* How results of calls come. Reply: the server sends them. Fetch: the server
 * leaves them in its memory and this end READs them, which takes work from the
 * server's CPU and gives it to this end's (docs/design/rf-rpc.md). */
enum skein_return {
	SKEIN_RETURN_DEFAULT, /* SKEIN_RPC_RETURN, else reply */
	SKEIN_RETURN_REPLY,
	SKEIN_RETURN_FETCH, /* while the program polls, results to 8192 bytes */
	SKEIN_RETURN_AUTO,  /* fetch while that gives more calls a second */
};

struct skein_conn_attr {
	size_t size;
	struct skein_engine *engine; /* NULL: the default engine */
	/* which engine of the server should serve this connection */
	unsigned shard;
	/* For all attempts to connect together. One second more while another
	 * thread keeps the engine in a callback. Default 5 s. */
	uint64_t timeout_ns;
	/* How often to try again within timeout_ns, with doubling pauses from
	 * 10 ms to 1 s, when the peer refuses or does not run yet. Default 0:
	 * no second try. A busy server that says when to try again is tried
	 * within timeout_ns in any case. */
	unsigned retries;
	/* When a ready connection fails it connects again by itself. Calls that
	 * were under way end as unknown or not sent; calls made before it is
	 * ready again fail with -ENOTCONN. Default false. */
	bool reconnect;
	/* state changes; may be NULL. The state is set before the call. After
	 * skein_conn_close() has waited it comes no more. */
	void (*on_state)(void *arg, struct skein_conn *conn,
			 enum skein_conn_state state);
	void *arg;
	/* fields that are zero are as the context's */
	struct skein_path path;
	/* How many QPs the connection has, at most 1024. Any number of threads
	 * use a connection, each one QP at a time; threads that send at the
	 * same time share messages. All QPs are up or none: the end of one ends
	 * the connection. Default 0: SKEIN_QPS, else 1. */
	unsigned qps;
	/* The most requests of threads in one message. Default 0:
	 * SKEIN_COMBINE, else 16. */
	unsigned combine;
	enum skein_return return_mode;
	/* With a bound, each thread's calls by skein_rpc_call_async() leave in
	 * batches, of a size that the library chooses, so that at most
	 * latency_tolerance percent of the calls (1 to 50) take longer than
	 * latency_bound_ns. A thread has at most two batches under way; then
	 * -EAGAIN. Defaults 0: SKEIN_RPC_LATENCY_BOUND, else no bound;
	 * SKEIN_RPC_LATENCY_TOLERANCE, else 5. */
	uint64_t latency_bound_ns;
	unsigned latency_tolerance;
	/* POOL: -EOPNOTSUPP with more than one QP. The first one of an engine
	 * makes its pool: that blocks for milliseconds, and in a callback it is
	 * -EDEADLK. */
	enum skein_pooled pooled;
};

/* Listens. attr may be NULL. Blocks for name look-up. -EADDRINUSE,
 * -EADDRNOTAVAIL, -EINVAL for an address that is not valid. */
SKEIN_API int skein_listener_open(struct skein_ctx *ctx, const char *addr,
				  const struct skein_listener_attr *attr,
				  struct skein_listener **listener);
/* Stops listening and closes its connections. Blocks as skein_conn_close. */
SKEIN_API void skein_listener_close(struct skein_listener *listener);
/* The "HOST:PORT" that it listens on (the real port). Valid as long as the
 * listener. */
SKEIN_API const char *skein_listener_addr(struct skein_listener *listener);

/* Connects and waits until ready. attr may be NULL. -ECONNREFUSED,
 * -ETIMEDOUT, -SKEIN_EVERSION, -SKEIN_EAUTH, -SKEIN_EBUSY, ...: the story is
 * logged in one line. */
SKEIN_API int skein_conn_open(struct skein_ctx *ctx, const char *addr,
			      const struct skein_conn_attr *attr,
			      struct skein_conn **conn);

/* The same without waiting for the handshake (name look-up still blocks):
 * skein_conn_wait(), the state and on_state say how it ended. The handle must
 * be closed in any case. */
SKEIN_API int skein_conn_open_async(struct skein_ctx *ctx, const char *addr,
				    const struct skein_conn_attr *attr,
				    struct skein_conn **conn);

/* Waits until the connection is ready, at most timeout_ns: 0; -ETIMEDOUT; or
 * why it has failed for good, or ended. Also waits while it connects again by
 * itself (attr.reconnect). -EDEADLK inside the engine; -SKEIN_EFORKED. Any
 * thread; runs the connection's engine. */
SKEIN_API int skein_conn_wait(struct skein_conn *conn, uint64_t timeout_ns);

/* Waits for calls and operations under way, at most timeout_ns (the rest ends
 * as unknown), tells the peer, and frees the handle. Blocks unless timeout_ns
 * is 0: then on_state() may be under way, and what its arg points to must live
 * until the context is closed. Only for connections that this side opened. */
SKEIN_API void skein_conn_close(struct skein_conn *conn, uint64_t timeout_ns);

SKEIN_API enum skein_conn_state skein_conn_get_state(struct skein_conn *conn);

/* 0, or the error that broke it. *text (text may be NULL) becomes one line:
 * what failed, with which peer, on which device, and the likely cause; "" when
 * nothing has failed. Valid as long as the handle. */
SKEIN_API int skein_conn_error(struct skein_conn *conn, const char **text);

/* "10.0.0.7:7000 (pid 4711)"; valid as long as the handle. */
SKEIN_API const char *skein_conn_peer(struct skein_conn *conn);

/* How long this end asks a peer that does not answer before the connection ends:
 * retry_timeout_ns and retry_count of its path, or their defaults. 0 before the
 * connection is ready, and of a pooled one. */
SKEIN_API uint64_t skein_conn_timeout(struct skein_conn *conn);

/* On an accepted connection: the shard that its engine serves. */
SKEIN_API unsigned skein_conn_shard(struct skein_conn *conn);

/* A pointer that the application keeps on the handle. */
SKEIN_API void skein_conn_set_data(struct skein_conn *conn, void *data);
SKEIN_API void *skein_conn_data(struct skein_conn *conn);

#ifdef __cplusplus
}
#endif
#endif
