/* SPDX-License-Identifier: MIT */
/*
 * state.h - what RPC keeps of a connection and of a context: the engines of
 * client.h and server.h on a real connection.
 *
 *	module.c	the module's functions: handshake, rounds, sleep, end
 *	post.c		the port: work requests on the connection
 *	bufs.c		registered memory for large payloads
 *	call.c		the public calls, by any thread
 *	pool.c		threads that run handlers
 *
 * Thread rule: the owner of the connection's engine, unless a comment says
 * otherwise.
 */
#ifndef SKEIN_RPC_STATE_H
#define SKEIN_RPC_STATE_H

#include <stdatomic.h>

#include "conn/conn.h"
#include "rpc/sched/aqp.h"
#include "rpc/client/calib_file.h"
#include "rpc/client/client.h"
#include "rpc/server/server.h"

struct rpc_conf {
	size_t ring, resp_ring; /* bytes */
	size_t msg_max;
	size_t resp_inline;
	uint32_t window;
	uint32_t batch;
	uint32_t later;
	size_t later_len;
	size_t large_max;
	uint32_t aqp_max;
	uint64_t qp_interval_ns;
	uint64_t thread_interval_ns;
	uint64_t slow_ns;
	const char *calibration;
};

struct rpc_ctx {
	struct rpc_conf conf;
	struct rpc_handlers handlers;
	struct env_mutex lock; /* for adding to handlers and pools */
	struct rpc_orphans orphans;
	struct skein_rpc_pool *pools;
	atomic_uint removals; /* threads that wait for handlers to end */
	struct aqp aqp;
	const struct rpc_calib *calib; /* of the device; NULL: see the file */
	struct rpc_calib_file calib_file; /* under the lock */
};

enum rpc_pending_req {
	RPC_PENDING_UNREAD,
	RPC_PENDING_READING, /* the owner reads it */
	RPC_PENDING_READ,    /* the owner has read it, or there is none */
	RPC_PENDING_BACK,    /* the caller took it back: it is not sent */
};

/* A call on its way to the engine's owner, or one that waits for room. Until it
 * has ended the memory is the blocked caller's, in its thread record, or on the
 * heap (then own). */
struct rpc_pending {
	struct engine_call call;
	struct rpc_conn *rc;
	struct rpc_pending *next;
	const void *req;
	size_t req_len, resp_max;
	uint64_t timeout_ns, deadline_ns; /* set when it is queued */
	skein_rpc_done_fn *done;
	void *arg;
	_Atomic(uint32_t) *held; /* of the thread record */
	int err;
	uint16_t id;
	uint16_t thread;
	bool own;
	/* req is the caller's: a caller that gives up takes it back, unless the
	 * owner is reading it or has read it. */
	_Atomic(enum rpc_pending_req) req_state;
};

/* A READ of the connection: of the Head, of answers, or of a piece of a large
 * payload. rd is NULL when no READ is under way. */
struct rpc_conn_read {
	struct conn_op op;
	struct rpc_read *rd;
};

/* At most so many freed large buffers, and so many bytes, are kept for
 * reuse. */
#define RPC_BUFS_KEEP 16
#define RPC_BUFS_KEEP_LEN (16u << 20)

struct rpc_bufs {
	struct rpc_buf *spare;
	unsigned spares;
	size_t spare_len;
	uint64_t used_len;
};

struct rpc_conn {
	struct rpc_port port;
	struct skein_conn *conn;
	struct engine *engine;
	uint64_t peer_base; /* of the peer's region, as the peer names it */
	uint32_t peer_rkey;
	uint32_t lkey;
	uint32_t inline_max;
	bool caller;
	bool in_any_order; /* the peer, a caller, takes answers in any order */
	bool credits;	   /* the peer, a caller, spends credits */
	bool fetches;	   /* both ends agree that answers may be fetched */
	bool peer_ordered_read;
	bool peer_times;	   /* the peer, a server, fills in `time` */
	bool tells;		   /* the peer, a caller, wants port.word */
	bool tells_quiet;	   /* serving: the peer wants RPC_CTL_QUIET */
	struct rpc_mirror *mirror; /* of a caller that fetches */
	bool up; /* the engines are set up: between handshake and broken() */
	struct rpc_pending *waiting, **waiting_end;
	struct rpc_ctx *ctx;
	struct mem_region *region;
	struct rpc_call *slots;
	struct rpc_modes *modes;	     /* of a caller that fetches */
	struct rpc_lane_client *lane_client; /* calling end */
	struct rpc_handle *handle;	     /* calling end, lane 0 */
	struct rpc_lane_server *lane_server; /* serving, with several lanes */
	uint64_t calls_before;		     /* before the lane came up */
	uint64_t messages_before;	     /* the same */
	struct rpc_conn_read reads[2];	     /* Head; answers */
	struct rpc_conn_read large_reads[RPC_PIECES];
	struct rpc_bufs bufs;
	union {
		struct rpc_client client;
		struct rpc_server server;
	};
};

/* module.c */
extern const struct conn_module rpc_module;
/* Queues a call that has not found room, or starts it. */
void rpc_pending_start(struct rpc_conn *rc, struct rpc_pending *p);

/* On a lane with its sending side held: starts calls that wait, as far as there
 * is room. Calls that ended are put into *ended, for rpc_pending_tell(). What
 * moved, or an error. */
int rpc_waiting_poll(struct rpc_conn *rc, struct rpc_pending **ended);
void rpc_pending_tell(struct rpc_pending *ended);

/* pool.c: ends all pools that are left. No thread adds one. */
void rpc_pools_fini(struct rpc_ctx *rx);
/* Logs handlers of workers that have not returned for too long. The owner of any
 * engine of the context. */
void rpc_pools_tick(struct rpc_ctx *rx, struct skein_env *env, uint64_t now_ns);
/* With rx->lock: the number of requests that a pool has of the handler with
 * this arg in the table; valid as long as the context. NULL: the handler is not
 * a pool's. */
atomic_uint *rpc_pools_under_way(struct rpc_ctx *rx, const void *arg);

/* As skein_rpc_cancel(), for calls that wait. */
int rpc_pending_cancel(struct rpc_conn *rc, const struct rpc_wanted *wanted);

/* post.c */
extern const struct rpc_port_ops rpc_post_ops;

/* bufs.c */
struct rpc_buf *rpc_bufs_get(struct rpc_conn *rc, size_t len, bool to_read);
/* Makes the memory of the first len bytes: 0, or -ENOMEM. */
int rpc_bufs_fill(struct rpc_buf *buf, size_t len);
void rpc_bufs_put(struct rpc_conn *rc, struct rpc_buf *buf);
/* As rpc_deferred_conf.buf_new(); arg: the context. */
struct rpc_buf *rpc_bufs_new(void *arg, size_t len);
/* As port.h. */
int rpc_bufs_adopt(struct rpc_conn *rc, struct rpc_buf *buf);
void rpc_bufs_let(struct rpc_conn *rc, struct rpc_buf *buf);
/* All buffers have been put. */
void rpc_bufs_fini(struct rpc_conn *rc);
uint32_t rpc_bufs_lkey(const struct rpc_buf *buf);

static inline struct rpc_conn *rpc_conn_of(struct skein_conn *conn)
{
	return conn_module_state(conn, CONN_MODULE_RPC);
}

#endif
