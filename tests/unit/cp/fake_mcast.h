/* SPDX-License-Identifier: MIT */
/*
 * fake_mcast.h - a multicast among threads of one process, for tests of what
 * stands on skein/mcast.h: it keeps that header's contract, sends blocks in
 * order, and fails and corrupts as it is told.
 */
#ifndef SKEIN_TESTS_CP_FAKE_MCAST_H
#define SKEIN_TESTS_CP_FAKE_MCAST_H

#include "cp/mcast_ops.h"

extern const struct cp_mcast_ops fake_mcast;

/* What goes wrong; all zero: nothing. Set between groups. */
struct fake_faults {
	unsigned corrupt_rank;	/* 0: nobody's */
	uint32_t corrupt_block; /* the block of a message */
	unsigned corrupt_times; /* in so many groups */
	unsigned fail_rank;	/* is said to fail */
	uint32_t fail_block;	/* before this block is given to it */
	unsigned fail_times;
	unsigned open_times; /* so many opens fail */
};
extern struct fake_faults fake_faults;
/* How many blocks were sent in all groups, and members of the last; how many
 * memberships would poll for longer than the engine does by itself. */
extern unsigned fake_blocks, fake_members, fake_pollers;

/* How long an open waits for members that do not come. */
#define FAKE_OPEN_S 20u
extern _Atomic unsigned fake_open_s;

#endif
