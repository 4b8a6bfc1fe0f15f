/* SPDX-License-Identifier: MIT */
/*
 * moves.h - what each algorithm gives to schedule.c. Private to src/mcast.
 *
 * Contract of all functions: the plan is valid, members > 1, blocks > 0,
 * member, step and block are in range.
 */
#ifndef SKEIN_MCAST_SCHEDULE_MOVES_H
#define SKEIN_MCAST_SCHEDULE_MOVES_H

#include "mcast/schedule/schedule.h"

/* The steps [lo, hi) outside of which a member does nothing. */
struct mcast_span {
	uint64_t lo;
	uint64_t hi;
};

struct mcast_moves {
	uint64_t (*steps)(const struct mcast_plan *p);
	/* False, and *peer and *block unchanged, if the member does not send
	 * (receive) in this step. */
	bool (*send)(const struct mcast_plan *p, uint32_t member, uint64_t step,
		     uint32_t *peer, uint64_t *block);
	bool (*recv)(const struct mcast_plan *p, uint32_t member, uint64_t step,
		     uint32_t *peer, uint64_t *block);
	uint64_t (*recv_step)(const struct mcast_plan *p, uint32_t member,
			      uint64_t block);
	struct mcast_span (*send_span)(const struct mcast_plan *p,
				       uint32_t member);
	struct mcast_span (*recv_span)(const struct mcast_plan *p,
				       uint32_t member);
	/*
	 * If a member does nothing for this many steps in a row within its
	 * span, it does nothing before the last so many steps of the span
	 * either.
	 */
	uint64_t (*gap)(const struct mcast_plan *p);
	uint32_t (*neighbours)(const struct mcast_plan *p, uint32_t member,
			       uint32_t *peers, uint32_t max);
};

extern const struct mcast_moves mcast_sequential;
extern const struct mcast_moves mcast_chain;
extern const struct mcast_moves mcast_tree;
extern const struct mcast_moves mcast_pipeline;
extern const struct mcast_moves mcast_hybrid;

/* Counts a peer; stores it if there is room. */
static inline void peer_add(uint32_t *peers, uint32_t max, uint32_t *count,
			    uint32_t peer)
{
	if (*count < max)
		peers[*count] = peer;
	(*count)++;
}

#endif
