/* SPDX-License-Identifier: MIT */
/*
 * resume/plan.h - which member sends which block to which other, when each has
 * a part of an object and they finish it together; docs/design/mcast.md,
 * "Resume".
 *
 * A plan is a pure function of (schedule, what each member has): every member
 * computes the same one. First the root receives what it lacks, up the tree;
 * each block comes from a nearest member that has it. Then every block that any
 * member lacks goes down along the group's schedule, except to members that
 * have it. So each lacking block comes once, and in one step a member sends and
 * receives at most one block.
 *
 * A member that consumed its blocks (table.gone) cannot give them again. It is
 * sent those that another member lacks a second time, passes them on, and keeps
 * nothing.
 *
 * No I/O. Memory comes from the port. A finished plan is constant: any thread
 * may read it.
 */
#ifndef SKEIN_MCAST_RESUME_PLAN_H
#define SKEIN_MCAST_RESUME_PLAN_H

#include "mcast/port.h"
#include "mcast/schedule/schedule.h"

/* Blocks in a row that a member has. */
struct mcast_run {
	uint32_t first, count;
	uint64_t digest; /* of their checksums: mcast_digest_add() */
};

/* What a member has: runs in ascending order that do not touch. */
struct mcast_table {
	bool knows;    /* it knows the object's size */
	bool gone;     /* its blocks are consumed: it can give none of them */
	uint64_t size; /* of the object */
	uint32_t n;
	struct mcast_run *runs;
};

/* Most runs in one member's table: 4096 in a group of up to 16, 64 in one of
 * 4096. */
uint32_t mcast_runs_max(uint32_t members);
/* Finds the runs of a bitmap: all of them, or the longest if there are more
 * than max. runs has room for max. Returns how many; their digests are 0. */
uint32_t mcast_runs_of(const uint64_t *have, uint32_t blocks,
		       struct mcast_run *runs, uint32_t max);
/* Sets the bits of a run's blocks. */
void mcast_run_set(uint64_t *have, const struct mcast_run *run);
/* The run that has the block; NULL: none. */
const struct mcast_run *mcast_run_find(const struct mcast_table *t,
				       uint32_t block);

/* Blocks in a row that go up to the root. */
struct mcast_gather {
	uint32_t first, count;
	/* the member that has them; they go up the tree from it */
	uint32_t holder;
	uint64_t base; /* the step in which it sends the first one */
};

/* Blocks in a row that some member lacks. */
struct mcast_gap {
	uint32_t first;
	uint32_t at; /* how many blocks are in the gaps before this one */
};

struct mcast_resume_plan {
	uint32_t members, blocks;
	const struct mcast_table *tables; /* borrowed: [member] */
	const uint32_t *parents;	  /* borrowed: [member]; [0] is 0 */
	/* the schedule of the `missing` blocks */
	struct mcast_plan down;
	struct mcast_gather *gathers;
	struct mcast_gap *gaps;
	uint32_t n_gathers, n_gaps;
	uint32_t missing; /* blocks that some member lacks */
	/* blocks that no member has: the object cannot be finished */
	uint32_t lost;
	uint64_t turn;		   /* the first step of `down` */
	struct mcast_sweep *sweep; /* NULL once the plan is made */
};

/* how: a plan of the same algorithm, members and racks. 0, -ENOMEM. */
int mcast_resume_plan_begin(struct mcast_resume_plan *p,
			    struct mcast_port *port,
			    const struct mcast_plan *how, uint32_t blocks,
			    const struct mcast_table *tables,
			    const uint32_t *parents);
/* Looks at some runs. False: call again. True, once: the plan is made. */
bool mcast_resume_plan_step(struct mcast_resume_plan *p,
			    struct mcast_port *port);
void mcast_resume_plan_fini(struct mcast_resume_plan *p,
			    struct mcast_port *port);
uint64_t mcast_resume_plan_steps(const struct mcast_resume_plan *p);

/* A position in a member's sends, or in its receives. */
struct mcast_resume_iter {
	uint32_t member;
	bool sends;
	uint32_t gather, i; /* the next gather, and the block in it */
	uint64_t step;	    /* the next step of `down` */
};

enum mcast_resume_found {
	MCAST_RESUME_END,  /* there is no further item */
	MCAST_RESUME_ITEM, /* *out is the item */
	MCAST_RESUME_MORE, /* not found yet: call again */
};

/* Finds the next item in the order of steps. Looks at a bounded number of
 * blocks. */
enum mcast_resume_found mcast_resume_next(const struct mcast_resume_plan *p,
					  struct mcast_resume_iter *it,
					  struct mcast_item *out);
/* The same, but looks at *looks blocks at most and counts *looks down. */
enum mcast_resume_found mcast_resume_look(const struct mcast_resume_plan *p,
					  struct mcast_resume_iter *it,
					  uint32_t *looks,
					  struct mcast_item *out);
/* How many of `count` blocks from `first` on does some member lack? */
uint32_t mcast_resume_missing(const struct mcast_resume_plan *p, uint32_t first,
			      uint32_t count);
/* Does the member have this block before the phase of this send begins: from
 * the start, or, for a send of `down`, since the gathering? Otherwise it
 * receives the block just before it sends it. */
bool mcast_resume_from_own(const struct mcast_resume_plan *p, uint32_t member,
			   const struct mcast_item *send);

#endif
