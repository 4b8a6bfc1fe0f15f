/* SPDX-License-Identifier: MIT */
/*
 * module.c - multicast as a module of connections: its section of the
 * handshake, incoming records, and connections that come before their group is
 * opened. docs/protocol/mcast.md, sections 1 to 3.
 */
#include <errno.h>

#include "base/assert.h"
#include "mcast/state.h"

/* --- context ------------------------------------------------------------ */

static int mcast_ctx_open(struct skein_ctx *ctx, void **state)
{
	struct mcast_ctx *mx = env_alloc(ctx->env, sizeof(*mx));

	if (!mx)
		return -ENOMEM;
	mx->ctx = ctx;
	list_init(&mx->groups);
	list_init(&mx->parked);
	list_init(&mx->handles);
	mcast_pool_init(&mx->pool, ctx);
	*state = mx;
	return 0;
}

/* Closes groups that the application left open. */
static void mcast_ctx_stop(struct skein_ctx *ctx, void *state)
{
	struct mcast_ctx *mx = state;

	while (!list_empty(&mx->handles))
		skein_mcast_close(container_of(mx->handles.next,
					       struct skein_mcast, handle_link),
				  0);
	if (engine_enter(ctx->engine->e, ENV_NEVER) == 0) {
		mcast_ctx_rest(mx);
		engine_leave(ctx->engine->e);
	}
}

static void mcast_ctx_close(struct skein_ctx *ctx, void *state)
{
	struct mcast_ctx *mx = state;

	mcast_pool_fini(&mx->pool);
	env_free(ctx->env, mx);
}

/* --- links -------------------------------------------------------------- */

static void link_free(struct mcast_link *link)
{
	struct skein_env *env = conn_env(link->conn);

	env_free(env, link->small);
	env_free(env, link);
}

static struct mcast_pool *pool_of(struct skein_conn *conn)
{
	struct mcast_ctx *mx =
		conn_ctx_module(conn_ctx(conn), CONN_MODULE_MCAST);

	return &mx->pool;
}

/* There is no QP any more, or none yet. */
static void mem_put(struct mcast_link *link, struct skein_conn *conn)
{
	mcast_pool_put(pool_of(conn), &link->mem, !conn_stuck(conn));
	mcast_pool_put(pool_of(conn), &link->mirror, !conn_stuck(conn));
}

/* Before a handshake: a fresh ring, and a second one if records are posted from
 * memory. */
static int link_prepare(struct mcast_link *link, struct skein_conn *conn)
{
	int rc;

	mem_put(link, conn);
	link->conn = conn;
	link->in = link->out = 0;
	link->inline_max = conn_inline_max(conn);
	rc = mcast_pool_get(pool_of(conn), &link->mem);
	if (rc == 0 && link->inline_max < sizeof(struct mcast_rec))
		rc = mcast_pool_get(pool_of(conn), &link->mirror);
	if (rc)
		mem_put(link, conn);
	return rc;
}

static void unpark(struct mcast_link *link, struct mcast_ctx *mx)
{
	if (!list_linked(&link->parked))
		return;
	list_del(&link->parked);
	mx->n_parked--;
}

/* Passes the early records to the engine. */
static void deliver_early(struct mcast_link *link)
{
	struct skein_mcast *g = link->group;

	for (unsigned i = 0; i < link->n_early; i++)
		mcast_eng_record(&g->eng, link->nb, link->channel,
				 link->early[i].value, &link->early[i].rec,
				 engine_now_ns(g->mx->engine));
	link->n_early = 0;
}

/* Reports a neighbour to the engine once all its channels are ready. */
static void both_up(struct skein_mcast *g, uint32_t nb)
{
	struct mcast_link **channels = g->links[nb];

	for (unsigned i = 0; i < g->eng.nbs[nb].channels; i++)
		if (!channels[i] || !channels[i]->ready)
			return;
	if (g->eng.nbs[nb].up || g->eng.nbs[nb].down)
		return;
	if (!g->attr.member_timeout_ns)
		mcast_eng_patience(&g->eng,
				   conn_patience_ns(channels[0]->conn));
	mcast_eng_link_up(&g->eng, nb, engine_now_ns(g->mx->engine));
	for (unsigned i = 0; i < g->eng.nbs[nb].channels; i++)
		deliver_early(channels[i]);
	mcast_group_kick(g);
}

void mcast_link_attach(struct mcast_link *link, struct skein_mcast *g,
		       uint32_t nb)
{
	unpark(link, g->mx);
	link->group = g;
	link->nb = nb;
	g->links[nb][link->channel] = link;
	if (link->peer.params != g->params)
		mcast_eng_fail(&g->eng, link->peer.from, -EINVAL,
			       g->eng.conf.rank);
	both_up(g, nb);
}

/* The neighbour to which a connection with this section belongs. MCAST_NONE: no
 * neighbour of this group; or the neighbour has this channel already; or the
 * connection is of another opening, that is, of an earlier process or of a
 * later group of the same name. */
static uint32_t place_of(const struct skein_mcast *g,
			 const struct mcast_section *s)
{
	uint32_t nb = mcast_nb_find(&g->eng, s->from);
	const struct mcast_link *other;

	if (nb == MCAST_NONE || s->from > s->to || g->links[nb][s->channel] ||
	    s->channel >= g->eng.nbs[nb].channels || g->eng.nbs[nb].down ||
	    g->eng.closed)
		return MCAST_NONE;
	other = g->links[nb][!s->channel];
	return other && other->peer.pair != s->pair ? MCAST_NONE : nb;
}

void mcast_parked_adopt(struct skein_mcast *g)
{
	struct list_node *n, *next;
	struct mcast_link *link;
	uint32_t nb;

	list_for_each_safe(n, next, &g->mx->parked) {
		link = container_of(n, struct mcast_link, parked);
		if (link->peer.number != g->attr.number ||
		    link->peer.list != g->list ||
		    link->peer.to != g->eng.conf.rank)
			continue;
		nb = place_of(g, &link->peer);
		if (nb != MCAST_NONE)
			mcast_link_attach(link, g, nb);
	}
}

void mcast_parked_expire(struct mcast_ctx *mx, uint64_t now_ns)
{
	struct list_node *n, *next;
	struct mcast_link *link;

	list_for_each_safe(n, next, &mx->parked) {
		link = container_of(n, struct mcast_link, parked);
		if (now_ns < link->parked_until_ns)
			return; /* the list is in the order of arrival */
		unpark(link, mx);
		conn_break(link->conn, -ETIMEDOUT,
			   "the group that it is for was not opened here");
	}
}

uint64_t mcast_parked_deadline(const struct mcast_ctx *mx)
{
	if (list_empty(&mx->parked))
		return ENV_NEVER;
	return container_of(mx->parked.next, struct mcast_link, parked)
		->parked_until_ns;
}

/* --- handshake ---------------------------------------------------------- */

static void section_put(const struct mcast_link *link, uint64_t params,
			uint32_t from, uint32_t to, struct bytes_out *out)
{
	struct mcast_section s = link->peer;

	s.params = params;
	s.from = from;
	s.to = to;
	s.addr = (uint64_t)(uintptr_t)link->mem.recs;
	s.rkey = link->mem.rkey;
	mcast_section_put(&s, out);
}

static int mcast_offer(struct skein_conn *conn, struct bytes_out *out)
{
	struct mcast_link *link = conn_sole_arg(conn);
	struct skein_mcast *g = link->group;
	int rc;

	if (!g)
		return -ESHUTDOWN;
	rc = link_prepare(link, conn);
	if (rc)
		return rc;
	conn_module_set(conn, CONN_MODULE_MCAST, link);
	link->peer.number = g->attr.number;
	link->peer.list = g->list;
	link->peer.pair = g->pair;
	link->peer.channel = link->channel;
	section_put(link, g->params, g->eng.conf.rank,
		    g->eng.nbs[link->nb].rank, out);
	return 0;
}

static int park(struct mcast_ctx *mx, struct mcast_link *link)
{
	if (mx->n_parked == MCAST_PARKED_MAX)
		return -SKEIN_EBUSY;
	link->parked_until_ns =
		engine_now_ns(conn_engine(link->conn)) + MCAST_PARKED_NS;
	list_add_tail(&mx->parked, &link->parked);
	mx->n_parked++;
	mcast_ctx_run(mx);
	return 0;
}

static int mcast_accept(struct skein_conn *conn, struct bytes_in *in,
			struct bytes_out *out)
{
	struct mcast_ctx *mx =
		conn_ctx_module(conn_ctx(conn), CONN_MODULE_MCAST);
	struct mcast_section s;
	struct mcast_link *link;
	struct skein_mcast *g;
	uint32_t nb = MCAST_NONE;
	int rc;

	rc = mcast_section_get(&s, in);
	if (rc)
		return rc;
	/* Groups live in the default engine. */
	if (conn_engine(conn) != mx->ctx->engine->e)
		return -ENETUNREACH;
	link = env_alloc(conn_env(conn), sizeof(*link));
	if (!link)
		return -ENOMEM;
	rc = link_prepare(link, conn);
	if (rc) {
		link_free(link);
		return rc;
	}
	link->peer = s;
	link->channel = s.channel;
	conn_module_set(conn, CONN_MODULE_MCAST, link);
	g = mcast_group_find(mx, &s);
	if (g)
		nb = place_of(g, &s);
	section_put(link, g ? g->params : s.params, s.to, s.from, out);
	if (nb == MCAST_NONE)
		return park(mx, link);
	mcast_link_attach(link, g, nb);
	return 0;
}

static int mcast_confirm(struct skein_conn *conn, struct bytes_in *in)
{
	struct mcast_link *link = conn_module_state(conn, CONN_MODULE_MCAST);
	struct skein_mcast *g = link->group;
	struct mcast_section s;
	int rc;

	rc = mcast_section_get(&s, in);
	if (rc)
		return rc;
	if (!g)
		return -ESHUTDOWN;
	if (s.number != g->attr.number || s.list != g->list ||
	    s.pair != g->pair || s.channel != link->channel ||
	    s.to != g->eng.conf.rank || s.from != g->eng.nbs[link->nb].rank)
		return -SKEIN_EPEER;
	link->peer = s;
	return 0;
}

static void mcast_ready(struct skein_conn *conn)
{
	struct mcast_link *link = conn_module_state(conn, CONN_MODULE_MCAST);

	link->ready = link->was_ready = true;
	if (link->group)
		both_up(link->group, link->nb);
}

/* --- while it is up ----------------------------------------------------- */

/* A small message. The root sends none before it has this member's RING. */
static void small_in(struct skein_conn *conn, struct mcast_link *link,
		     uint32_t value, uint32_t byte_len)
{
	struct skein_mcast *g = link->group;

	if (!g && !list_linked(&link->parked))
		return; /* the group has been closed */
	if (!g || !g->eng.nbs[link->nb].up || link->channel != MCAST_WORDS) {
		conn_break(conn, -SKEIN_EPEER,
			   "mcast: a small message without a slot for it");
		return;
	}
	mcast_slot_in(&g->eng, link->nb, value, byte_len,
		      engine_now_ns(conn_engine(conn)));
	mcast_group_kick(g);
}

static void mcast_imm(struct skein_conn *conn, uint32_t imm, uint32_t byte_len)
{
	struct mcast_link *link = conn_module_state(conn, CONN_MODULE_MCAST);
	struct mcast_rec rec;

	if (CONN_IMM_VALUE(imm) >> 24 == MCAST_SMALL) {
		small_in(conn, link, CONN_IMM_VALUE(imm), byte_len);
		return;
	}
	rec = link->mem.recs[link->in++ % MCAST_RECORDS];
	/* A record has its own length. A block has the length that its record
	 * says; its record was written before it. */
	if (byte_len !=
	    (link->channel == MCAST_BLOCKS && rec.type == MCAST_BLOCK
		     ? rec.len
		     : sizeof(rec))) {
		conn_break(conn, -SKEIN_EPEER, "mcast: a record of %u bytes",
			   byte_len);
		return;
	}
	if (link->group && link->group->eng.nbs[link->nb].up) {
		mcast_eng_record(&link->group->eng, link->nb, link->channel,
				 CONN_IMM_VALUE(imm), &rec,
				 engine_now_ns(conn_engine(conn)));
		mcast_group_kick(link->group);
		return;
	}
	if (link->group ? link->group->eng.nbs[link->nb].down
			: !list_linked(&link->parked))
		/* the group has been closed, or the other channel is gone */
		return;
	if (link->n_early == MCAST_EARLY) {
		conn_break(conn, -SKEIN_EPEER,
			   "mcast: it goes on before we have said HELLO");
		return;
	}
	link->early[link->n_early].value = CONN_IMM_VALUE(imm);
	link->early[link->n_early++].rec = rec;
}

static void mcast_broken(struct skein_conn *conn, int err)
{
	struct mcast_link *link = conn_module_state(conn, CONN_MODULE_MCAST);
	struct mcast_ctx *mx =
		conn_ctx_module(conn_ctx(conn), CONN_MODULE_MCAST);
	struct skein_mcast *g = link->group;
	struct mcast_link *other;

	link->ready = false;
	unpark(link, mx);
	if (!g)
		return;
	other = g->links[link->nb][!link->channel];
	if (!other || !other->ready)
		mcast_eng_link_down(&g->eng, link->nb, err);
	else if (mcast_eng_channel_down(&g->eng, link->nb, err))
		conn_break(other->conn, err,
			   "mcast: its other connection "
			   "with this peer has broken");
	mcast_group_kick(g);
	if (link->dialled)
		return;
	g->links[link->nb][link->channel] = NULL;
	link->group = NULL;
}

static void mcast_closed(struct skein_conn *conn, void *state)
{
	struct mcast_ctx *mx =
		conn_ctx_module(conn_ctx(conn), CONN_MODULE_MCAST);
	struct mcast_link *link = state;

	unpark(link, mx);
	mem_put(link, conn);
	if (!link->dialled && link->group) {
		link->group->links[link->nb][link->channel] = NULL;
		link->group = NULL;
	}
	if (!link->dialled || link->orphan)
		link_free(link);
}

/* --- dialling ----------------------------------------------------------- */

/* Dialling has failed for good. (If a ready connection broke, mcast_broken()
 * has told the engine already.) */
static void on_state(void *arg, struct skein_conn *conn,
		     enum skein_conn_state state)
{
	struct mcast_link *link = arg;
	struct skein_mcast *g = link->group;

	if (state != SKEIN_CONN_BROKEN || !g)
		return;
	mcast_eng_fail(&g->eng, g->eng.nbs[link->nb].rank,
		       skein_conn_error(conn, NULL), g->eng.conf.rank);
	mcast_group_kick(g);
}

static bool link_put(struct skein_mcast *g, uint32_t nb,
		     enum mcast_channel channel)
{
	struct mcast_link *link = env_alloc(mcast_env(g), sizeof(*link));

	if (!link)
		return false;
	link->group = g;
	link->nb = nb;
	link->channel = channel;
	link->dialled = true;
	g->links[nb][channel] = link;
	if (g->attr.rank || !g->attr.slots || channel != MCAST_WORDS)
		return true;
	link->small =
		env_alloc(mcast_env(g), MCAST_SLOT_MAX * sizeof(*link->small));
	return link->small != NULL;
}

static int dial(struct skein_mcast *g, uint32_t nb, struct mcast_link *link)
{
	struct skein_conn_attr attr = {.size = sizeof(attr),
				       .timeout_ns = g->attr.open_timeout_ns,
				       .retries = UINT32_MAX,
				       .on_state = on_state,
				       .arg = link};

	return conn_open_sole(g->mx->ctx, g->members[g->eng.nbs[nb].rank],
			      &attr, &mcast_module, link, &link->handle);
}

int mcast_link_dial(struct skein_mcast *g, uint32_t nb)
{
	struct mcast_link **channels = g->links[nb];
	int rc = 0;

	/* Create all links before any is dialled: another thread may run the
	 * engine, and when one channel is ready it looks at the other. On
	 * failure mcast_link_drop() frees them. */
	for (unsigned i = 0; i < g->eng.nbs[nb].channels && !rc; i++)
		rc = link_put(g, nb, i) ? 0 : -ENOMEM;
	for (unsigned i = 0; i < g->eng.nbs[nb].channels && !rc; i++)
		rc = dial(g, nb, channels[i]);
	return rc;
}

static void drop(struct skein_mcast *g, struct mcast_link **place)
{
	struct mcast_link *link = *place;

	if (!link)
		return;
	skein_conn_close(link->handle, SKEIN_S(1));
	skein_assert(!link->mem.slab && !link->mirror.slab);
	env_free(mcast_env(g), link->small);
	env_free(mcast_env(g), link);
	*place = NULL;
}

void mcast_link_drop(struct skein_mcast *g, uint32_t nb)
{
	for (unsigned channel = 0; channel < MCAST_CHANNELS; channel++)
		drop(g, &g->links[nb][channel]);
}

const struct conn_module mcast_module = {
	.id = CONN_MODULE_MCAST,
	.name = "mcast",
	.must_understand = true,
	.sole = true,
	.ctx_open = mcast_ctx_open,
	.ctx_stop = mcast_ctx_stop,
	.ctx_close = mcast_ctx_close,
	.offer = mcast_offer,
	.accept = mcast_accept,
	.confirm = mcast_confirm,
	.ready = mcast_ready,
	.imm = mcast_imm,
	.hears_out = true, /* FAIL may come after our side has closed */
	.broken = mcast_broken,
	.closed = mcast_closed,
};
