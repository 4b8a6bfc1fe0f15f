/* SPDX-License-Identifier: MIT */
/*
 * resume/plan.h - who sends which block to whom when members that each have a
 * part of an object finish it among themselves; docs/mcast.md, "Resume".
 *
 * A plan is a pure function of (schedule, what each member has): every member
 * computes the same one. First the root receives what it lacks, up the tree,
 * each block from a member that is least far away; then everything that
 * anybody lacks goes along the group's schedule, but for what its receiver has.
 * Each lacking block comes once; a member sends and receives at most one a step.
 * Who has had blocks that it cannot give again (table.gone) is sent those of which
 * another lacks them once more, to pass them on, and keeps nothing for later.
 *
 * No I/O. Memory comes from the port. Any thread, a plan that is made is
 * constant.
 */
#ifndef SKEIN_MCAST_RESUME_PLAN_H
#define SKEIN_MCAST_RESUME_PLAN_H

#include "mcast/port.h"
#include "mcast/schedule.h"

/* Blocks that a member has, side by side. */
struct mcast_run {
	uint32_t first, count;
	uint64_t digest; /* of their checksums: mcast_digest_add() */
};

/* What a member has: ascending runs, apart from each other. */
struct mcast_table {
	bool knows;    /* ... how large the object is */
	bool gone;     /* ... it has had, and can give to nobody */
	uint64_t size; /* that */
	uint32_t n;
	struct mcast_run *runs;
};

/* Most runs of one member's table: 64 of 4096 members, 4096 of up to 16. */
uint32_t mcast_runs_max(uint32_t members);
/* The runs of a bitmap: all, or if there are more than max, the longest. runs
 * has room for max. Returns how many; digests are 0. */
uint32_t mcast_runs_of(const uint64_t *have, uint32_t blocks,
		       struct mcast_run *runs, uint32_t max);
/* Sets the bits of a run's blocks. */
void mcast_run_set(uint64_t *have, const struct mcast_run *run);
/* The run that has the block; NULL: none. */
const struct mcast_run *mcast_run_find(const struct mcast_table *t,
				       uint32_t block);

/* Blocks that go up to the root, one behind the other. */
struct mcast_gather {
	uint32_t first, count;
	uint32_t holder; /* whence; its way up is that of the tree */
	uint64_t base;	 /* the step in which it sends the first */
};

/* Blocks that somebody lacks. */
struct mcast_gap {
	uint32_t first;
	uint32_t at; /* how many there are in the gaps before */
};

struct mcast_resume_plan {
	uint32_t members, blocks;
	const struct mcast_table *tables; /* borrowed, of each member */
	const uint32_t *parents;	  /* borrowed: of each; [0] is 0 */
	struct mcast_plan down;		  /* of `missing` blocks */
	struct mcast_gather *gathers;
	struct mcast_gap *gaps;
	uint32_t n_gathers, n_gaps;
	uint32_t missing;	   /* somebody lacks them */
	uint32_t lost;		   /* nobody has them: it cannot be finished */
	uint64_t turn;		   /* the step in which `down` begins */
	struct mcast_sweep *sweep; /* while it is being made */
};

/* how: a plan of which algorithm, members and racks count. 0, -ENOMEM. */
int mcast_resume_plan_begin(struct mcast_resume_plan *p,
			    struct mcast_port *port,
			    const struct mcast_plan *how, uint32_t blocks,
			    const struct mcast_table *tables,
			    const uint32_t *parents);
/* Looks at some runs. False: call again; true: it is made, which is said once. */
bool mcast_resume_plan_step(struct mcast_resume_plan *p,
			    struct mcast_port *port);
void mcast_resume_plan_fini(struct mcast_resume_plan *p,
			    struct mcast_port *port);
uint64_t mcast_resume_plan_steps(const struct mcast_resume_plan *p);

/* Where a member is in its sends, or in its receives. */
struct mcast_resume_iter {
	uint32_t member;
	bool sends;
	uint32_t gather, i; /* the next to look at, and the block in it */
	uint64_t step;	    /* of `down` */
};

enum mcast_resume_found {
	MCAST_RESUME_END,  /* there are no more */
	MCAST_RESUME_ITEM, /* *out */
	MCAST_RESUME_MORE, /* not found yet: call again */
};

/* The next, in the order of steps. Looks at a bounded number of blocks. */
enum mcast_resume_found mcast_resume_next(const struct mcast_resume_plan *p,
					  struct mcast_resume_iter *it,
					  struct mcast_item *out);
/* The same, of as many as *looks, which it counts down; 0: nothing is done. */
enum mcast_resume_found mcast_resume_look(const struct mcast_resume_plan *p,
					  struct mcast_resume_iter *it,
					  uint32_t *looks,
					  struct mcast_item *out);
/* Of count blocks from first on: how many does somebody lack? */
uint32_t mcast_resume_missing(const struct mcast_resume_plan *p, uint32_t first,
			      uint32_t count);
/* Is what a member sends there since before: from the beginning, or since what
 * the root lacked went up? Else it comes to the member just before. */
bool mcast_resume_from_own(const struct mcast_resume_plan *p, uint32_t member,
			   const struct mcast_item *send);

#endif
