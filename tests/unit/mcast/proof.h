/* SPDX-License-Identifier: MIT */
/*
 * proof.h - whether a list of moves is a multicast. It knows nothing of plans,
 * so that a test can hand it lists with planted mistakes.
 */
#ifndef TESTS_UNIT_MCAST_PROOF_H
#define TESTS_UNIT_MCAST_PROOF_H

#include <stddef.h>
#include <stdint.h>

#include "mcast/schedule/schedule.h"

/* One member's side of one block's way. */
struct move {
	uint64_t step;
	uint64_t block;
	uint32_t member;
	uint32_t peer;
};

struct moves {
	uint32_t members;
	uint64_t blocks;
	uint64_t steps;
	struct move *sends, *recvs; /* member by member, in their order */
	size_t send_count, recv_count;
};

/* All items of a plan, by its iterators. */
void moves_of_plan(struct moves *m, const struct mcast_plan *p);
void moves_free(struct moves *m);

/*
 * NULL, or what is wrong: a move at or past the last step, two sends or two
 * receives of a member in one step, a block received twice or never, a send
 * without its receive or the reverse, a block sent before it was received.
 */
const char *proof(const struct moves *m);

#endif
