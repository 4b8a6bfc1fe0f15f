/* SPDX-License-Identifier: MIT */
/*
 * api.c - the public calls. Any thread; a call that needs the engine goes to
 * the engine's owner.
 */
#include <errno.h>
#include <string.h>

#include "base/hostport.h"
#include "conn/mem/mem_handle.h"
#include "mcast/state.h"

#define BLOCK_DEFAULT (1u << 20)
#define RING_DEFAULT 8u
#define OPEN_NS SKEIN_S(10)
#define MEMBER_NS SKEIN_MS(1500)
#define POLL_NS SKEIN_MS(50)
#define BYE_NS SKEIN_S(1)

/* --- opening ------------------------------------------------------------ */

static const enum mcast_algorithm algorithms[] = {
	[SKEIN_MCAST_PIPELINE] = MCAST_PIPELINE,
	[SKEIN_MCAST_SEQUENTIAL] = MCAST_SEQUENTIAL,
	[SKEIN_MCAST_CHAIN] = MCAST_CHAIN,
	[SKEIN_MCAST_TREE] = MCAST_TREE,
	[SKEIN_MCAST_HYBRID] = MCAST_HYBRID,
};

/* An address that is none is refused when it is connected to. */
static bool host_alone(const struct skein_mcast_attr *a)
{
	struct hostport own, other;

	if (hostport_parse(a->members[a->rank], &own))
		return false;
	for (unsigned i = 0; i < a->count; i++)
		if (i != a->rank && !hostport_parse(a->members[i], &other) &&
		    !strcmp(own.host, other.host))
			return false;
	return true;
}

/* Sets the defaults of small messages; 0 in both turns slots off. */
static void slots_settle(struct skein_mcast_attr *a)
{
	if (!a->small_max)
		a->small_max = a->block_size < SKEIN_MCAST_SMALL_BYTES
				       ? a->block_size
				       : SKEIN_MCAST_SMALL_BYTES;
	if (!a->slots)
		a->slots = MCAST_SLOT_COUNT;
	if (a->count < 2 || a->count > SKEIN_MCAST_SMALL_MEMBERS ||
	    a->flags & SKEIN_MCAST_NO_SLOTS)
		a->small_max = a->slots = 0;
}

static int attr_settle(struct skein_ctx *ctx, struct skein_mcast_attr *a,
		       const struct skein_mcast_attr *user)
{
	int rc = ctx_attr_take(ctx, a, sizeof(*a), user);

	if (rc)
		return rc;
	if (!a->members || !a->count || a->count > SKEIN_MCAST_MEMBERS_MAX ||
	    a->rank >= a->count ||
	    (unsigned)a->algorithm > SKEIN_MCAST_HYBRID ||
	    a->flags & ~(unsigned)(SKEIN_MCAST_NO_CHECKSUM |
				   SKEIN_MCAST_NO_SLOTS) ||
	    (a->algorithm == SKEIN_MCAST_HYBRID && !a->racks))
		return -EINVAL;
	for (unsigned i = 0; i < a->count; i++)
		if (!a->members[i])
			return -EINVAL;
	if (!a->block_size)
		a->block_size = BLOCK_DEFAULT;
	if (a->block_size < SKEIN_MCAST_BLOCK_MIN ||
	    a->block_size > SKEIN_MCAST_BLOCK_MAX ||
	    a->block_size % SKEIN_MCAST_BLOCK_MIN)
		return -EINVAL;
	if (a->small_max > a->block_size || a->slots > MCAST_SLOT_MAX)
		return -EINVAL;
	slots_settle(a);
	if (!a->ring_blocks)
		a->ring_blocks = RING_DEFAULT;
	if (!a->open_timeout_ns)
		a->open_timeout_ns = OPEN_NS;
	if (!a->poll_ns)
		a->poll_ns = host_alone(a) ? POLL_NS : 1;
	return 0;
}

static int copy_members(struct skein_mcast *g)
{
	g->members =
		env_alloc(mcast_env(g), g->attr.count * sizeof(*g->members));
	if (!g->members)
		return -ENOMEM;
	for (unsigned i = 0; i < g->attr.count; i++) {
		g->members[i] = env_strdup(mcast_env(g), g->attr.members[i]);
		if (!g->members[i])
			return -ENOMEM;
	}
	g->attr.members = (const char *const *)g->members;
	return 0;
}

/* The application numbers its racks freely; the schedule wants numbers below n:
 * a rack is called by its first member. */
static int copy_racks(struct skein_mcast *g)
{
	uint32_t n = g->attr.count, k;

	if (g->attr.algorithm != SKEIN_MCAST_HYBRID)
		return 0;
	g->racks = env_alloc(mcast_env(g),
			     (n + MCAST_RACKS_STORAGE(n)) * sizeof(*g->racks));
	if (!g->racks)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		for (k = 0; g->attr.racks[k] != g->attr.racks[i]; k++)
			;
		g->racks[i] = k;
	}
	g->attr.racks = g->racks;
	return mcast_racks_init(&g->by_rack, g->racks, n, g->racks + n);
}

static void group_free(struct skein_mcast *g)
{
	struct skein_env *env = mcast_env(g);

	if (g->eng.port)
		mcast_eng_fini(&g->eng);
	mcast_calls_free(g);
	for (unsigned i = 0; g->members && i < g->attr.count; i++)
		env_free(env, g->members[i]);
	env_free(env, g->members);
	env_free(env, g->racks);
	env_free(env, g->links);
	env_mutex_fini(env, &g->lock);
	env_free(env, g);
}

static int group_new(struct skein_ctx *ctx, const struct skein_mcast_attr *user,
		     const struct skein_mcast_part *part,
		     struct skein_mcast **out)
{
	struct skein_mcast *g = env_alloc(ctx->env, sizeof(*g));
	struct mcast_eng_conf conf;
	uint64_t now = env_now_ns(ctx->env);
	int rc;

	if (!g)
		return -ENOMEM;
	env_mutex_init(ctx->env, &g->lock);
	list_init(&g->spares);
	g->mx = conn_ctx_module(ctx, CONN_MODULE_MCAST);
	g->port.ops = &mcast_group_port;
	rc = attr_settle(ctx, &g->attr, user);
	if (rc == 0)
		rc = copy_members(g);
	if (rc == 0)
		rc = copy_racks(g);
	if (rc)
		goto err_free;
	g->pair = env_random_u64(ctx->env);
	g->list = mcast_list_hash(g->attr.members, g->attr.count);
	g->params = mcast_params_hash(
		&(struct mcast_params){.n = g->attr.count,
				       .algorithm = g->attr.algorithm,
				       .block_size = g->attr.block_size,
				       .flags =
					       g->attr.flags |
					       (part ? MCAST_PARAMS_RESUME : 0),
				       .slots = g->attr.slots,
				       .small_max = g->attr.small_max},
		g->racks);
	conf = (struct mcast_eng_conf){
		.n = g->attr.count,
		.rank = g->attr.rank,
		.algorithm = algorithms[g->attr.algorithm],
		.racks = g->racks ? &g->by_rack : NULL,
		.block_size = g->attr.block_size,
		.ring_blocks = g->attr.ring_blocks,
		.checksum = !(g->attr.flags & SKEIN_MCAST_NO_CHECKSUM),
		.slots = g->attr.slots,
		.small_max = g->attr.small_max,
		.list = g->list,
		.open_deadline_ns = env_deadline(now, g->attr.open_timeout_ns),
		.member_timeout_ns = g->attr.member_timeout_ns
					     ? g->attr.member_timeout_ns
					     : MEMBER_NS,
	};
	rc = mcast_eng_init(&g->eng, &g->port, &conf, now);
	if (rc == 0 && part)
		rc = mcast_part_take(g, part);
	if (rc)
		goto err_free;
	rc = -ENOMEM;
	g->links = env_alloc(ctx->env, (g->eng.n_nbs + 1) * sizeof(*g->links));
	if (!g->links)
		goto err_free;
	atomic_store(&g->up, !g->eng.n_nbs);
	*out = g;
	return 0;

err_free:
	group_free(g);
	return rc;
}

/* --- calls into the engine ---------------------------------------------- */

/* Calls that a group makes once have their memory in the group. */
static void start_fn(struct engine_call *call)
{
	struct skein_mcast *g =
		container_of(call, struct skein_mcast, start_call);

	if (g->eng.resume)
		mcast_part_start(g);
	mcast_group_start(g);
	mcast_call_ended(g);
}

static void finish_fn(struct engine_call *call)
{
	struct skein_mcast *g =
		container_of(call, struct skein_mcast, finish_call);

	mcast_eng_finish(&g->eng);
	mcast_group_kick(g);
	mcast_call_ended(g);
}

static void leave_if_so(struct skein_mcast *g)
{
	/* Relaxed: the caller stored it before it handed the call over. */
	if (atomic_load_explicit(&g->leaving, memory_order_relaxed))
		mcast_eng_leave(&g->eng);
}

static void close_fn(struct engine_call *call)
{
	struct skein_mcast *g =
		container_of(call, struct skein_mcast, close_call);

	mcast_eng_close(&g->eng);
	leave_if_so(g);
	mcast_group_kick(g);
	mcast_call_ended(g);
}

static void abort_fn(struct engine_call *call)
{
	struct skein_mcast *g =
		container_of(call, struct skein_mcast, abort_call);

	mcast_eng_fail(&g->eng, g->attr.rank, atomic_load(&g->abort_err),
		       g->attr.rank);
	leave_if_so(g);
	mcast_group_kick(g);
	mcast_call_ended(g);
}

static void leave_fn(struct engine_call *call)
{
	struct skein_mcast *g =
		container_of(call, struct skein_mcast, leave_call);

	mcast_group_leave(g);
	atomic_store_explicit(&g->detached, true, memory_order_release);
	mcast_call_ended(g);
}

static void once(struct skein_mcast *g, struct engine_call *call,
		 void (*fn)(struct engine_call *call))
{
	struct engine *e = g->mx->ctx->engine->e;

	call->fn = fn;
	atomic_fetch_add_explicit(&g->calls, 1, memory_order_relaxed);
	if (engine_is_owner(e))
		fn(call);
	else
		engine_post(e, call);
}

/* --- waiting ------------------------------------------------------------ */

/* Closed or failed. */
static bool is_done(void *arg)
{
	struct skein_mcast *g = arg;

	return atomic_load_explicit(&g->closed, memory_order_relaxed) ||
	       atomic_load_explicit(&g->over, memory_order_acquire);
}

static bool is_up(void *arg)
{
	struct skein_mcast *g = arg;

	return atomic_load_explicit(&g->up, memory_order_relaxed) || is_done(g);
}

static bool is_quiet(void *arg)
{
	struct skein_mcast *g = arg;

	return atomic_load_explicit(&g->quiet, memory_order_acquire);
}

static bool is_gone(void *arg)
{
	struct skein_mcast *g = arg;

	return atomic_load_explicit(&g->detached, memory_order_acquire) &&
	       !atomic_load_explicit(&g->calls, memory_order_acquire);
}

static int run_for(struct skein_mcast *g, bool (*done)(void *arg), void *arg,
		   uint64_t timeout_ns)
{
	struct skein_ctx *ctx = g->mx->ctx;

	return engine_run_until(ctx->engine->e, done, arg,
				env_deadline(env_now_ns(ctx->env), timeout_ns));
}

static int over_of(struct skein_mcast *g)
{
	return atomic_load_explicit(&g->over, memory_order_acquire);
}

/* --- the public calls --------------------------------------------------- */

int mcast_group_open(struct skein_ctx *ctx, const struct skein_mcast_attr *attr,
		     const struct skein_mcast_part *part,
		     struct skein_mcast **group)
{
	struct skein_mcast *g;
	int rc;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	rc = group_new(ctx, attr, part, &g);
	if (rc)
		return rc;
	once(g, &g->start_call, start_fn);
	env_mutex_lock(ctx->env, &ctx->lock);
	list_add_tail(&g->mx->handles, &g->handle_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	/* The lower rank dials the higher. */
	for (uint32_t i = 0; i < g->eng.n_nbs && !rc; i++)
		if (g->eng.nbs[i].rank > g->attr.rank)
			rc = mcast_link_dial(g, i);
	if (rc) {
		skein_mcast_close(g, 0);
		return rc;
	}
	*group = g;
	return 0;
}

int skein_mcast_open_async(struct skein_ctx *ctx,
			   const struct skein_mcast_attr *attr,
			   struct skein_mcast **group)
{
	return mcast_group_open(ctx, attr, NULL, group);
}

int skein_mcast_wait(struct skein_mcast *g, uint64_t timeout_ns)
{
	int rc = run_for(g, is_up, g, timeout_ns);

	return over_of(g) ? over_of(g) : rc;
}

int skein_mcast_open(struct skein_ctx *ctx, const struct skein_mcast_attr *attr,
		     struct skein_mcast **group)
{
	struct skein_mcast *g;
	int rc;

	if (engine_is_owner(ctx->engine->e))
		return -EDEADLK;
	rc = skein_mcast_open_async(ctx, attr, &g);
	if (rc)
		return rc;
	/* The engine has the deadline of opening. */
	rc = skein_mcast_wait(g, SKEIN_FOREVER);
	if (rc) {
		skein_mcast_close(g, 0);
		return rc;
	}
	*group = g;
	return 0;
}

static int send_any(struct skein_mcast *g, struct skein_mem *mem, uint64_t off,
		    uint64_t size, void *tag)
{
	int rc;

	if (g->attr.rank)
		return -EPERM;
	if (over_of(g))
		return -ECONNABORTED;
	if (atomic_load_explicit(&g->finished, memory_order_relaxed))
		return -ESHUTDOWN;
	if (size > (uint64_t)g->attr.block_size * SKEIN_MCAST_BLOCKS_MAX)
		return -EFBIG;
	rc = mcast_call_send(g, mem, off, size, tag);
	if (rc == 0)
		atomic_fetch_add(&g->accepted, 1);
	return rc;
}

int skein_mcast_send(struct skein_mcast *g, struct skein_mem *mem, uint64_t off,
		     uint64_t size, void *tag)
{
	if (size && (!mem || mem->ctx != g->mx->ctx))
		return -EINVAL;
	if (size &&
	    (off > skein_mem_len(mem) || size > skein_mem_len(mem) - off))
		return -ERANGE;
	return send_any(g, size ? mem : NULL, off, size, tag);
}

int skein_mcast_send_stream(struct skein_mcast *g, uint64_t size, void *tag)
{
	if (!g->attr.ops.fill)
		return -EINVAL;
	return send_any(g, NULL, 0, size, tag);
}

int skein_mcast_block_done(struct skein_mcast *g, uint64_t seq, uint32_t index,
			   int status)
{
	return mcast_call_block_done(g, seq, index,
				     status > 0 ? -EINVAL : status);
}

struct flush {
	struct skein_mcast *g;
	uint64_t to;
};

static bool is_flushed(void *arg)
{
	struct flush *f = arg;

	return atomic_load_explicit(&f->g->delivered, memory_order_relaxed) >=
		       f->to ||
	       over_of(f->g);
}

int skein_mcast_flush(struct skein_mcast *g, uint64_t timeout_ns)
{
	struct flush f = {g, atomic_load(&g->accepted)};
	int rc;

	if (g->attr.rank)
		return -EPERM;
	rc = run_for(g, is_flushed, &f, timeout_ns);
	return over_of(g) ? over_of(g) : rc;
}

void skein_mcast_finish(struct skein_mcast *g)
{
	if (!g->attr.rank && !atomic_exchange(&g->finished, true))
		once(g, &g->finish_call, finish_fn);
}

void skein_mcast_abort(struct skein_mcast *g, int err)
{
	int none = 0;

	/* Only the first error counts. */
	if (atomic_compare_exchange_strong(&g->abort_err, &none,
					   err < 0 ? err : -ECANCELED))
		once(g, &g->abort_call, abort_fn);
}

static void group_end(struct skein_mcast *g)
{
	struct skein_ctx *ctx = g->mx->ctx;

	once(g, &g->leave_call, leave_fn);
	run_for(g, is_gone, g, SKEIN_FOREVER);
	for (uint32_t i = 0; i < g->eng.n_nbs; i++)
		mcast_link_drop(g, i);
	env_mutex_lock(ctx->env, &ctx->lock);
	list_del(&g->handle_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	group_free(g);
}

int skein_mcast_close(struct skein_mcast *g, uint64_t timeout_ns)
{
	int rc = 0;

	if (!g || ctx_forked(g->mx->ctx))
		return 0;
	if (engine_is_owner(g->mx->ctx->engine->e))
		return -EDEADLK;
	atomic_store(&g->finished, true);
	atomic_store(&g->leaving, !timeout_ns);
	once(g, &g->close_call, close_fn);
	if (timeout_ns)
		rc = run_for(g, is_done, g, timeout_ns);
	if (!is_done(g)) {
		rc = -ETIMEDOUT;
		atomic_store(&g->leaving, true);
		skein_mcast_abort(g, -ECANCELED);
		run_for(g, is_done, g, SKEIN_FOREVER);
	}
	/* A neighbour that has not said BYE yet has every message all the same. */
	run_for(g, is_quiet, g, over_of(g) ? SKEIN_FOREVER : BYE_NS);
	if (!rc)
		rc = over_of(g);
	group_end(g);
	return rc;
}

bool skein_mcast_failed(struct skein_mcast *g, struct skein_mcast_failure *why)
{
	if (!over_of(g))
		return false;
	if (why)
		*why = g->why;
	return true;
}

int skein_mcast_get_stats(struct skein_mcast *g,
			  struct skein_mcast_stats *stats)
{
	int rc;

	env_mutex_lock(mcast_env(g), &g->lock);
	rc = ctx_struct_fill(stats, sizeof(size_t), &g->stats,
			     sizeof(g->stats));
	env_mutex_unlock(mcast_env(g), &g->lock);
	return rc;
}

unsigned skein_mcast_count(const struct skein_mcast *g)
{
	return g->attr.count;
}

unsigned skein_mcast_rank(const struct skein_mcast *g)
{
	return g->attr.rank;
}

const char *skein_mcast_member(const struct skein_mcast *g, unsigned rank)
{
	return rank < g->attr.count ? g->members[rank] : NULL;
}

uint32_t skein_mcast_block_size(const struct skein_mcast *g)
{
	return g->attr.block_size;
}
