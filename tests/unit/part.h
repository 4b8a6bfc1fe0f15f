/* SPDX-License-Identifier: MIT */
/*
 * part.h - how much of a long matrix is run: one in so many of its elements,
 * and in `make soak` (SKEIN_TEST_ROUNDS) all of them. A program that takes a
 * part belongs to the suite `parts`. A step has no factor in common with what
 * an element's number chooses by its remainder.
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
	return part_is_whole() ? 1 : step;
}

#endif
