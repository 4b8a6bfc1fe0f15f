/* SPDX-License-Identifier: MIT */
/*
 * schedule.h - who sends which block to whom, in which order (RDMC, sections
 * 4.3 to 4.5; docs/mcast.md derives the formulas).
 *
 * A plan is a pure function of (algorithm, members, blocks, racks): every
 * member computes its own part and all parts fit. Members are ranks, 0 is the
 * root. Time is counted in steps: in one step a member sends at most one block
 * and receives at most one, and it sends only what it received in an earlier
 * step (the root has all blocks from the start).
 *
 * Nothing here allocates, does I/O, or keeps state: any thread may call
 * anything, at the same time. Indices out of range are programmer's errors.
 */
#ifndef SKEIN_MCAST_SCHEDULE_H
#define SKEIN_MCAST_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCAST_MEMBERS_MAX (1u << 16)
#define MCAST_BLOCKS_MAX (UINT64_C(1) << 40)
#define MCAST_NONE UINT32_MAX /* no member */

enum mcast_algorithm {
	MCAST_SEQUENTIAL, /* the root sends everything to 1, then to 2, ... */
	MCAST_CHAIN,	  /* i relays to i + 1, block by block */
	MCAST_TREE,	  /* whole objects along a binomial tree */
	MCAST_PIPELINE,	  /* the binomial pipeline: a hypercube */
	MCAST_HYBRID,	  /* pipelines among the racks and inside each */
};

/*
 * Which member stands in which rack: for MCAST_HYBRID alone. Racks are
 * numbered by their first members, so the root's rack is 0; the first member
 * of a rack is its leader. Owned by the caller, read only after init.
 */
struct mcast_racks {
	uint32_t members;
	uint32_t racks;
	uint32_t dims_max;     /* floor(log2(size of the largest rack)) */
	const uint32_t *rack;  /* [members]: its rack */
	const uint32_t *place; /* [members]: its rank within the rack */
	const uint32_t *order; /* [members]: all members, rack by rack */
	const uint32_t *first; /* [racks + 1]: where a rack begins in order */
};

/* How many uint32_t mcast_racks_init() needs for n members. */
#define MCAST_RACKS_STORAGE(n) (4 * (size_t)(n) + 1)

/*
 * rack_of[i] < members is any number for the rack of member i. storage must
 * live as long as r. 0, -EINVAL for a number out of range or no members.
 */
int mcast_racks_init(struct mcast_racks *r, const uint32_t *rack_of,
		     uint32_t members, uint32_t *storage);

struct mcast_plan {
	enum mcast_algorithm algorithm;
	uint32_t members;
	uint64_t blocks;
	uint64_t steps;
	const struct mcast_racks *racks; /* NULL but for MCAST_HYBRID */
};

/*
 * 0; -EINVAL: no such algorithm, no members, too many members or blocks, a
 * hybrid without racks or with racks of another number of members. blocks may
 * be 0: a plan of no steps. racks is borrowed.
 */
int mcast_plan_init(struct mcast_plan *p, enum mcast_algorithm algorithm,
		    uint32_t members, uint64_t blocks,
		    const struct mcast_racks *racks);

/* Steps are 0 ... mcast_plan_steps() - 1; none for one member. */
static inline uint64_t mcast_plan_steps(const struct mcast_plan *p)
{
	return p->steps;
}

/* What one member does in one step; MCAST_NONE where it does nothing. */
struct mcast_step {
	uint32_t send_to;
	uint32_t recv_from;
	uint64_t send_block;
	uint64_t recv_block;
};

void mcast_plan_step(const struct mcast_plan *p, uint32_t member, uint64_t step,
		     struct mcast_step *out);

/* One block that moves between a member and its peer. */
struct mcast_item {
	uint64_t step;
	uint64_t block;
	uint32_t peer;
};

/*
 * The member's first send, or receive, in a step >= from: false when there is
 * none, and *out is as it was. Start with from = 0, go on with out->step + 1.
 * Over a whole plan a call costs O(log members) on average.
 */
bool mcast_plan_next_send(const struct mcast_plan *p, uint32_t member,
			  uint64_t from, struct mcast_item *out);
bool mcast_plan_next_recv(const struct mcast_plan *p, uint32_t member,
			  uint64_t from, struct mcast_item *out);

/* The step in which a member that is not the root receives a block. */
uint64_t mcast_plan_recv_step(const struct mcast_plan *p, uint32_t member,
			      uint64_t block);

/*
 * All members that a member sends to or receives from, whatever the number of
 * blocks (so the peers of a group are known before its first object); the
 * relation is symmetric. Writes at most max of them and returns how many there
 * are, never more than members - 1; in ascending order when all fit.
 */
uint32_t mcast_plan_neighbours(const struct mcast_plan *p, uint32_t member,
			       uint32_t *peers, uint32_t max);

/*
 * Section 4.5: the sum over the relays (not the root) that send in a step of
 * the steps since they received that block, and how many they are: the average
 * slack is *sum / *senders. O(members).
 */
void mcast_plan_slack(const struct mcast_plan *p, uint64_t step, uint64_t *sum,
		      uint32_t *senders);

/* "sequential", "chain", "tree", "pipeline", "hybrid". */
const char *mcast_algorithm_name(enum mcast_algorithm algorithm);
/* 0, or -EINVAL: no such name. */
int mcast_algorithm_parse(const char *name, enum mcast_algorithm *out);

#endif
