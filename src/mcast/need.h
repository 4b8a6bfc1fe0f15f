/* SPDX-License-Identifier: MIT */
/*
 * need.h - how many slots of the ring a streamed message needs at this member,
 * and how often each of its blocks is sent out of one: counted along the schedule,
 * or along the plan of what is resumed, before the ring is made. It may be 2^24
 * blocks: a round counts some of them, and other groups have theirs between.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_NEED_H
#define SKEIN_MCAST_NEED_H

#include "mcast/resume/plan.h"

struct mcast_eng;

/* Blocks that a step looks at: a few hundred us. */
#define MCAST_NEED_LOOKS (1u << 13)

/* What is next in one direction. */
struct mcast_need_side {
	struct mcast_resume_iter it; /* of what is resumed */
	uint64_t from;		     /* of others: the step */
	bool known, is;		     /* item; there is one */
	struct mcast_item item;
};

struct mcast_need {
	uint8_t *left; /* sends that are to come, of each block */
	bool counted;  /* all sends have been: now all keep step */
	struct mcast_need_side sends, recvs;
	uint32_t now, most; /* slots that are in use */
	bool own;	    /* some sends come from fill() */
};

/* Begins to count for the message under way. 0, -ENOMEM. */
int mcast_need_begin(struct mcast_eng *e);
/* Goes on. False: call again. */
bool mcast_need_step(struct mcast_eng *e);
/* Sends of a block that comes, out of its slot: when all has been counted. */
uint32_t mcast_need_unsent(const struct mcast_eng *e,
			   const struct mcast_item *recv);

#endif
