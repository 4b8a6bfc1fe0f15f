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

struct skein_listener_attr {
	size_t size;
	/* Connections are given to these engines: the n-th shard that a
	 * client asks for is engine n modulo engine_count. NULL: the default
	 * engine takes all. */
	struct skein_engine *const *engines;
	unsigned engine_count;
	/* handshakes at once; further ones are told to come later.
	 * Default 128. */
	unsigned handshakes_max;
	/* live connections; default 65536 */
	unsigned conns_max;
	/* how long a handshake may take; default 5 s */
	uint64_t handshake_timeout_ns;
	/* A connection became ready (state READY) or ended (BROKEN or
	 * CLOSING, the last call for this conn). May be NULL. The listener
	 * owns accepted connections and frees them after the last call. */
	void (*on_conn)(void *arg, struct skein_conn *conn,
			enum skein_conn_state state);
	void *arg;
};

/* How the results of calls come: the server sends them, or leaves them in its
 * memory and this end READs them, which spares the server's processor and costs
 * this end's (docs/design/rf-rpc.md). */
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
	/* for the handshake as a whole, and a second more where another thread
	 * keeps the engine; default 5 s */
	uint64_t timeout_ns;
	/* How often to try again, with doubling pauses from 10 ms to 1 s,
	 * when the peer refuses or is not there yet, within timeout_ns.
	 * Default 0: the first failure is the answer; but a server that is busy
	 * and says when to come again is tried again within timeout_ns. */
	unsigned retries;
	/* After a failure of a ready connection: try to connect again by
	 * itself. Calls that were under way end as unknown or not sent; calls
	 * made meanwhile fail with -ENOTCONN. Default false. */
	bool reconnect;
	/* state changes; may be NULL */
	void (*on_state)(void *arg, struct skein_conn *conn,
			 enum skein_conn_state state);
	void *arg;
	/* what is zero is as the context's */
	struct skein_path path;
	/* Any number of threads use a connection; those that send at the same
	 * time share messages. So many QPs, at most 1024, of which each thread
	 * uses one at a time. Default 0: SKEIN_QPS, else 1. All are up or none;
	 * what ends one ends the connection. */
	unsigned qps;
	/* at most so many requests a message. Default 0: SKEIN_COMBINE, else
	 * 16. */
	unsigned combine;
	enum skein_return return_mode;
};

/* Listens. attr may be NULL. Blocks for name look-up. -EADDRINUSE,
 * -EADDRNOTAVAIL, -EINVAL for an address nobody understands. */
SKEIN_API int skein_listener_open(struct skein_ctx *ctx, const char *addr,
				  const struct skein_listener_attr *attr,
				  struct skein_listener **listener);
/* Stops listening and closes its connections. Blocks as skein_conn_close. */
SKEIN_API void skein_listener_close(struct skein_listener *listener);
/* "HOST:PORT" that it listens on (the real port). Valid as long as it. */
SKEIN_API const char *skein_listener_addr(struct skein_listener *listener);

/* Connects and waits until ready. attr may be NULL. -ECONNREFUSED,
 * -ETIMEDOUT, -SKEIN_EVERSION, -SKEIN_EAUTH, -SKEIN_EBUSY, ...: the story is
 * logged in one line. */
SKEIN_API int skein_conn_open(struct skein_ctx *ctx, const char *addr,
			      const struct skein_conn_attr *attr,
			      struct skein_conn **conn);

/* The same without waiting for the handshake (name look-up still blocks):
 * skein_conn_wait(), state and on_state tell. The handle must be closed in any case. */
SKEIN_API int skein_conn_open_async(struct skein_ctx *ctx, const char *addr,
				    const struct skein_conn_attr *attr,
				    struct skein_conn **conn);

/* Waits until the connection is ready, at most timeout_ns: 0; -ETIMEDOUT; when it
 * has failed for good, or ended, why. One that connects again by itself
 * (attr.reconnect) is waited for. -EDEADLK inside the engine; -SKEIN_EFORKED. Any
 * thread; runs the connection's engine. */
SKEIN_API int skein_conn_wait(struct skein_conn *conn, uint64_t timeout_ns);

/* Drains what is under way (at most timeout_ns; what is left ends as unknown),
 * tells the peer, and frees the handle. Blocks unless timeout_ns is 0. Only
 * for connections that this side opened. */
SKEIN_API void skein_conn_close(struct skein_conn *conn, uint64_t timeout_ns);

SKEIN_API enum skein_conn_state skein_conn_get_state(struct skein_conn *conn);

/* 0 or why it broke, as an error; the text is one line: what failed, with
 * which peer, on which device, and the likely cause. "" when nothing did.
 * Valid as long as the handle. */
SKEIN_API int skein_conn_error(struct skein_conn *conn, const char **text);

/* "10.0.0.7:7000 (pid 4711)"; valid as long as the handle. */
SKEIN_API const char *skein_conn_peer(struct skein_conn *conn);

/* On an accepted connection: the shard that its engine serves. */
SKEIN_API unsigned skein_conn_shard(struct skein_conn *conn);

/* A pointer of the application's on the handle. */
SKEIN_API void skein_conn_set_data(struct skein_conn *conn, void *data);
SKEIN_API void *skein_conn_data(struct skein_conn *conn);

#ifdef __cplusplus
}
#endif
#endif
