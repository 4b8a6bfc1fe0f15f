/* SPDX-License-Identifier: MIT */
#include "mcast/pool.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "conn/conn.h"
#include "conn/ctx.h"

#define ALL ((1u << MCAST_SLAB_RINGS) - 1u)

_Static_assert(MCAST_SLAB_RINGS < 32, "a bit a ring");

void mcast_pool_init(struct mcast_pool *pool, struct skein_ctx *ctx)
{
	pool->ctx = ctx;
	pool->idle = pool->n_kept = 0;
	list_init(&pool->slabs);
	env_mutex_init(ctx->env, &pool->lock);
}

static void slab_free(struct mcast_pool *pool, struct mcast_slab *slab)
{
	mem_region_free(slab->region);
	env_free(pool->ctx->env, slab);
}

void mcast_pool_fini(struct mcast_pool *pool)
{
	while (!list_empty(&pool->slabs))
		slab_free(pool, container_of(list_pop_head(&pool->slabs),
					     struct mcast_slab, link));
	while (pool->n_kept)
		mem_region_free(pool->kept[--pool->n_kept]);
	env_mutex_fini(pool->ctx->env, &pool->lock);
}

static int region_new(struct skein_ctx *ctx, size_t len,
		      struct mem_region **region)
{
	return mem_region_near(ctx->dev, ctx->pd, "skein-mcast", len,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			       conn_region_id(ctx), region);
}

static int slab_new(struct skein_ctx *ctx, struct mcast_slab **out)
{
	struct mcast_slab *slab = env_alloc(ctx->env, sizeof(*slab));
	int rc;

	if (!slab)
		return -ENOMEM;
	rc = region_new(ctx,
			MCAST_SLAB_RINGS * MCAST_RECORDS *
				sizeof(struct mcast_rec),
			&slab->region);
	if (rc) {
		env_free(ctx->env, slab);
		return rc;
	}
	*out = slab;
	return 0;
}

/* The caller holds the lock. */
static struct mcast_slab *with_room(struct mcast_pool *pool)
{
	struct mcast_slab *slab;
	struct list_node *n;

	list_for_each(n, &pool->slabs) {
		slab = container_of(n, struct mcast_slab, link);
		if (slab->used != ALL)
			return slab;
	}
	return NULL;
}

/* The caller holds the lock; the slab has room. */
static void take(struct mcast_pool *pool, struct mcast_slab *slab,
		 struct mcast_rec_ring *ring)
{
	unsigned i = (unsigned)__builtin_ctz(~slab->used);
	uint32_t bit = 1u << i;

	pool->idle -= !slab->used;
	slab->used |= bit;
	ring->slab = slab;
	ring->recs = (struct mcast_rec *)slab->region->addr +
		     (size_t)i * MCAST_RECORDS;
	ring->lkey = slab->region->mr->lkey;
	ring->rkey = slab->region->mr->rkey;
	/* A new ring is zero; touching it would only allocate its pages. */
	if (slab->had & bit)
		memset(ring->recs, 0, MCAST_RECORDS * sizeof(*ring->recs));
	slab->had |= bit;
}

int mcast_pool_get(struct mcast_pool *pool, struct mcast_rec_ring *ring)
{
	struct skein_env *env = pool->ctx->env;
	struct mcast_slab *slab;
	int rc = 0;

	/* The lock is held while a slab is made: another thread that comes in
	 * the meantime then finds room in it. */
	env_mutex_lock(env, &pool->lock);
	slab = with_room(pool);
	if (!slab) {
		rc = slab_new(pool->ctx, &slab);
		if (rc == 0) {
			list_add_tail(&pool->slabs, &slab->link);
			pool->idle++;
		}
	}
	if (rc == 0)
		take(pool, slab, ring);
	env_mutex_unlock(env, &pool->lock);
	return rc;
}

void mcast_pool_put(struct mcast_pool *pool, struct mcast_rec_ring *ring,
		    bool quiet)
{
	struct skein_env *env = pool->ctx->env;
	struct mcast_slab *slab = ring->slab;
	size_t i;

	if (!slab)
		return;
	i = (size_t)(ring->recs - (struct mcast_rec *)slab->region->addr) /
	    MCAST_RECORDS;
	*ring = (struct mcast_rec_ring){0};
	if (!quiet)
		return;
	env_mutex_lock(env, &pool->lock);
	skein_assert(slab->used & 1u << i);
	slab->used &= ~(1u << i);
	if (slab->used) {
		slab = NULL;
	} else if (pool->idle < MCAST_SLABS_KEPT) {
		pool->idle++;
		slab = NULL;
	} else {
		list_del(&slab->link);
	}
	env_mutex_unlock(env, &pool->lock);
	if (slab)
		slab_free(pool, slab);
}

/* The caller holds the lock. */
static struct mem_region *kept_take(struct mcast_pool *pool, size_t len)
{
	struct mem_region *region;

	for (unsigned i = pool->n_kept; i--;) {
		region = pool->kept[i];
		if (region->len != len)
			continue;
		pool->kept[i] = pool->kept[--pool->n_kept];
		return region;
	}
	return NULL;
}

int mcast_pool_region_get(struct mcast_pool *pool, size_t len,
			  struct mem_region **region)
{
	struct skein_env *env = pool->ctx->env;
	struct mem_region *kept;

	env_mutex_lock(env, &pool->lock);
	kept = kept_take(pool, len);
	env_mutex_unlock(env, &pool->lock);
	if (!kept)
		return region_new(pool->ctx, len, region);
	*region = kept;
	return 0;
}

void mcast_pool_region_put(struct mcast_pool *pool, struct mem_region *region,
			   bool again)
{
	struct skein_env *env = pool->ctx->env;

	if (again && region->len <= MCAST_KEPT_LEN) {
		env_mutex_lock(env, &pool->lock);
		if (pool->n_kept < MCAST_KEPT) {
			pool->kept[pool->n_kept++] = region;
			region = NULL;
		}
		env_mutex_unlock(env, &pool->lock);
	}
	mem_region_free(region);
}
