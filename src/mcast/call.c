/* SPDX-License-Identifier: MIT */
/*
 * call.c - messages and finished blocks on their way to the engine. The calling
 * thread passes them on itself if it owns the engine; else the engine's owner
 * does.
 *
 * A message stays in the engine's queue until its turn comes. Then its memory
 * becomes spare, as that of a finished block does. A group keeps MCAST_SPARES
 * of them under its lock, so a steady flow of messages allocates nothing.
 */
#include <errno.h>

#include "conn/mem/mem_handle.h"
#include "mcast/state.h"

#define MCAST_SPARES 64u

struct mcast_call {
	struct engine_call call;
	struct skein_mcast *g;
	bool sends; /* a message; else a finished block */
	struct mcast_out out;
	struct skein_mem *mem;
	uint64_t off, seq;
	uint32_t block;
	int status;
	struct list_node spare;
};

/* --- memory ------------------------------------------------------------- */

static struct mcast_call *call_get(struct skein_mcast *g)
{
	struct skein_env *env = mcast_env(g);
	struct list_node *n;
	struct mcast_call *c;

	env_mutex_lock(env, &g->lock);
	n = list_pop_head(&g->spares);
	g->n_spares -= n != NULL;
	env_mutex_unlock(env, &g->lock);
	if (!n)
		return env_alloc(env, sizeof(*c));
	c = container_of(n, struct mcast_call, spare);
	*c = (struct mcast_call){0};
	return c;
}

static void call_put(struct skein_mcast *g, struct mcast_call *c)
{
	struct skein_env *env = mcast_env(g);
	bool keep;

	env_mutex_lock(env, &g->lock);
	keep = g->n_spares < MCAST_SPARES;
	if (keep)
		list_add_tail(&g->spares, &c->spare);
	g->n_spares += keep;
	env_mutex_unlock(env, &g->lock);
	if (!keep)
		env_free(env, c);
}

void mcast_out_put(struct skein_mcast *g, struct mcast_out *out)
{
	call_put(g, container_of(out, struct mcast_call, out));
}

void mcast_calls_free(struct skein_mcast *g)
{
	struct list_node *n;

	while ((n = list_pop_head(&g->spares)))
		env_free(mcast_env(g),
			 container_of(n, struct mcast_call, spare));
}

/* --- in the engine ------------------------------------------------------ */

static void do_send(struct skein_mcast *g, struct mcast_call *c)
{
	struct mcast_eng *e = &g->eng;
	struct mcast_out *out = &c->out;
	struct skein_mcast_msg msg;
	int rc = 0;

	if (c->mem) {
		rc = mem_keys(c->mem, &out->buf.lkey, &out->buf.rkey);
		out->buf.addr = (uint8_t *)skein_mem_addr(c->mem) + c->off;
	}
	if (rc)
		mcast_eng_fail(e, e->conf.rank, rc, e->conf.rank);
	if (!e->ended) {
		mcast_eng_send(e, out);
		return;
	}
	/* The failure has already ended all messages before this one. */
	mcast_msg_set(e, &msg, e->done++, out->size, out->tag);
	mcast_out_put(g, out);
	mcast_left_keep(e, &msg, NULL);
	e->port->ops->done(e->port, &msg, e->over);
}

static void run_call(struct skein_mcast *g, struct mcast_call *c)
{
	if (c->sends) {
		do_send(g, c);
	} else {
		mcast_eng_block_done(&g->eng, c->seq, c->block, c->status);
		call_put(g, c);
	}
	mcast_group_kick(g);
}

static void call_fn(struct engine_call *call)
{
	struct mcast_call *c = container_of(call, struct mcast_call, call);
	struct skein_mcast *g = c->g;

	run_call(g, c);
	mcast_call_ended(g);
}

static void call_start(struct skein_mcast *g, struct mcast_call *c)
{
	struct engine *e = g->mx->ctx->engine->e;

	if (engine_is_owner(e)) {
		run_call(g, c);
		return;
	}
	c->g = g;
	c->call.fn = call_fn;
	atomic_fetch_add_explicit(&g->calls, 1, memory_order_relaxed);
	engine_post(e, &c->call);
}

/* --- any thread --------------------------------------------------------- */

int mcast_call_send(struct skein_mcast *g, struct skein_mem *mem, uint64_t off,
		    uint64_t size, void *tag)
{
	struct mcast_call *c = call_get(g);

	if (!c)
		return -ENOMEM;
	c->sends = true;
	c->mem = mem;
	c->off = off;
	c->out.size = size;
	c->out.tag = tag;
	call_start(g, c);
	return 0;
}

int mcast_call_block_done(struct skein_mcast *g, uint64_t seq, uint32_t block,
			  int status)
{
	struct mcast_call *c;

	if (engine_is_owner(g->mx->ctx->engine->e)) {
		mcast_eng_block_done(&g->eng, seq, block, status);
		mcast_group_kick(g);
		return 0;
	}
	c = call_get(g);
	if (!c)
		return -ENOMEM;
	c->seq = seq;
	c->block = block;
	c->status = status;
	call_start(g, c);
	return 0;
}
