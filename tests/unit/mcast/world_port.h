/* SPDX-License-Identifier: MIT */
/*
 * world_port.h - between the files of a world: world.c moves what is under way,
 * world_port.c takes what the engines hand out.
 */
#ifndef TEST_MCAST_WORLD_PORT_H
#define TEST_MCAST_WORLD_PORT_H

#include "mcast/world.h"

extern const struct mcast_port_ops world_port_ops;

static inline bool world_chance(struct world *w, int percent)
{
	return (int)prng_below(&w->prng, 100) < percent;
}

static inline uint32_t world_rank_of(const struct member *m, uint32_t nb)
{
	return m->eng.nbs[nb].rank;
}

static inline void *world_alloc(struct member *m, size_t len)
{
	return m->port.ops->alloc(&m->port, len);
}

/* err: as the far end will hear it. */
void world_break_link(struct world *w, uint32_t from, uint32_t to, int err);
/* The application gets, and gives, a block. */
void world_take_block(struct member *m, uint64_t seq,
		      const struct skein_mcast_block *b);
void world_fill_block(struct member *m, uint64_t seq,
		      const struct skein_mcast_block *b);

#endif
