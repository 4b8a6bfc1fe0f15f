/* SPDX-License-Identifier: MIT */
/*
 * hypercube.c - the binomial pipeline for any number of nodes.
 * docs/design/mcast.md has the formulas and uses the same names.
 *
 * A vertex of the hypercube holds one node or two; two are twins. Towards other
 * vertices twins act as one. In each step one twin, the talker, sends what the
 * vertex sends. The other, the listener, receives what the vertex receives and
 * gives the talker the block that the talker missed. They change roles with
 * every exchange along a direction in which the vertex has a 1.
 */
#include "base/assert.h"
#include "mcast/schedule/hypercube.h"

#define NOBODY UINT32_MAX

void hypercube_init(struct hypercube *h, uint32_t nodes, uint64_t blocks)
{
	skein_assert(nodes > 0);
	h->nodes = nodes;
	h->dims = 31 - (uint32_t)__builtin_clz(nodes);
	h->blocks = blocks;
}

/* 1 if some vertices have twins: they need one more step. */
static uint32_t twins(const struct hypercube *h)
{
	return h->nodes != (uint32_t)1 << h->dims;
}

/* Vertices exchange blocks in the steps below this one. */
static uint64_t cube_steps(const struct hypercube *h)
{
	return h->dims + h->blocks - 1;
}

uint64_t hypercube_steps(const struct hypercube *h)
{
	if (h->nodes == 1 || h->blocks == 0)
		return 0;
	return cube_steps(h) + twins(h);
}

/* The root has no twin: vertex x + 1 gets node 2^dims + x. */
static uint32_t vertex_of(const struct hypercube *h, uint32_t node)
{
	uint32_t vertices = (uint32_t)1 << h->dims;

	return node < vertices ? node : node - vertices + 1;
}

uint32_t hypercube_twin(const struct hypercube *h, uint32_t node)
{
	uint32_t vertices = (uint32_t)1 << h->dims;

	if (node >= vertices)
		return node - vertices + 1;
	if (node == 0 || node > h->nodes - vertices)
		return NOBODY;
	return vertices + node - 1;
}

/* How many steps before `step` have a direction in which the vertex has a 1,
 * modulo 2. */
static uint32_t parity(const struct hypercube *h, uint32_t vertex,
		       uint64_t step)
{
	uint32_t begun = ((uint32_t)1 << step % h->dims) - 1;
	uint32_t ones = (uint32_t)__builtin_popcount(vertex & begun);

	if (step / h->dims & 1)
		ones += (uint32_t)__builtin_popcount(vertex);
	return ones & 1;
}

static uint32_t talker(const struct hypercube *h, uint32_t vertex,
		       uint64_t step)
{
	uint32_t twin = hypercube_twin(h, vertex);

	return twin != NOBODY && parity(h, vertex, step) ? twin : vertex;
}

static uint32_t listener(const struct hypercube *h, uint32_t vertex,
			 uint64_t step)
{
	uint32_t twin = hypercube_twin(h, vertex);

	return twin != NOBODY && !parity(h, vertex, step) ? twin : vertex;
}

/* Steps from `step` to the next one in the direction of a 1 of vertex (not 0). */
static uint32_t steps_to_one(const struct hypercube *h, uint32_t vertex,
			     uint64_t step)
{
	uint32_t m = (uint32_t)(step % h->dims), ahead = vertex >> m;

	if (ahead)
		return (uint32_t)__builtin_ctz(ahead);
	return h->dims - m + (uint32_t)__builtin_ctz(vertex);
}

/* Steps back from `step` to the last such step before it. */
static uint32_t steps_from_one(const struct hypercube *h, uint32_t vertex,
			       uint64_t step)
{
	uint32_t m = (uint32_t)(step % h->dims);
	uint32_t behind = vertex & (((uint32_t)1 << m) - 1);

	if (behind)
		return m - (31 - (uint32_t)__builtin_clz(behind));
	return m + h->dims - (31 - (uint32_t)__builtin_clz(vertex));
}

static bool towards_root(const struct hypercube *h, uint32_t vertex,
			 uint64_t step)
{
	return vertex == (uint32_t)1 << step % h->dims;
}

/* The paper's block formula: the block that a vertex sends in `step`. */
static bool vertex_sends(const struct hypercube *h, uint32_t vertex,
			 uint64_t step, uint64_t *block)
{
	uint64_t last = h->blocks - 1, ahead;

	if (step >= cube_steps(h) || towards_root(h, vertex, step))
		return false;
	if (vertex == 0) {
		*block = step < last ? step : last;
		return true;
	}
	ahead = step + steps_to_one(h, vertex, step);
	if (ahead < h->dims)
		return false;
	*block = ahead - h->dims < last ? ahead - h->dims : last;
	return true;
}

/* The block that the listener gives the talker in `step`. */
static bool listener_hands(const struct hypercube *h, uint64_t step,
			   uint64_t *block)
{
	if (step <= h->dims || step >= hypercube_steps(h))
		return false;
	*block = step - 1 - h->dims;
	return true;
}

bool hypercube_send(const struct hypercube *h, uint32_t node, uint64_t step,
		    uint32_t *to, uint64_t *block)
{
	uint32_t vertex, twin, peer;

	if (step >= hypercube_steps(h))
		return false;
	vertex = vertex_of(h, node);
	twin = hypercube_twin(h, node);
	if (twin != NOBODY && node == listener(h, vertex, step)) {
		*to = twin;
		return listener_hands(h, step, block);
	}
	if (step == cube_steps(h)) { /* twins exchange the last blocks */
		*to = twin;
		*block = h->blocks - 1;
		return twin != NOBODY;
	}
	peer = vertex ^ (uint32_t)1 << step % h->dims;
	*to = listener(h, peer, step);
	return vertex_sends(h, vertex, step, block);
}

bool hypercube_recv(const struct hypercube *h, uint32_t node, uint64_t step,
		    uint32_t *from, uint64_t *block)
{
	uint32_t vertex, twin, peer;

	if (node == 0 || step >= hypercube_steps(h))
		return false;
	vertex = vertex_of(h, node);
	twin = hypercube_twin(h, node);
	if (twin != NOBODY && node == talker(h, vertex, step)) {
		*from = twin;
		return listener_hands(h, step, block);
	}
	if (step == cube_steps(h)) {
		*from = twin;
		*block = h->blocks - 1;
		return twin != NOBODY;
	}
	peer = vertex ^ (uint32_t)1 << step % h->dims;
	*from = talker(h, peer, step);
	return vertex_sends(h, peer, step, block);
}

/* The step in which a vertex (not 0) receives a block from another vertex. */
static uint64_t vertex_recv_step(const struct hypercube *h, uint32_t vertex,
				 uint64_t block)
{
	uint64_t step = block + h->dims;

	if (block < h->blocks - 1 && !(vertex >> step % h->dims & 1))
		return step;
	return step - steps_from_one(h, vertex, step);
}

uint64_t hypercube_recv_step(const struct hypercube *h, uint32_t node,
			     uint64_t block)
{
	uint32_t vertex = vertex_of(h, node);
	uint64_t step = vertex_recv_step(h, vertex, block);

	if (node == listener(h, vertex, step))
		return step;
	step = block + h->dims + 1;
	return step < cube_steps(h) ? step : cube_steps(h);
}

uint32_t hypercube_idle(const struct hypercube *h, uint64_t step)
{
	if (step >= cube_steps(h))
		return 0;
	return talker(h, (uint32_t)1 << step % h->dims, step);
}

uint32_t hypercube_neighbours(const struct hypercube *h, uint32_t node,
			      uint32_t *out)
{
	uint32_t vertex = vertex_of(h, node), count = 0, twin, peer;

	twin = hypercube_twin(h, node);
	if (twin != NOBODY)
		out[count++] = twin;
	for (uint32_t m = 0; m < h->dims; m++) {
		peer = vertex ^ (uint32_t)1 << m;
		out[count++] = peer;
		twin = hypercube_twin(h, peer);
		if (twin != NOBODY)
			out[count++] = twin;
	}
	return count;
}
