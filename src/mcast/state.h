/* SPDX-License-Identifier: MIT */
/*
 * state.h - what multicast keeps per context, per connection and per group. It
 * puts the engine of eng.h onto connections.
 *
 *	module.c	connections: handshake, incoming records, end
 *	pool.c		memory of the rings of records
 *	post.c		work requests
 *	group.c		the port of eng.h; rounds, sleep, callbacks
 *	api.c		the public calls
 *	call.c		messages and finished blocks, from any thread
 *	part.c		what the application says of a resumed object
 *
 * Thread rule: the owner of the context's default engine, unless a comment says
 * otherwise.
 */
#ifndef SKEIN_MCAST_STATE_H
#define SKEIN_MCAST_STATE_H

#include <stdatomic.h>

#include "conn/ctx.h"
#include "mcast/eng.h"
#include "mcast/pool.h"

/* Connections that wait until their group is opened here. */
#define MCAST_PARKED_MAX 2048u
#define MCAST_PARKED_NS (60 * 1000 * 1000 * 1000ull)
/* A member sends at most two records by a channel before it has the other's
 * HELLO: HELLO and FAIL. */
#define MCAST_EARLY 2u

struct mcast_ctx {
	struct skein_ctx *ctx;
	struct engine *engine;
	struct engine_obj obj;
	bool obj_added;
	struct list_node groups; /* skein_mcast.ctx_link */
	struct list_node parked; /* mcast_link.parked */
	unsigned n_parked;
	struct mcast_pool pool;
	/* All groups of the context; ctx->lock protects it. */
	struct list_node handles; /* skein_mcast.handle_link */
};

/* A block that is being sent. */
struct mcast_block_op {
	struct conn_op op;
	struct mcast_link *link;
	struct mcast_op *user; /* NULL: free */
};

/* A small message that is being sent. */
struct mcast_small_op {
	struct conn_op op;
	struct mcast_link *link;
	struct mcast_op *user; /* NULL: free, or the group has been closed */
};

/* One connection of one group: one channel to a neighbour. */
struct mcast_link {
	struct skein_conn *conn;
	/* if this member dialled: the handle to close */
	struct skein_conn *handle;
	/* NULL: parked, or the group has been closed */
	struct skein_mcast *group;
	uint32_t nb;
	enum mcast_channel channel;
	bool dialled;
	bool ready; /* records and blocks may be posted */
	bool was_ready;
	bool orphan; /* if this member dialled: free it with its connection */
	struct mcast_section peer;
	struct mcast_rec_ring mem; /* the neighbour writes it */
	/* records are posted from it; none: they go inline */
	struct mcast_rec_ring mirror;
	uint32_t inline_max;
	uint32_t in, out;
	struct list_node parked;
	uint64_t parked_until_ns;
	struct mcast_block_op ops[MCAST_SENDS];
	struct mcast_small_op *small; /* the root: [slot] */
	struct conn_op fail_op;	      /* FAIL, the last record of a channel */
	unsigned n_early;
	struct {
		uint32_t value;
		struct mcast_rec rec;
	} early[MCAST_EARLY];
};

struct skein_mcast {
	struct mcast_port port;
	struct mcast_eng eng;
	struct mcast_ctx *mx;
	struct list_node ctx_link;
	struct list_node handle_link;
	struct skein_mcast_attr attr; /* members and racks are copies */
	char **members;
	uint32_t *racks; /* by_rack's storage follows */
	struct mcast_racks by_rack;
	uint64_t list, params;
	uint64_t pair; /* names this opening of the group in its offers */
	/* [neighbour][channel]; NULL: no connection */
	struct mcast_link *(*links)[MCAST_CHANNELS];
	bool kicked;	      /* the next round may move something */
	uint64_t deadline_ns; /* the engine's deadline after its last round */
	uint64_t moved_ns;
	struct skein_mcast_failure why;
	struct skein_mem *resumed; /* memory of the resumed object */
	uint64_t resumed_off;
	char why_text[256];

	/* any thread */
	atomic_bool up, closed, quiet, detached, finished, leaving;
	atomic_int over, abort_err;
	struct engine_call start_call, finish_call, close_call, abort_call,
		leave_call;
	atomic_bool left; /* eng.left is valid */
	_Atomic(uint64_t) accepted, delivered;
	atomic_uint calls; /* calls on their way to the engine */
	struct env_mutex lock;
	struct skein_mcast_stats stats; /* under the lock */
	struct list_node spares;	/* spare calls of call.c */
	unsigned n_spares;
};

static inline struct skein_env *mcast_env(const struct skein_mcast *g)
{
	return g->mx->ctx->env;
}

/* module.c */
extern const struct conn_module mcast_module;
/* A connection of an open group has come: the engine may use it. */
void mcast_link_attach(struct mcast_link *link, struct skein_mcast *g,
		       uint32_t nb);
/* Takes the parked connections of this group. */
void mcast_parked_adopt(struct skein_mcast *g);
void mcast_parked_expire(struct mcast_ctx *mx, uint64_t now_ns);
uint64_t mcast_parked_deadline(const struct mcast_ctx *mx);
/* Opens the connections to a neighbour of higher rank. Blocks for the name
 * look-up. Any thread but the engine's owner, once. */
int mcast_link_dial(struct skein_mcast *g, uint32_t nb);

/* Closes dialled connections that were never ready; blocks. The group has left
 * its engine. */
void mcast_link_drop(struct skein_mcast *g, uint32_t nb);

/* post.c */
int mcast_post_record(struct mcast_link *link, const struct mcast_rec *rec);
int mcast_post_small(struct mcast_link *link, const struct mcast_buf *from,
		     uint32_t len, uint64_t to, uint32_t rkey, uint32_t slot,
		     struct mcast_op *op);
int mcast_post_block(struct mcast_link *link, const struct mcast_rec *rec,
		     const struct mcast_buf *from, uint64_t to, uint32_t rkey,
		     struct mcast_op *op);

/* api.c: as skein_mcast_open_async(). part: the resumed object, or NULL. */
int mcast_group_open(struct skein_ctx *ctx, const struct skein_mcast_attr *attr,
		     const struct skein_mcast_part *part,
		     struct skein_mcast **group);

static inline void mcast_call_ended(struct skein_mcast *g)
{
	/* Release: the thread that closes the group frees it after it reads 0. */
	atomic_fetch_sub_explicit(&g->calls, 1, memory_order_release);
}

/* call.c: any thread. 0 or -ENOMEM. */
int mcast_call_send(struct skein_mcast *g, struct skein_mem *mem, uint64_t off,
		    uint64_t size, void *tag);
int mcast_call_block_done(struct skein_mcast *g, uint64_t seq, uint32_t block,
			  int status);
/* A message that mcast_call_send() has queued leaves the queue. */
void mcast_out_put(struct skein_mcast *g, struct mcast_out *out);
/* No call may be under way. */
void mcast_calls_free(struct skein_mcast *g);

/* part.c */
/* a flag of the handshake section: the group resumes an object */
#define MCAST_PARAMS_RESUME (1u << 31)
/* Reads `part` for the engine. Any thread, before the group runs. */
int mcast_part_take(struct skein_mcast *g, const struct skein_mcast_part *part);
/* The rest, by the engine's owner, before the group runs. */
void mcast_part_start(struct skein_mcast *g);

/* group.c */
extern const struct mcast_port_ops mcast_group_port;
/* The context's progress object. */
void mcast_ctx_run(struct mcast_ctx *mx);
void mcast_ctx_rest(struct mcast_ctx *mx);
/* The group joins its engine. */
void mcast_group_start(struct skein_mcast *g);
/* The group leaves it and gives its links away. */
void mcast_group_leave(struct skein_mcast *g);
static inline void mcast_group_kick(struct skein_mcast *g)
{
	g->kicked = true;
}
struct skein_mcast *mcast_group_find(struct mcast_ctx *mx,
				     const struct mcast_section *s);

#endif
