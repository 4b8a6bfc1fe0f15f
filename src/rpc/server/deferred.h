/* SPDX-License-Identifier: MIT */
/*
 * deferred.h - requests that are answered later, from any thread: by a worker
 * of a pool (pool.h), or by a thread of the application.
 *
 * A connection that has such requests has a *table of deferrals*. A deferred
 * request is copied out of the ring with its bytes, so the ring's Head goes on.
 * The thread that answers it pushes it onto a stack without a lock, and wakes
 * the engine's owner, which sends the answer. The table also keeps the
 * reservations that no answer has used yet, in order: docs/protocol/rpc.md,
 * section 4.
 *
 * No thread waits for a request that is never answered. When the connection
 * ends, its table closes: a request that is still unanswered becomes an orphan
 * of the context, and is freed when it is answered, or with the context.
 *
 * Thread rule: the owner of the connection's engine; rpc_deferred_answer(): any
 * thread.
 */
#ifndef SKEIN_RPC_SERVER_DEFERRED_H
#define SKEIN_RPC_SERVER_DEFERRED_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/list.h"
#include "env/env.h"
#include "rpc/port.h"

struct rpc_server;

/* A request as its handler sees it: the server's one, or one that was
 * deferred. */
struct skein_rpc_req {
	struct rpc_server *server; /* NULL: this is in a struct rpc_deferred */
	const void *data;
	uint32_t len;
	struct rpc_req_meta meta;
	uint8_t *resp;	     /* place of an inline result */
	uint32_t inline_max; /* room in the reservation, a multiple of 8 */
	uint32_t resp_len;
	struct rpc_buf *large; /* the result, when it is large */
};

/* In skein_rpc_req.large: the request has been deferred. */
extern const struct rpc_buf rpc_deferred_mark;
#define RPC_DEFERRED_MARK ((struct rpc_buf *)&rpc_deferred_mark)

/* A result of at least so many bytes is built where the caller READs it. */
#define RPC_DEFERRED_LARGE (64u << 10)

struct rpc_deferred {
	struct skein_rpc_req req;
	struct rpc_deferrals *deferrals;
	struct rpc_deferred *next; /* in a queue, on the stack, in ready */
	struct list_node link;	   /* in rpc_deferrals.held, or an orphan's */
	uint64_t begun_ns;	   /* RPC_REQ_TIME: when its handler began */
	int status;
	bool answered, orphan; /* under the orphans' lock */
	struct rpc_buf *buf;   /* of a large request */
	uint8_t *resp;	       /* a result that needed more room */
	struct rpc_buf *out;   /* a larger one, which is sent from here */
	size_t len;	       /* bytes that it counts in rpc_deferrals.len */
	/* of a worker: its handler, and the flag that says the handler deferred
	 * it again */
	void *arg;
	bool *kept;
	alignas(8) uint8_t bytes[]; /* of the request, then of the result */
};

/* The orphans of a context. */
struct rpc_orphans {
	struct skein_env *env;
	struct env_mutex lock;
	struct list_node list;
};

void rpc_orphans_init(struct rpc_orphans *o, struct skein_env *env);
/* No thread answers any more. */
void rpc_orphans_fini(struct rpc_orphans *o);

/* What a server needs for its table of deferrals. */
struct rpc_deferred_conf {
	struct skein_env *env; /* NULL: nothing can be deferred */
	struct rpc_orphans *orphans;
	/* Makes the owner run a round, and wakes it if it sleeps. Any
	 * thread. */
	void (*wake)(void *arg);
	void *wake_arg;
	uint32_t max;	   /* requests that are deferred */
	size_t len_max;	   /* bytes of these requests */
	bool in_any_order; /* does the caller take answers in any order? */
	unsigned shard;	   /* of the connection, for skein_rpc_req_shard() */
	/* Memory for a large result, or NULL when memory is short. Any thread.
	 * It outlives the connection until end() is called or the server adopts
	 * it. buf_new may be NULL: results are copied. */
	struct rpc_buf *(*buf_new)(void *arg, size_t len);
	void *buf_arg;
};

struct rpc_deferrals {
	/* any thread's */
	alignas(64) _Atomic(struct rpc_deferred *) stack;
	atomic_uint inside; /* threads inside rpc_deferred_answer() */
	atomic_bool closed;
	struct rpc_deferred_conf conf;

	/* the owner's */
	alignas(64) struct list_node held; /* no answer collected yet */
	unsigned count;			   /* held and ready */
	unsigned refs;			   /* orphans; under their lock */
	size_t len;
	struct rpc_deferred *ready, **ready_end; /* oldest answer first */
	/* lines of the reservations without an answer, oldest first */
	uint64_t pos; /* of the first */
	uint32_t first, last, mask;
	uint16_t lines[];
};

/* NULL when memory is short. */
struct rpc_deferrals *rpc_deferrals_new(const struct rpc_deferred_conf *conf);
/* Ends the table: frees answered requests, makes orphans of the others. By the
 * port, buf_put() gives a large request's memory back, and buf_let() lets it
 * outlive the connection. */
void rpc_deferrals_close(struct rpc_deferrals *d, struct rpc_port *port);

/* May the server take up another request? */
static inline bool rpc_deferrals_room(const struct rpc_deferrals *d)
{
	return d->conf.in_any_order
		       ? d->count < d->conf.max && d->len < d->conf.len_max
		       : !d->count;
}

#define RPC_DEFERRALS_FETCH 0x8000u /* beside lines */

static inline void rpc_deferrals_reserve(struct rpc_deferrals *d,
					 uint16_t lines, bool fetch)
{
	d->lines[d->last++ & d->mask] =
		(uint16_t)(lines | (fetch ? RPC_DEFERRALS_FETCH : 0));
}

/* How many reservations wait for an answer. */
static inline uint32_t rpc_deferrals_reserved(const struct rpc_deferrals *d)
{
	return d->last - d->first;
}

static inline uint32_t rpc_deferrals_lines(const struct rpc_deferrals *d)
{
	return d->lines[d->first & d->mask] & (RPC_DEFERRALS_FETCH - 1);
}

static inline bool rpc_deferrals_fetched(const struct rpc_deferrals *d)
{
	return d->lines[d->first & d->mask] & RPC_DEFERRALS_FETCH;
}

/* The oldest reservation has its answer. */
static inline void rpc_deferrals_used(struct rpc_deferrals *d,
				      uint32_t ring_lines)
{
	d->pos = rpc_pos_next(ring_lines, d->pos, rpc_deferrals_lines(d));
	d->first++;
}

/* Puts req aside with its bytes. buf: the memory of a large request, which the
 * deferred request then owns, or NULL. Returns NULL when memory is short. */
struct rpc_deferred *rpc_deferrals_put(struct rpc_deferrals *d,
				       const struct skein_rpc_req *req,
				       struct rpc_buf *buf);
/* Moves the answered requests to `ready`. */
void rpc_deferrals_collect(struct rpc_deferrals *d);
/* Is there something to collect or to send? */
static inline bool rpc_deferrals_has_work(const struct rpc_deferrals *d)
{
	/* Relaxed: this is the look before a sleep. A thread that answers wakes
	 * the owner after its push, with the fence of engine_kick(). */
	return d->ready ||
	       atomic_load_explicit(&d->stack, memory_order_relaxed);
}
/* The first of `ready` was sent: frees it. */
void rpc_deferrals_sent(struct rpc_deferrals *d, struct rpc_port *port);

/* Any thread. As skein_rpc_answer(). */
int rpc_deferred_answer(struct rpc_deferred *l, int status);

static inline struct rpc_deferred *rpc_deferred_of(struct skein_rpc_req *req)
{
	return req->server ? NULL : container_of(req, struct rpc_deferred, req);
}

#endif
