/* SPDX-License-Identifier: MIT */
/*
 * normal.h - the normal form of what a device did: of an epoch all that the
 * specification settles, in one order, as text; what it leaves open is left
 * out. Two devices that carried out one tame program have the same.
 */
#ifndef SKEIN_TESTS_CONFORM_NORMAL_H
#define SKEIN_TESTS_CONFORM_NORMAL_H

#include "trace.h"

/* lossy: messages of UC may be lost. */
void normal_print(const struct program *p, const struct epoch *e, bool lossy,
		  FILE *out);

#endif
