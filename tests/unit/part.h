/* SPDX-License-Identifier: MIT */
/*
 * part.h - how much of a long matrix is run: one in so many of its elements,
 * in `make soak` (SKEIN_TEST_ROUNDS) all of them, and in a sanitizer's lane
 * (SKEIN_TEST_TIME_SCALE) one in eleven times as many: what it looks for does
 * not hang on the element. A program that takes a part belongs to the suite
 * `parts`. A step has no factor in common with what an element's number
 * chooses by its remainder.
 */
#ifndef SKEIN_TESTS_PART_H
#define SKEIN_TESTS_PART_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool part_is_whole(void)
{
	return getenv("SKEIN_TEST_ROUNDS") != NULL;
}

static inline unsigned part_step(unsigned step)
{
	if (part_is_whole())
		return 1;
	return getenv("SKEIN_TEST_TIME_SCALE") ? 11 * step : step;
}

/* How many of so many rounds or seeds that are all alike. */
static inline unsigned part_rounds(unsigned rounds)
{
	return getenv("SKEIN_TEST_TIME_SCALE") && !part_is_whole() ? rounds / 5
								   : rounds;
}

#endif
