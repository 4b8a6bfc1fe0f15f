/* SPDX-License-Identifier: MIT */
/*
 * pool.h - memory for the rings of records of a context's connections. The
 * rings are cut from registered regions (slabs) that stay: so a connection of a
 * group registers nothing, and what a peer has mapped for one connection serves
 * the next.
 *
 * A slab has MCAST_SLAB_RINGS rings. A new slab is made when no other has a
 * free ring. MCAST_SLABS_KEPT unused slabs stay until the context closes. Slabs
 * are near regions where the device has such (dev/mem.h): a new peer can write
 * there at once.
 *
 * Another connection, perhaps to another peer, uses a ring again. So a ring
 * returns to the pool only when the QP through which the peer wrote is gone and
 * no write is under way. Where that is not known, the ring and its slab stay
 * out of use until the context closes.
 *
 * The pool also keeps regions that a group takes for itself (memory for the
 * next message, slots), by size, but only those of a group that has closed: all
 * its members have all messages, so nobody writes there any more.
 *
 * Thread rule: any thread; the pool has its own lock.
 */
#ifndef SKEIN_MCAST_POOL_H
#define SKEIN_MCAST_POOL_H

#include "base/list.h"
#include "dev/mem.h"
#include "env/env.h"
#include "mcast/wire.h"

struct skein_ctx;

#define MCAST_SLAB_RINGS 16u
#define MCAST_SLABS_KEPT 4u
/* Most kept regions of groups, and the largest such region in bytes. */
#define MCAST_KEPT 8u
#define MCAST_KEPT_LEN (2u << 20)

struct mcast_slab {
	struct list_node link;
	struct mem_region *region;
	/* a bit per ring; also rings that are lost to the pool */
	uint32_t used;
	/* a bit per ring: it was used before, so it is not zero */
	uint32_t had;
};

struct mcast_pool {
	struct skein_ctx *ctx;
	struct env_mutex lock;
	struct list_node slabs;
	unsigned idle; /* slabs without a ring in use */
	struct mem_region *kept[MCAST_KEPT];
	unsigned n_kept;
};

/* A ring of MCAST_RECORDS records. All zero: none. */
struct mcast_rec_ring {
	struct mcast_slab *slab;
	struct mcast_rec *recs;
	uint32_t lkey, rkey;
};

void mcast_pool_init(struct mcast_pool *pool, struct skein_ctx *ctx);
/* Frees all regions. The context has no connection left. */
void mcast_pool_fini(struct mcast_pool *pool);

/* Takes a ring of zeroes. 0 or a negative errno; *ring is untouched on
 * failure. */
int mcast_pool_get(struct mcast_pool *pool, struct mcast_rec_ring *ring);
/* Gives *ring back and zeroes it; without a ring it does nothing. quiet: no
 * write to it can be under way; otherwise the pool does not use it again. */
void mcast_pool_put(struct mcast_pool *pool, struct mcast_rec_ring *ring,
		    bool quiet);

/* A region of len bytes with any content. 0 or a negative errno. */
int mcast_pool_region_get(struct mcast_pool *pool, size_t len,
			  struct mem_region **region);
/* again: no peer writes to it any more, so another group may use it. */
void mcast_pool_region_put(struct mcast_pool *pool, struct mem_region *region,
			   bool again);

#endif
