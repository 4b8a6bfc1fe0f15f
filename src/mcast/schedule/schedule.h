/* SPDX-License-Identifier: MIT */
/*
 * schedule.h - which member sends which block to which other member, in which
 * order (RDMC, sections 4.3 to 4.5; docs/design/mcast.md has the formulas).
 *
 * A plan is a pure function of (algorithm, members, blocks, racks): every
 * member computes its own part, and all parts fit. Members are ranks; 0 is the
 * root. Time is counted in steps. In one step a member sends at most one block
 * and receives at most one. It sends only what it received in an earlier step;
 * the root has all blocks from the start.
 *
 * Nothing here allocates, does I/O, or keeps state: any thread may call
 * anything at any time. An index out of range is a programmer's error.
 */
#ifndef SKEIN_MCAST_SCHEDULE_SCHEDULE_H
#define SKEIN_MCAST_SCHEDULE_SCHEDULE_H

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
 * The rack of each member; only MCAST_HYBRID uses it. Racks are numbered by
 * their first members, so the root's rack is 0. The first member of a rack is
 * its leader. The caller owns it and does not change it after init.
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
 * rack_of[i] is any number below members. storage must live as long as r. 0;
 * -EINVAL: a number out of range, or no members.
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
 * 0; -EINVAL: no such algorithm, no members, too many members or blocks, or a
 * hybrid without racks or with racks of another number of members. blocks may
 * be 0: the plan then has no steps. racks is borrowed.
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

/* One block that a member sends to, or receives from, its peer. */
struct mcast_item {
	uint64_t step;
	uint64_t block;
	uint32_t peer;
};

/*
 * The member's first send (receive) in a step >= from. False: there is none,
 * and *out is unchanged. Start with from = 0 and go on with out->step + 1. Over
 * a whole plan one call costs O(log members) on average.
 */
bool mcast_plan_next_send(const struct mcast_plan *p, uint32_t member,
			  uint64_t from, struct mcast_item *out);
bool mcast_plan_next_recv(const struct mcast_plan *p, uint32_t member,
			  uint64_t from, struct mcast_item *out);

/* The step in which a member that is not the root receives a block. */
uint64_t mcast_plan_recv_step(const struct mcast_plan *p, uint32_t member,
			      uint64_t block);

/*
 * All members that a member sends to or receives from, for any number of
 * blocks, so the peers of a group are known before its first object. The
 * relation is symmetric. Stores at most max of them and returns their number,
 * at most members - 1; in ascending order if all fit.
 */
uint32_t mcast_plan_neighbours(const struct mcast_plan *p, uint32_t member,
			       uint32_t *peers, uint32_t max);

/*
 * Section 4.5: how long blocks wait at the relays that send in this step. *sum:
 * the steps since each relay received its block; *senders: the number of relays
 * (the root is none). The average slack is *sum / *senders. O(members).
 */
void mcast_plan_slack(const struct mcast_plan *p, uint64_t step, uint64_t *sum,
		      uint32_t *senders);

/* "sequential", "chain", "tree", "pipeline", "hybrid". */
const char *mcast_algorithm_name(enum mcast_algorithm algorithm);
/* 0, or -EINVAL: no such name. */
int mcast_algorithm_parse(const char *name, enum mcast_algorithm *out);

#endif
