/* SPDX-License-Identifier: MIT */
/*
 * pool.h - the rings of records of a context's connections, cut from regions
 * that are kept: a connection of a group registers nothing, and what a peer has
 * mapped for one serves the next.
 *
 * A region (slab) has MCAST_SLAB_RINGS of them. It is made when none of the
 * others has a free one; MCAST_SLABS_KEPT stay when nobody uses them, until the
 * context closes.
 *
 * Regions are near ones where the device has such (dev/mem.h): a peer that has
 * just been met writes there at once.
 *
 * A ring is used again by another connection, perhaps with another peer, so it
 * is given back only when the QP that it was written through is gone, and
 * nobody is still inside. Where that is not known it is given up: neither it nor
 * its slab comes back before the context closes.
 *
 * Regions that a group takes for itself (room for the next message, slots) are
 * kept as well, by size. Only of a group that has closed: its members have
 * all that they were sent, so nobody has anything left to write there.
 *
 * Thread rule: any thread; under a lock of its own.
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
/* Regions of groups: so many, each of at most so many bytes. */
#define MCAST_KEPT 8u
#define MCAST_KEPT_LEN (2u << 20)

struct mcast_slab {
	struct list_node link;
	struct mem_region *region;
	uint32_t used; /* a bit a ring; those that were given up, too */
	uint32_t had;  /* ... that somebody has had: it is not zero */
};

struct mcast_pool {
	struct skein_ctx *ctx;
	struct env_mutex lock;
	struct list_node slabs;
	unsigned idle; /* slabs that nobody uses */
	struct mem_region *kept[MCAST_KEPT];
	unsigned n_kept;
};

/* MCAST_RECORDS records. All zero: none. */
struct mcast_rec_ring {
	struct mcast_slab *slab;
	struct mcast_rec *recs;
	uint32_t lkey, rkey;
};

void mcast_pool_init(struct mcast_pool *pool, struct skein_ctx *ctx);
/* Frees all regions: no connection of the context is left. */
void mcast_pool_fini(struct mcast_pool *pool);

/* A ring of zeroes. 0 or a negative errno; the ring is untouched on failure. */
int mcast_pool_get(struct mcast_pool *pool, struct mcast_rec_ring *ring);
/* Gives it back, or up; nothing when there is none. The ring is all zero then. */
void mcast_pool_put(struct mcast_pool *pool, struct mcast_rec_ring *ring,
		    bool quiet);

/* A region of len bytes, of any content. 0 or a negative errno. */
int mcast_pool_region_get(struct mcast_pool *pool, size_t len,
			  struct mem_region **region);
/* again: nobody will write to it any more, so it may serve others. */
void mcast_pool_region_put(struct mcast_pool *pool, struct mem_region *region,
			   bool again);

#endif
