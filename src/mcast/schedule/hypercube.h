/* SPDX-License-Identifier: MIT */
/*
 * hypercube.h - the binomial pipeline's arithmetic for n nodes and k blocks
 * (RDMC, section 4.4, for any n: docs/design/mcast.md). The hybrid uses it twice, so
 * it knows nothing of plans. Private to src/mcast.
 */
#ifndef SKEIN_MCAST_SCHEDULE_HYPERCUBE_H
#define SKEIN_MCAST_SCHEDULE_HYPERCUBE_H

#include <stdbool.h>
#include <stdint.h>

struct hypercube {
	uint32_t nodes; /* at least 1 */
	uint32_t dims;	/* floor(log2(nodes)) */
	uint64_t blocks;
};

void hypercube_init(struct hypercube *h, uint32_t nodes, uint64_t blocks);

/* Any step may be asked for: past the last one nothing moves. */
uint64_t hypercube_steps(const struct hypercube *h);
bool hypercube_send(const struct hypercube *h, uint32_t node, uint64_t step,
		    uint32_t *to, uint64_t *block);
bool hypercube_recv(const struct hypercube *h, uint32_t node, uint64_t step,
		    uint32_t *from, uint64_t *block);

/* The step in which node (not 0) receives a block. nodes > 1, block <
 * blocks. */
uint64_t hypercube_recv_step(const struct hypercube *h, uint32_t node,
			     uint64_t block);

/*
 * The node, other than the root, that sends nothing in this step, because its
 * partner is the root. After the last exchange: the root. nodes >= 2.
 */
uint32_t hypercube_idle(const struct hypercube *h, uint64_t step);

/* The other node at this node's vertex; UINT32_MAX: there is none. */
uint32_t hypercube_twin(const struct hypercube *h, uint32_t node);

#define HYPERCUBE_NEIGHBOURS_MAX 64
/* Returns how many; at most 2 * dims + 1. */
uint32_t hypercube_neighbours(const struct hypercube *h, uint32_t node,
			      uint32_t *out);

#endif
