/* SPDX-License-Identifier: MIT */
/*
 * schedule.c - what is common to all algorithms. Each algorithm is a table of
 * functions (moves.h).
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "mcast/schedule/moves.h"

static const struct {
	const char *name;
	const struct mcast_moves *moves;
} algorithms[] = {
	[MCAST_SEQUENTIAL] = {"sequential", &mcast_sequential},
	[MCAST_CHAIN] = {"chain", &mcast_chain},
	[MCAST_TREE] = {"tree", &mcast_tree},
	[MCAST_PIPELINE] = {"pipeline", &mcast_pipeline},
	[MCAST_HYBRID] = {"hybrid", &mcast_hybrid},
};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

static const struct mcast_moves *moves_of(const struct mcast_plan *p)
{
	return algorithms[p->algorithm].moves;
}

/* A plan without moves. */
static bool still(const struct mcast_plan *p)
{
	return p->members == 1 || p->blocks == 0;
}

int mcast_plan_init(struct mcast_plan *p, enum mcast_algorithm algorithm,
		    uint32_t members, uint64_t blocks,
		    const struct mcast_racks *racks)
{
	if ((unsigned)algorithm >= ALGORITHMS)
		return -EINVAL;
	if (members == 0 || members > MCAST_MEMBERS_MAX ||
	    blocks > MCAST_BLOCKS_MAX)
		return -EINVAL;
	if (algorithm == MCAST_HYBRID && (!racks || racks->members != members))
		return -EINVAL;
	p->algorithm = algorithm;
	p->members = members;
	p->blocks = blocks;
	p->racks = algorithm == MCAST_HYBRID ? racks : NULL;
	p->steps = still(p) ? 0 : moves_of(p)->steps(p);
	return 0;
}

void mcast_plan_step(const struct mcast_plan *p, uint32_t member, uint64_t step,
		     struct mcast_step *out)
{
	skein_assert(member < p->members && step < p->steps);
	*out = (struct mcast_step){MCAST_NONE, MCAST_NONE, 0, 0};
	if (!moves_of(p)->send(p, member, step, &out->send_to,
			       &out->send_block))
		out->send_to = MCAST_NONE;
	if (!moves_of(p)->recv(p, member, step, &out->recv_from,
			       &out->recv_block))
		out->recv_from = MCAST_NONE;
}

typedef bool move_fn(const struct mcast_plan *p, uint32_t member, uint64_t step,
		     uint32_t *peer, uint64_t *block);

/*
 * Walks at most two gaps: if nothing moves for one gap, only the end of the
 * span can still have a move.
 */
static bool next_move(const struct mcast_plan *p, move_fn *move,
		      struct mcast_span span, uint32_t member, uint64_t from,
		      struct mcast_item *out)
{
	uint64_t gap = moves_of(p)->gap(p), idle = 0, block;
	uint32_t peer;

	for (uint64_t s = from > span.lo ? from : span.lo; s < span.hi; s++) {
		if (move(p, member, s, &peer, &block)) {
			out->step = s;
			out->block = block;
			out->peer = peer;
			return true;
		}
		if (++idle == gap && s + gap < span.hi)
			s = span.hi - gap - 1;
	}
	return false;
}

bool mcast_plan_next_send(const struct mcast_plan *p, uint32_t member,
			  uint64_t from, struct mcast_item *out)
{
	skein_assert(member < p->members);
	if (still(p))
		return false;
	return next_move(p, moves_of(p)->send,
			 moves_of(p)->send_span(p, member), member, from, out);
}

bool mcast_plan_next_recv(const struct mcast_plan *p, uint32_t member,
			  uint64_t from, struct mcast_item *out)
{
	skein_assert(member < p->members);
	if (still(p) || member == 0)
		return false;
	return next_move(p, moves_of(p)->recv,
			 moves_of(p)->recv_span(p, member), member, from, out);
}

uint64_t mcast_plan_recv_step(const struct mcast_plan *p, uint32_t member,
			      uint64_t block)
{
	skein_assert(member > 0 && member < p->members && block < p->blocks);
	return moves_of(p)->recv_step(p, member, block);
}

uint32_t mcast_plan_neighbours(const struct mcast_plan *p, uint32_t member,
			       uint32_t *peers, uint32_t max)
{
	struct mcast_plan any = *p;
	uint32_t count, kept, at, peer;

	skein_assert(member < p->members);
	if (p->members == 1)
		return 0;
	any.blocks = 1; /* none would have no neighbours to ask for */
	count = moves_of(p)->neighbours(&any, member, peers, max);
	kept = count < max ? count : max;
	for (uint32_t i = 1; i < kept; i++) {
		peer = peers[i];
		for (at = i; at > 0 && peers[at - 1] > peer; at--)
			peers[at] = peers[at - 1];
		peers[at] = peer;
	}
	return count;
}

void mcast_plan_slack(const struct mcast_plan *p, uint64_t step, uint64_t *sum,
		      uint32_t *senders)
{
	uint64_t block, total = 0;
	uint32_t peer, count = 0;

	skein_assert(step < p->steps);
	for (uint32_t i = 1; i < p->members; i++) {
		if (!moves_of(p)->send(p, i, step, &peer, &block))
			continue;
		total += step - moves_of(p)->recv_step(p, i, block);
		count++;
	}
	*sum = total;
	*senders = count;
}

const char *mcast_algorithm_name(enum mcast_algorithm algorithm)
{
	skein_assert((unsigned)algorithm < ALGORITHMS);
	return algorithms[algorithm].name;
}

int mcast_algorithm_parse(const char *name, enum mcast_algorithm *out)
{
	for (size_t i = 0; i < ALGORITHMS; i++) {
		if (strcmp(name, algorithms[i].name) != 0)
			continue;
		*out = (enum mcast_algorithm)i;
		return 0;
	}
	return -EINVAL;
}
