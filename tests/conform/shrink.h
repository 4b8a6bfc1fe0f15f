/* SPDX-License-Identifier: MIT */
/*
 * shrink.h - makes a failing program small: leaves out steps, requests and
 * pieces as long as it goes on failing in the same way.
 */
#ifndef SKEIN_TESTS_CONFORM_SHRINK_H
#define SKEIN_TESTS_CONFORM_SHRINK_H

#include "run.h"

/* p fails with *o; both become those of the smaller program. */
void program_shrink(struct world *w, struct program *p, struct outcome *o);

#endif
