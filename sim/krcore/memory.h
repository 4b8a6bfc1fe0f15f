/* SPDX-License-Identifier: MIT */
/*
 * memory.h - what connections take of a node's memory, counted from the objects
 * that a simulated device has.
 *
 * A queue takes what a ConnectX's driver would take (KRCore 2.3.1): 448 bytes a
 * send request and 64 a completion, rounded up to a power of two.
 */
#ifndef SKEIN_SIM_KRCORE_MEMORY_H
#define SKEIN_SIM_KRCORE_MEMORY_H

#include <stdint.h>

struct krcore_mem {
	unsigned qps;	     /* that send */
	uint64_t queues;     /* bytes, as all below */
	uint64_t registered; /* memory regions */
	unsigned n_peers;
	uint64_t peers;	 /* cached nodes, with their address handles */
	uint64_t engine; /* of a pool, besides */
};

static inline uint64_t krcore_mem_sum(const struct krcore_mem *m)
{
	return m->queues + m->registered + m->peers + m->engine;
}

struct dev;
/* Adds the device's queues and memory regions. */
void krcore_mem_of_dev(struct dev *dev, struct krcore_mem *m);

struct pool;
/* The same, with the pool's own. */
void krcore_mem_of_pool(const struct pool *p, struct krcore_mem *m);

#endif
