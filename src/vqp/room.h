/* SPDX-License-Identifier: MIT */
/*
 * room.h - how much of a thing one user may have, where many have a share of it:
 * as much as is free, but for a quarter of all, which is kept for users with less
 * than `least`. So each further user that takes all it gets has half as much as
 * the one before, and all / 4 / least users that come later have `least`. Pure.
 */
#ifndef SKEIN_VQP_ROOM_H
#define SKEIN_VQP_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/* May a user that has `used` take n more? free: what nobody has. */
static inline bool room_allows(uint32_t used, uint32_t n, uint32_t free,
			       uint32_t all, uint32_t least)
{
	if (n > free)
		return false;
	return used + n <= least || used + n + all / 4 <= free;
}

#endif
