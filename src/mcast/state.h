/* SPDX-License-Identifier: MIT */
/*
 * state.h - what multicast keeps of a context, of a connection and of a group:
 * the engine of eng.h put onto connections.
 *
 *	module.c	connections: handshake, records that come, the end
 *	pool.c		the memory that they write records into
 *	post.c		work requests
 *	group.c		a group's life in its engine: rounds, sleep, callbacks
 *	api.c		the public calls, by any thread
 *	call.c		... messages and blocks on their way to the engine
 *	part.c		... those that resume
 *
 * Thread rule: the owner of the context's default engine, but for what says
 * otherwise.
 */
#ifndef SKEIN_MCAST_STATE_H
#define SKEIN_MCAST_STATE_H

#include <stdatomic.h>

#include "conn/ctx.h"
#include "mcast/eng.h"
#include "mcast/pool.h"

/* Connections of groups that are not open here yet. */
#define MCAST_PARKED_MAX 2048u
#define MCAST_PARKED_NS (60 * 1000 * 1000 * 1000ull)
/* All that a member says in a channel before the other has said HELLO: that, and
 * FAIL. */
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
	/* All groups of the context, for its end; under its lock. */
	struct list_node handles; /* skein_mcast.handle_link */
};

/* A block under way. */
struct mcast_block_op {
	struct conn_op op;
	struct mcast_link *link;
	struct mcast_op *user; /* NULL: free */
};

/* A small message under way. */
struct mcast_small_op {
	struct conn_op op;
	struct mcast_link *link;
	struct mcast_op *user; /* NULL: free, or the group has left */
};

/* One connection of one group: a channel of a neighbour's link. */
struct mcast_link {
	struct skein_conn *conn;
	struct skein_conn *handle; /* dialled: the same, of who dialled */
	struct skein_mcast *group; /* NULL: parked, or the group has left */
	uint32_t nb;
	enum mcast_channel channel;
	bool dialled;
	bool ready; /* posts are allowed */
	bool was_ready;
	bool orphan; /* dialled: freed with its connection */
	struct mcast_section peer;
	struct mcast_rec_ring mem;    /* its peer writes */
	struct mcast_rec_ring mirror; /* ... it writes from; none: inline */
	uint32_t inline_max;
	uint32_t in, out;
	struct list_node parked;
	uint64_t parked_until_ns;
	struct mcast_block_op ops[MCAST_SENDS];
	struct mcast_small_op *small; /* the root's, of each slot */
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
	struct skein_mcast_attr attr; /* members and racks: copies */
	char **members;
	uint32_t *racks; /* with the storage of the next */
	struct mcast_racks by_rack;
	uint64_t list, params;
	uint64_t pair; /* names this opening in its offers */
	/* of each neighbour; NULL: none now */
	struct mcast_link *(*links)[MCAST_CHANNELS];
	bool kicked;	      /* a round may move something */
	uint64_t deadline_ns; /* of the engine, after its last round */
	uint64_t moved_ns;
	struct skein_mcast_failure why;
	struct skein_mem *resumed; /* where what is resumed is */
	uint64_t resumed_off;
	char why_text[256];

	/* any thread */
	atomic_bool up, closed, quiet, detached, finished, leaving;
	atomic_int over, abort_err;
	struct engine_call start_call, finish_call, close_call, abort_call,
		leave_call;
	atomic_bool left; /* the engine's: is there */
	_Atomic(uint64_t) accepted, delivered;
	atomic_uint calls; /* on their way to the engine */
	struct env_mutex lock;
	struct skein_mcast_stats stats; /* under the lock */
	struct list_node spares;	/* ... of call.c */
	unsigned n_spares;
};

static inline struct skein_env *mcast_env(const struct skein_mcast *g)
{
	return g->mx->ctx->env;
}

/* module.c */
extern const struct conn_module mcast_module;
/* A connection of a group that is open: the engine may use it. */
void mcast_link_attach(struct mcast_link *link, struct skein_mcast *g,
		       uint32_t nb);
/* Takes those connections that came before the group was opened. */
void mcast_parked_adopt(struct skein_mcast *g);
void mcast_parked_expire(struct mcast_ctx *mx, uint64_t now_ns);
uint64_t mcast_parked_deadline(const struct mcast_ctx *mx);
/* Opens the connections to a neighbour of higher rank. Blocks for name look-up;
 * any thread but the engine's, once. */
int mcast_link_dial(struct skein_mcast *g, uint32_t nb);

/* Connections that never were ready; blocks. The group has left. */
void mcast_link_drop(struct skein_mcast *g, uint32_t nb);

/* post.c */
int mcast_post_record(struct mcast_link *link, const struct mcast_rec *rec);
int mcast_post_small(struct mcast_link *link, const struct mcast_buf *from,
		     uint32_t len, uint64_t to, uint32_t rkey, uint32_t slot,
		     struct mcast_op *op);
int mcast_post_block(struct mcast_link *link, const struct mcast_rec *rec,
		     const struct mcast_buf *from, uint64_t to, uint32_t rkey,
		     struct mcast_op *op);

/* api.c: as skein_mcast_open_async(); part: of what is resumed, or NULL. */
int mcast_group_open(struct skein_ctx *ctx, const struct skein_mcast_attr *attr,
		     const struct skein_mcast_part *part,
		     struct skein_mcast **group);

static inline void mcast_call_ended(struct skein_mcast *g)
{
	/* Release: the closer frees the group behind it. */
	atomic_fetch_sub_explicit(&g->calls, 1, memory_order_release);
}

/* call.c: any thread. 0 or -ENOMEM. */
int mcast_call_send(struct skein_mcast *g, struct skein_mem *mem, uint64_t off,
		    uint64_t size, void *tag);
int mcast_call_block_done(struct skein_mcast *g, uint64_t seq, uint32_t block,
			  int status);
/* A message that mcast_call_send() has queued leaves the queue. */
void mcast_out_put(struct skein_mcast *g, struct mcast_out *out);
/* Nobody calls any more. */
void mcast_calls_free(struct skein_mcast *g);

/* part.c */
#define MCAST_PARAMS_RESUME (1u << 31) /* among the flags of the section */
/* Reads what part says is there, for the engine. Any thread; the group does not
 * run yet. */
int mcast_part_take(struct skein_mcast *g, const struct skein_mcast_part *part);
/* What is asked of the engine's owner for it, before the group runs. */
void mcast_part_start(struct skein_mcast *g);

/* group.c */
extern const struct mcast_port_ops mcast_group_port;
/* The context's progress object. */
void mcast_ctx_run(struct mcast_ctx *mx);
void mcast_ctx_rest(struct mcast_ctx *mx);
/* The group begins to run in its engine. */
void mcast_group_start(struct skein_mcast *g);
/* ... and leaves it: its links are given away. */
void mcast_group_leave(struct skein_mcast *g);
static inline void mcast_group_kick(struct skein_mcast *g)
{
	g->kicked = true;
}
struct skein_mcast *mcast_group_find(struct mcast_ctx *mx,
				     const struct mcast_section *s);

#endif
