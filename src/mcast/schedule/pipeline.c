/* SPDX-License-Identifier: MIT */
/*
 * pipeline.c - the binomial pipeline as a plan: one hypercube of all members.
 */
#include "mcast/schedule/hypercube.h"
#include "mcast/schedule/moves.h"

static struct hypercube cube(const struct mcast_plan *p)
{
	struct hypercube h;

	hypercube_init(&h, p->members, p->blocks);
	return h;
}

static uint64_t pipeline_steps(const struct mcast_plan *p)
{
	struct hypercube h = cube(p);

	return hypercube_steps(&h);
}

static bool pipeline_send(const struct mcast_plan *p, uint32_t member,
			  uint64_t step, uint32_t *peer, uint64_t *block)
{
	struct hypercube h = cube(p);

	return hypercube_send(&h, member, step, peer, block);
}

static bool pipeline_recv(const struct mcast_plan *p, uint32_t member,
			  uint64_t step, uint32_t *peer, uint64_t *block)
{
	struct hypercube h = cube(p);

	return hypercube_recv(&h, member, step, peer, block);
}

static uint64_t pipeline_recv_step(const struct mcast_plan *p, uint32_t member,
				   uint64_t block)
{
	struct hypercube h = cube(p);

	return hypercube_recv_step(&h, member, block);
}

static struct mcast_span pipeline_span(const struct mcast_plan *p,
				       uint32_t member)
{
	return (struct mcast_span){0, p->steps};
}

/* The first dims + 1 steps are irregular; then all repeats after 2 * dims. */
static uint64_t pipeline_gap(const struct mcast_plan *p)
{
	struct hypercube h = cube(p);

	return 3 * h.dims + 2;
}

static uint32_t pipeline_neighbours(const struct mcast_plan *p, uint32_t member,
				    uint32_t *peers, uint32_t max)
{
	struct hypercube h = cube(p);
	uint32_t found[HYPERCUBE_NEIGHBOURS_MAX], count = 0;
	uint32_t all = hypercube_neighbours(&h, member, found);

	for (uint32_t i = 0; i < all; i++)
		peer_add(peers, max, &count, found[i]);
	return count;
}

const struct mcast_moves mcast_pipeline = {
	.steps = pipeline_steps,
	.send = pipeline_send,
	.recv = pipeline_recv,
	.recv_step = pipeline_recv_step,
	.send_span = pipeline_span,
	.recv_span = pipeline_span,
	.gap = pipeline_gap,
	.neighbours = pipeline_neighbours,
};
