/* SPDX-License-Identifier: MIT */
/*
 * group.c - a group in its context's default engine: one progress object runs
 * all groups of the context in turn, each by at most one block a round, so they
 * share the device fairly. It also implements the port of eng.h.
 */
#include <errno.h>
#include <stdio.h>

#include "conn/mem/mem_handle.h"
#include "mcast/state.h"

static struct skein_mcast *group_of(struct mcast_port *port)
{
	return container_of(port, struct skein_mcast, port);
}

/* --- the port: links and memory ----------------------------------------- */

static int port_record(struct mcast_port *port, uint32_t nb,
		       enum mcast_channel channel, const struct mcast_rec *rec)
{
	struct mcast_link *link = group_of(port)->links[nb][channel];

	return link ? mcast_post_record(link, rec) : -EAGAIN;
}

static int port_block(struct mcast_port *port, uint32_t nb,
		      const struct mcast_rec *rec, const struct mcast_buf *from,
		      uint64_t to, uint32_t rkey, struct mcast_op *op)
{
	struct mcast_link *link = group_of(port)->links[nb][MCAST_BLOCKS];

	return link ? mcast_post_block(link, rec, from, to, rkey, op) : -EAGAIN;
}

static int port_small(struct mcast_port *port, uint32_t nb,
		      const struct mcast_buf *from, uint32_t len, uint64_t to,
		      uint32_t rkey, uint32_t slot, struct mcast_op *op)
{
	struct mcast_link *link = group_of(port)->links[nb][MCAST_WORDS];

	return link ? mcast_post_small(link, from, len, to, rkey, slot, op)
		    : -EAGAIN;
}

static void port_cut(struct mcast_port *port, uint32_t nb, int err)
{
	struct skein_mcast *g = group_of(port);
	struct mcast_link *link;

	for (unsigned channel = 0; channel < MCAST_CHANNELS; channel++) {
		link = g->links[nb][channel];
		if (link && link->was_ready)
			conn_break(link->conn, err, "mcast: %s",
				   g->eng.wrong ? g->eng.wrong
						: "it does not end its part");
	}
}

static void *port_alloc(struct mcast_port *port, size_t len)
{
	return env_alloc(mcast_env(group_of(port)), len);
}

static void port_free(struct mcast_port *port, void *p)
{
	env_free(mcast_env(group_of(port)), p);
}

static void port_out_free(struct mcast_port *port, struct mcast_out *out)
{
	mcast_out_put(group_of(port), out);
}

static int port_mem_get(struct mcast_port *port, size_t len,
			struct mcast_buf *buf, void **handle)
{
	struct mem_region *r;
	int rc = mcast_pool_region_get(&group_of(port)->mx->pool, len, &r);

	if (rc)
		return rc;
	*buf = (struct mcast_buf){r->addr, r->mr->lkey, r->mr->rkey};
	*handle = r;
	return 0;
}

static void port_mem_put(struct mcast_port *port, void *handle)
{
	const struct skein_mcast *g = group_of(port);

	/* A neighbour may still be writing if the group failed. */
	mcast_pool_region_put(&g->mx->pool, handle,
			      g->eng.closed && !g->eng.over);
}

/* --- the port: the application ------------------------------------------ */

/* What a callback of the application returned. A positive value other than
 * SKEIN_MCAST_LATER is an error. */
static int answer(int rc)
{
	return rc > 0 && rc != SKEIN_MCAST_LATER ? -EINVAL : rc;
}

static int dest_take(struct skein_mcast *g, const struct skein_mcast_msg *msg,
		     const struct skein_mcast_dest *from, struct mcast_dest *to)
{
	size_t len = from->mem ? skein_mem_len(from->mem) : 0;
	int rc;

	to->tag = from->tag;
	if (!from->mem || !msg->size)
		return !msg->size || g->attr.ops.block ? 0 : -EINVAL;
	if (from->mem->ctx != g->mx->ctx)
		return -EINVAL;
	if (from->off > len || msg->size > len - from->off)
		return -ERANGE;
	rc = mem_keys(from->mem, &to->buf.lkey, &to->buf.rkey);
	to->buf.addr = (uint8_t *)skein_mem_addr(from->mem) + from->off;
	return rc;
}

static int port_incoming(struct mcast_port *port,
			 const struct skein_mcast_msg *msg,
			 struct mcast_dest *dest)
{
	struct skein_mcast *g = group_of(port);
	struct skein_mcast_dest to = {0};
	int rc = 0;

	if (g->attr.ops.incoming)
		rc = g->attr.ops.incoming(g->attr.arg, g, msg, &to);
	if (rc)
		return rc > 0 ? -EINVAL : rc;
	dest->err = dest_take(g, msg, &to, dest);
	return 0;
}

static int port_block_in(struct mcast_port *port,
			 const struct skein_mcast_msg *msg,
			 const struct skein_mcast_block *block)
{
	struct skein_mcast *g = group_of(port);

	return answer(g->attr.ops.block(g->attr.arg, g, msg, block));
}

static int port_fill(struct mcast_port *port, const struct skein_mcast_msg *msg,
		     const struct skein_mcast_block *block)
{
	struct skein_mcast *g = group_of(port);

	return answer(g->attr.ops.fill(g->attr.arg, g, msg, block));
}

static void port_done(struct mcast_port *port,
		      const struct skein_mcast_msg *msg, int status)
{
	struct skein_mcast *g = group_of(port);

	/* Release: pairs with the acquire in skein_mcast_have(), which reads
	 * eng.left. */
	if (g->eng.left.is)
		atomic_store_explicit(&g->left, true, memory_order_release);
	if (g->attr.ops.done)
		g->attr.ops.done(g->attr.arg, g, msg, status);
}

static void port_failed(struct mcast_port *port)
{
	struct skein_mcast *g = group_of(port);

	if (g->attr.ops.failed)
		g->attr.ops.failed(g->attr.arg, g, &g->why);
}

static void log_failure(struct skein_mcast *g)
{
	const struct mcast_eng *e = &g->eng;
	char by[32] = "", lost[64] = "";

	if (e->over_by != e->over_rank)
		snprintf(by, sizeof(by), " (noticed by member %u)", e->over_by);
	if (e->over_lost)
		snprintf(lost, sizeof(lost),
			 ": %u blocks are lost, no member has them",
			 e->over_lost);
	g->why =
		(struct skein_mcast_failure){.err = e->over,
					     .rank = e->over_rank,
					     .member = g->members[e->over_rank],
					     .text = g->why_text};
	snprintf(g->why_text, sizeof(g->why_text),
		 "multicast group %u: member %u, %.80s, failed: %s%s%s%s%s",
		 g->attr.number, e->over_rank, g->why.member,
		 skein_strerror(e->over), e->wrong ? ": it sent " : "",
		 e->wrong ? e->wrong : "", lost, by);
	env_log(mcast_env(g), ENV_LOG_WARN, "%s", g->why_text);
}

static void port_changed(struct mcast_port *port)
{
	struct skein_mcast *g = group_of(port);
	const struct mcast_eng *e = &g->eng;

	atomic_store_explicit(&g->up, e->up || !e->n_nbs, memory_order_relaxed);
	atomic_store_explicit(&g->delivered, e->delivered,
			      memory_order_relaxed);
	atomic_store_explicit(&g->closed, e->closed, memory_order_relaxed);
	if (!e->over || atomic_load_explicit(&g->over, memory_order_relaxed))
		return;
	log_failure(g);
	/* Release: pairs with over_of(); its callers read g->why. */
	atomic_store_explicit(&g->over, e->over, memory_order_release);
}

const struct mcast_port_ops mcast_group_port = {
	.record = port_record,
	.block = port_block,
	.small = port_small,
	.cut = port_cut,
	.alloc = port_alloc,
	.free = port_free,
	.out_free = port_out_free,
	.mem_get = port_mem_get,
	.mem_put = port_mem_put,
	.incoming = port_incoming,
	.block_in = port_block_in,
	.fill = port_fill,
	.done = port_done,
	.failed = port_failed,
	.changed = port_changed,
};

/* --- rounds and sleep --------------------------------------------------- */

static struct mcast_ctx *ctx_of(struct engine_obj *obj)
{
	return container_of(obj, struct mcast_ctx, obj);
}

static void publish(struct skein_mcast *g)
{
	struct mcast_eng *e = &g->eng;
	struct skein_mcast_stats *s = &e->stats;

	s->delivered = e->delivered;
	s->blocks_lost = e->over_lost;
	s->current = e->done;
	s->current_blocks = e->x.active ? e->x.msg.blocks : 0;
	s->current_have = e->x.active ? e->x.n_have : 0;
	env_mutex_lock(mcast_env(g), &g->lock);
	g->stats = *s;
	env_mutex_unlock(mcast_env(g), &g->lock);
}

static int group_poll(struct skein_mcast *g, uint64_t now_ns)
{
	int moved;

	if (!g->kicked && now_ns < g->deadline_ns)
		return 0;
	moved = mcast_eng_poll(&g->eng, now_ns);
	/* After a move another one may be possible. */
	g->kicked = moved != 0;
	if (moved) {
		g->moved_ns = now_ns;
		return moved;
	}
	g->deadline_ns = mcast_eng_deadline(&g->eng);
	publish(g);
	atomic_store_explicit(&g->quiet, mcast_eng_quiet(&g->eng),
			      memory_order_release);
	return 0;
}

static int obj_poll(struct engine_obj *obj, uint64_t now_ns)
{
	struct mcast_ctx *mx = ctx_of(obj);
	struct list_node *n, *next;
	int moved = 0;

	list_for_each_safe(n, next, &mx->groups)
		moved += group_poll(
			container_of(n, struct skein_mcast, ctx_link), now_ns);
	if (!list_empty(&mx->parked))
		mcast_parked_expire(mx, now_ns);
	return moved;
}

static int obj_arm(struct engine_obj *obj)
{
	struct mcast_ctx *mx = ctx_of(obj);
	struct skein_mcast *g;
	struct list_node *n;

	list_for_each(n, &mx->groups) {
		g = container_of(n, struct skein_mcast, ctx_link);
		if (g->kicked || mcast_eng_has_work(&g->eng))
			return g->kicked = true;
		/* RDMC polls for 50 ms after each completion. We do not if that
		 * takes the core from a process that has something to send
		 * us. */
		if (g->attr.poll_ns > 1 && mcast_eng_waits(&g->eng) &&
		    !env_core_wanted(mcast_env(g), engine_waiter(mx->engine)) &&
		    engine_now_ns(mx->engine) - g->moved_ns < g->attr.poll_ns)
			return 1;
	}
	return 0;
}

static uint64_t obj_deadline(struct engine_obj *obj)
{
	struct mcast_ctx *mx = ctx_of(obj);
	uint64_t t = mcast_parked_deadline(mx);
	struct skein_mcast *g;
	struct list_node *n;

	list_for_each(n, &mx->groups) {
		g = container_of(n, struct skein_mcast, ctx_link);
		if (g->deadline_ns < t)
			t = g->deadline_ns;
	}
	return t;
}

static const struct engine_obj_ops obj_ops = {
	.poll = obj_poll,
	.arm = obj_arm,
	.next_deadline = obj_deadline,
};

/* --- in and out --------------------------------------------------------- */

struct skein_mcast *mcast_group_find(struct mcast_ctx *mx,
				     const struct mcast_section *s)
{
	struct skein_mcast *g;
	struct list_node *n;

	list_for_each(n, &mx->groups) {
		g = container_of(n, struct skein_mcast, ctx_link);
		if (g->attr.number == s->number && g->list == s->list &&
		    g->eng.conf.rank == s->to)
			return g;
	}
	return NULL;
}

void mcast_ctx_run(struct mcast_ctx *mx)
{
	if (mx->obj_added)
		return;
	mx->engine = mx->ctx->engine->e;
	mx->obj.ops = &obj_ops;
	engine_add(mx->engine, &mx->obj);
	mx->obj_added = true;
}

void mcast_ctx_rest(struct mcast_ctx *mx)
{
	if (!mx->obj_added)
		return;
	engine_del(mx->engine, &mx->obj);
	mx->obj_added = false;
}

void mcast_group_start(struct skein_mcast *g)
{
	struct mcast_ctx *mx = g->mx;

	mcast_ctx_run(mx);
	list_add_tail(&mx->groups, &g->ctx_link);
	g->moved_ns = engine_now_ns(mx->engine);
	mcast_parked_adopt(g);
	mcast_group_kick(g);
}

/* The engine gives a link up. A link that was ready closes by itself;
 * mcast_link_drop() closes one that was not. */
static void link_leave(struct mcast_link **place)
{
	struct mcast_link *link = *place;

	if (!link)
		return;
	link->group = NULL;
	for (unsigned i = 0; link->small && i < MCAST_SLOT_MAX; i++)
		link->small[i].user = NULL;
	if (!link->dialled) {
		*place = NULL;
		return;
	}
	if (!link->was_ready)
		return;
	*place = NULL;
	link->orphan = true;
	skein_conn_close(link->handle, 0);
}

void mcast_group_leave(struct skein_mcast *g)
{
	for (uint32_t i = 0; i < g->eng.n_nbs; i++)
		for (unsigned channel = 0; channel < MCAST_CHANNELS; channel++)
			link_leave(&g->links[i][channel]);
	list_del(&g->ctx_link);
	if (list_empty(&g->mx->groups) && list_empty(&g->mx->parked))
		mcast_ctx_rest(g->mx);
}
