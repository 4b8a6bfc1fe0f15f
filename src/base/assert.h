/* SPDX-License-Identifier: MIT */
/*
 * assert.h - for the programmer's errors, never for a peer's. Kept in release
 * builds; per-byte paths use skein_assert_debug().
 */
#ifndef SKEIN_BASE_ASSERT_H
#define SKEIN_BASE_ASSERT_H

#include <stdio.h>
#include <stdlib.h>

#define skein_assert(cond)                                                \
	do {                                                              \
		if (__builtin_expect(!(cond), 0)) {                       \
			fprintf(stderr, "skein: %s:%d: %s: failed: %s\n", \
				__FILE__, __LINE__, __func__, #cond);     \
			abort();                                          \
		}                                                         \
	} while (0)

#ifdef SKEIN_DEBUG
#define skein_assert_debug(cond) skein_assert(cond)
#else
#define skein_assert_debug(cond) ((void)0)
#endif

#endif
