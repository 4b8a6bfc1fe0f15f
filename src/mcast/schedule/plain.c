/* SPDX-License-Identifier: MIT */
/*
 * plain.c - the three schedules in which each member acts in one row of steps:
 * sequential send, chain send and binomial tree (RDMC, section 4.3).
 */
#include "base/assert.h"
#include "mcast/schedule/moves.h"

static uint64_t no_gap(const struct mcast_plan *p)
{
	return 1; /* every step of a span has a move */
}

static const struct mcast_span nothing;

/* Sequential: member i receives in steps (i - 1) * k ... i * k - 1. */

static uint64_t sequential_steps(const struct mcast_plan *p)
{
	return (p->members - 1) * p->blocks;
}

static bool sequential_send(const struct mcast_plan *p, uint32_t member,
			    uint64_t step, uint32_t *peer, uint64_t *block)
{
	if (member != 0)
		return false;
	*peer = (uint32_t)(step / p->blocks) + 1;
	*block = step % p->blocks;
	return true;
}

static bool sequential_recv(const struct mcast_plan *p, uint32_t member,
			    uint64_t step, uint32_t *peer, uint64_t *block)
{
	if (member == 0 || step / p->blocks != member - 1)
		return false;
	*peer = 0;
	*block = step % p->blocks;
	return true;
}

static uint64_t sequential_recv_step(const struct mcast_plan *p,
				     uint32_t member, uint64_t block)
{
	return (member - 1) * p->blocks + block;
}

static struct mcast_span sequential_send_span(const struct mcast_plan *p,
					      uint32_t member)
{
	if (member != 0)
		return nothing;
	return (struct mcast_span){0, sequential_steps(p)};
}

static struct mcast_span sequential_recv_span(const struct mcast_plan *p,
					      uint32_t member)
{
	if (member == 0)
		return nothing;
	return (struct mcast_span){(member - 1) * p->blocks,
				   member * p->blocks};
}

static uint32_t sequential_neighbours(const struct mcast_plan *p,
				      uint32_t member, uint32_t *peers,
				      uint32_t max)
{
	uint32_t count = 0;

	if (member != 0) {
		peer_add(peers, max, &count, 0);
		return count;
	}
	for (uint32_t i = 1; i < p->members; i++)
		peer_add(peers, max, &count, i);
	return count;
}

const struct mcast_moves mcast_sequential = {
	.steps = sequential_steps,
	.send = sequential_send,
	.recv = sequential_recv,
	.recv_step = sequential_recv_step,
	.send_span = sequential_send_span,
	.recv_span = sequential_recv_span,
	.gap = no_gap,
	.neighbours = sequential_neighbours,
};

/* Chain: block b passes from i to i + 1 in step i + b. */

static uint64_t chain_steps(const struct mcast_plan *p)
{
	return p->members - 1 + p->blocks - 1;
}

static struct mcast_span chain_send_span(const struct mcast_plan *p,
					 uint32_t member)
{
	if (member == p->members - 1)
		return nothing;
	return (struct mcast_span){member, member + p->blocks};
}

static struct mcast_span chain_recv_span(const struct mcast_plan *p,
					 uint32_t member)
{
	if (member == 0)
		return nothing;
	return chain_send_span(p, member - 1);
}

static bool chain_send(const struct mcast_plan *p, uint32_t member,
		       uint64_t step, uint32_t *peer, uint64_t *block)
{
	struct mcast_span span = chain_send_span(p, member);

	if (step < span.lo || step >= span.hi)
		return false;
	*peer = member + 1;
	*block = step - span.lo;
	return true;
}

static bool chain_recv(const struct mcast_plan *p, uint32_t member,
		       uint64_t step, uint32_t *peer, uint64_t *block)
{
	uint32_t to;

	if (member == 0 || !chain_send(p, member - 1, step, &to, block))
		return false;
	*peer = member - 1;
	return true;
}

static uint64_t chain_recv_step(const struct mcast_plan *p, uint32_t member,
				uint64_t block)
{
	return member - 1 + block;
}

static uint32_t chain_neighbours(const struct mcast_plan *p, uint32_t member,
				 uint32_t *peers, uint32_t max)
{
	uint32_t count = 0;

	if (member > 0)
		peer_add(peers, max, &count, member - 1);
	if (member < p->members - 1)
		peer_add(peers, max, &count, member + 1);
	return count;
}

const struct mcast_moves mcast_chain = {
	.steps = chain_steps,
	.send = chain_send,
	.recv = chain_recv,
	.recv_step = chain_recv_step,
	.send_span = chain_send_span,
	.recv_span = chain_recv_span,
	.gap = no_gap,
	.neighbours = chain_neighbours,
};

/*
 * Binomial tree: in round r (k steps) each member i < 2^r sends the whole
 * object to i + 2^r. So i receives in round bits(i) - 1 and sends in the
 * rounds from bits(i) on in which i + 2^r is a member.
 */

static uint32_t bits(uint32_t i)
{
	return i == 0 ? 0 : 32 - (uint32_t)__builtin_clz(i);
}

static uint64_t tree_steps(const struct mcast_plan *p)
{
	return bits(p->members - 1) * p->blocks;
}

static struct mcast_span tree_send_span(const struct mcast_plan *p,
					uint32_t member)
{
	uint32_t lo = bits(member), hi = lo;

	while (((uint64_t)1 << hi) + member < p->members)
		hi++;
	return (struct mcast_span){lo * p->blocks, hi * p->blocks};
}

static struct mcast_span tree_recv_span(const struct mcast_plan *p,
					uint32_t member)
{
	if (member == 0)
		return nothing;
	return (struct mcast_span){(bits(member) - 1) * p->blocks,
				   bits(member) * p->blocks};
}

static bool tree_send(const struct mcast_plan *p, uint32_t member,
		      uint64_t step, uint32_t *peer, uint64_t *block)
{
	struct mcast_span span = tree_send_span(p, member);

	if (step < span.lo || step >= span.hi)
		return false;
	*peer = member + ((uint32_t)1 << step / p->blocks);
	*block = step % p->blocks;
	return true;
}

static uint32_t tree_parent(uint32_t member)
{
	return member ^ (0x80000000u >> __builtin_clz(member));
}

static bool tree_recv(const struct mcast_plan *p, uint32_t member,
		      uint64_t step, uint32_t *peer, uint64_t *block)
{
	struct mcast_span span = tree_recv_span(p, member);

	if (step < span.lo || step >= span.hi)
		return false;
	*peer = tree_parent(member);
	*block = step - span.lo;
	return true;
}

static uint64_t tree_recv_step(const struct mcast_plan *p, uint32_t member,
			       uint64_t block)
{
	return tree_recv_span(p, member).lo + block;
}

static uint32_t tree_neighbours(const struct mcast_plan *p, uint32_t member,
				uint32_t *peers, uint32_t max)
{
	uint32_t count = 0;

	if (member != 0)
		peer_add(peers, max, &count, tree_parent(member));
	for (uint64_t far = (uint64_t)1 << bits(member);
	     member + far < p->members; far *= 2)
		peer_add(peers, max, &count, member + (uint32_t)far);
	return count;
}

const struct mcast_moves mcast_tree = {
	.steps = tree_steps,
	.send = tree_send,
	.recv = tree_recv,
	.recv_step = tree_recv_step,
	.send_span = tree_send_span,
	.recv_span = tree_recv_span,
	.gap = no_gap,
	.neighbours = tree_neighbours,
};
