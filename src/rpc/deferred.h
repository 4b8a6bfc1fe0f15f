/* SPDX-License-Identifier: MIT */
/*
 * deferred.h - requests whose answers come later, from any thread: a worker of a
 * pool (pool.h), or whoever the application hands them to.
 *
 * A connection that has such requests has a *table of deferrals*: they are
 * taken off it with their bytes (copied out of the ring, whose Head goes on),
 * and come back answered on a stack without a lock; the engine's owner is
 * woken, and sends the answers. It also keeps the reservations that no answer
 * has used yet, in order: docs/protocol/rpc.md, section 4.
 *
 * Nobody waits for one who never answers. When the connection ends its deferrals
 * closes: what is in other hands then is an orphan of the context, freed when
 * it is answered at last, or with the context.
 *
 * Thread rule: the owner of the connection's engine, but for
 * rpc_deferred_answer(): any thread.
 */
#ifndef SKEIN_RPC_DEFERRED_H
#define SKEIN_RPC_DEFERRED_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/list.h"
#include "env/env.h"
#include "rpc/port.h"

struct rpc_server;

/* A request in its handler's hands: a server's only one, or a later one's. */
struct skein_rpc_req {
	struct rpc_server *server; /* NULL: in a struct rpc_deferred */
	const void *data;
	uint32_t len;
	struct rpc_req_meta meta;
	uint8_t *resp;	     /* where an inline result goes */
	uint32_t inline_max; /* by the reservation, multiple of 8 */
	uint32_t resp_len;
	struct rpc_buf *large; /* the result, when it is large */
};

/* In skein_rpc_req.large: it has been deferred. */
extern const struct rpc_buf rpc_deferred_mark;
#define RPC_DEFERRED_MARK ((struct rpc_buf *)&rpc_deferred_mark)

/* A result from here on is built where it will be READ. */
#define RPC_DEFERRED_LARGE (64u << 10)

struct rpc_deferred {
	struct skein_rpc_req req;
	struct rpc_deferrals *deferrals;
	struct rpc_deferred *next; /* in a pool's queue; on the stack; ready */
	struct list_node link;	   /* deferrals's held, or the orphans' list */
	int status;
	bool answered, orphan; /* when the deferrals is closed: by its lock */
	struct rpc_buf *buf;   /* of a large request */
	uint8_t *resp;	       /* a result that needed more room */
	struct rpc_buf *out;   /* ... much more: it is sent from there */
	size_t len;	       /* what it counts for in the bound */
	/* a worker's: its handler, and where to note that it was kept */
	void *arg;
	bool *kept;
	alignas(8) uint8_t bytes[]; /* of the request, then of the result */
};

/* Of a context. */
struct rpc_orphans {
	struct skein_env *env;
	struct env_mutex lock;
	struct list_node list;
};

void rpc_orphans_init(struct rpc_orphans *o, struct skein_env *env);
/* Nobody answers any more. */
void rpc_orphans_fini(struct rpc_orphans *o);

/* What a server needs for a deferrals. */
struct rpc_deferred_conf {
	struct skein_env *env; /* NULL: nothing can be deferred */
	struct rpc_orphans *orphans;
	/* Makes the owner run a round, also if it sleeps. Any thread. */
	void (*wake)(void *arg);
	void *wake_arg;
	uint32_t max;	   /* requests in other hands */
	size_t len_max;	   /* and their bytes */
	bool in_any_order; /* does the caller take such answers? */
	unsigned shard;	   /* of the connection, for skein_rpc_req_shard() */
	/* Memory for a large result; any thread. NULL when memory is short. It
	 * outlives the connection until end() is called, or the server adopts
	 * it. May be NULL: results are copied. */
	struct rpc_buf *(*buf_new)(void *arg, size_t len);
	void *buf_arg;
};

struct rpc_deferrals {
	/* any thread's */
	alignas(64) _Atomic(struct rpc_deferred *) stack;
	atomic_uint inside; /* threads between its first and last touch */
	atomic_bool closed;
	struct rpc_deferred_conf conf;

	/* the owner's */
	alignas(64) struct list_node held; /* not collected yet */
	unsigned count;			   /* held and ready */
	unsigned refs;			   /* orphans; under their lock */
	size_t len;
	struct rpc_deferred *ready, **ready_end; /* oldest answer first */
	/* reservations without an answer, oldest first */
	uint64_t pos; /* of the first */
	uint32_t first, last, mask;
	uint16_t lines[];
};

/* NULL when memory is short. */
struct rpc_deferrals *rpc_deferrals_new(const struct rpc_deferred_conf *conf);
/* Ends it: answered ones are freed, others become orphans. put: gives a large
 * request's memory back; let: so that it outlives the connection. */
void rpc_deferrals_close(struct rpc_deferrals *d, struct rpc_port *port);

/* May another request be taken up? */
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

/* Reservations that wait for an answer. */
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

/* Puts req aside, with its bytes. buf: of a large request, or NULL; the later
 * one's from then on. NULL when memory is short. */
struct rpc_deferred *rpc_deferrals_put(struct rpc_deferrals *d,
				       const struct skein_rpc_req *req,
				       struct rpc_buf *buf);
/* Moves what has been answered to the ready ones. */
void rpc_deferrals_collect(struct rpc_deferrals *d);
/* Is there something to collect or to send? */
static inline bool rpc_deferrals_has_work(const struct rpc_deferrals *d)
{
	/* Relaxed: the look before a sleep; who answers wakes, with the fence
	 * that engine_kick() has. */
	return d->ready ||
	       atomic_load_explicit(&d->stack, memory_order_relaxed);
}
/* The first of the ready ones is sent: it is freed. */
void rpc_deferrals_sent(struct rpc_deferrals *d, struct rpc_port *port);

/* Any thread. As skein_rpc_answer(). */
int rpc_deferred_answer(struct rpc_deferred *l, int status);

static inline struct rpc_deferred *rpc_deferred_of(struct skein_rpc_req *req)
{
	return req->server ? NULL : container_of(req, struct rpc_deferred, req);
}

#endif
