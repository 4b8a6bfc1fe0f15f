/* SPDX-License-Identifier: MIT */
/*
 * pool.h - pooled connections: their control link and their QP are one virtual
 * queue pair (vqp) of a pool. docs/protocol/vqp.md, "Connections".
 *
 * src/vqp is above src/conn, so it gives its part here as a table of functions.
 * A frame of the control link is a message without immediate. A WRITE with
 * immediate is a WRITE and an empty message with the immediate. Requests name
 * the device's own keys, which the ends have from the handshake.
 *
 * An engine has one pool for the connections that it opens, and each pooled
 * listener has one, with the listener's port as its node number. A pooled
 * connection has a link of its own: a further vqp costs nothing.
 *
 * Thread rule: the engine's owner, except where a comment says otherwise.
 */
#ifndef SKEIN_CONN_POOL_H
#define SKEIN_CONN_POOL_H

#include "base/list.h"
#include "env/engine/engine.h"

#include <infiniband/verbs.h>
#include <skein/conn.h>
#include <sys/socket.h>

/* Requests of a pooled connection under way: half of a vqp's, as a WRITE with
 * immediate is two. */
#define CONN_POOL_DEPTH 63u
#define CONN_POOL_WCS 16

struct conn_peer;

struct conn_pool {
	struct skein_engine *eng;
	struct skein_listener *listener; /* NULL: for connections opened here */
	struct list_node link;		 /* skein_engine.pools */
	struct engine_call call;
	atomic_bool called;
	atomic_uint conns; /* that exist; any thread */
};

struct conn_vqp {
	struct ibv_qp qp; /* ibv_post_send() posts to the vqp; any thread */
	struct conn_pool *pool;
	struct conn_peer *peer; /* it is that one's link; or NULL */
	unsigned refs;		/* of its link, and of its connection */
};

enum conn_pool_kind {
	CONN_POOL_CONNECTED, /* a dialled vqp: the node is known */
	CONN_POOL_FAILED,    /* err; the vqp carries nothing any more */
	CONN_POOL_BYTES,     /* of the link: data, len; perhaps a new vqp's */
	CONN_POOL_IMM,	     /* imm, in network order */
	CONN_POOL_SENT,	     /* n completions; there may be room to send */
};

struct conn_pool_event {
	enum conn_pool_kind kind;
	struct conn_vqp *vqp;
	int err;
	const uint8_t *data;
	uint32_t len;
	uint32_t imm;
	int n;
	struct ibv_wc wc[CONN_POOL_WCS];
	void *message; /* the table's: freed by done() */
};

/* vqp/carrier.c */
struct conn_pool_ops {
	uint32_t inline_max;
	/* Blocks, and runs the engine. port 0: any number, and nobody can
	 * connect. As skein_pool_open(). */
	int (*open)(struct skein_engine *eng, uint16_t port,
		    struct conn_pool **pool);
	/* Blocks. No vqp is left, and pool->link is in no list. */
	void (*close)(struct conn_pool *pool);
	/* Begins to connect: CONNECTED or FAILED follows. One reference. */
	int (*dial)(struct conn_pool *pool, const struct sockaddr_storage *to,
		    struct conn_vqp **vqp);
	/* "10.0.0.7:40112": the other end. */
	void (*addr)(struct conn_vqp *vqp, char *buf, size_t len);
	/* No reference is left. What was sent still goes out. */
	void (*free)(struct conn_vqp *vqp);
	/* Sends bytes of the link. Returns how many were taken, or -EAGAIN: a
	 * SENT follows when there may be room. */
	ssize_t (*send)(struct conn_vqp *vqp, const void *buf, size_t len);
	/* The next event; a round of the pool before it. False: none. */
	bool (*poll)(struct conn_pool *pool, bool round,
		     struct conn_pool_event *ev);
	void (*done)(struct conn_pool *pool, struct conn_pool_event *ev);
	/* As an engine object's. */
	int (*arm)(struct conn_pool *pool);
	uint64_t (*next_deadline)(struct conn_pool *pool, uint64_t now_ns);
};

/* src/modules.c */
extern const struct conn_pool_ops *const conn_pool_ops;

/* attr: an attribute's; the default is SKEIN_POOLED. -EINVAL, with a line in the
 * log. Any thread. */
int conn_pooled(struct skein_ctx *ctx, enum skein_pooled attr, bool *pooled);
/* The engine's pool for connections that are opened; made when needed. Blocks
 * then: -EDEADLK in a callback. Any thread. */
int conn_pool_get(struct skein_engine *eng, struct conn_pool **pool);
/* A listener's. Any thread. open_call() lists it. */
int conn_pool_listen(struct skein_listener *l, uint16_t port);
/* Blocks; not inside a round. Any thread. */
void conn_pool_end(struct conn_pool *pool);
/* The same for the pools of all engines. */
void conn_pools_end(struct skein_ctx *ctx);

void conn_vqp_put(struct conn_vqp *vqp);

int conn_pools_poll(struct skein_engine *eng, uint64_t now_ns);
int conn_pools_arm(struct skein_engine *eng);
uint64_t conn_pools_deadline(struct skein_engine *eng);

#endif
