/* SPDX-License-Identifier: MIT */
/*
 * need.h - how many buffers a streamed message needs at this member, and how
 * often each block is sent from its buffer. Both are counted along the schedule
 * (or along the plan of a resumed object) before the ring is made. There may be
 * 2^24 blocks, so each round counts only some of them and other groups run in
 * between.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_SCHEDULE_NEED_H
#define SKEIN_MCAST_SCHEDULE_NEED_H

#include "mcast/resume/plan.h"

struct mcast_eng;

/* Blocks that one step looks at: a few hundred us. */
#define MCAST_NEED_LOOKS (1u << 13)

/* The next item in one direction. */
struct mcast_need_side {
	struct mcast_resume_iter it; /* of a resumed object */
	uint64_t from;		     /* of other messages: the step */
	bool known, is;		     /* item is valid; there is an item */
	struct mcast_item item;
};

struct mcast_need {
	uint8_t *left; /* per block: sends left */
	bool counted;  /* all sends are counted; now the second pass runs */
	struct mcast_need_side sends, recvs;
	uint32_t now, most; /* buffers in use at this step; most so far */
	bool own;	    /* fill() supplies some of the sends */
};

/* Begins to count for the message under way. 0, -ENOMEM. */
int mcast_need_begin(struct mcast_eng *e);
/* Counts some blocks. False: call again. */
bool mcast_need_step(struct mcast_eng *e);
/* How often a block that comes is sent from its buffer. All must be counted. */
uint32_t mcast_need_unsent(const struct mcast_eng *e,
			   const struct mcast_item *recv);

#endif
