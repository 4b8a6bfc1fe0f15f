/* SPDX-License-Identifier: MIT */
/*
 * stage.h - where programs run: on the machine as it is, or, for the simulated
 * device, in a thread of a world in virtual time with two nodes. One stage a
 * process.
 */
#ifndef SKEIN_TESTS_CONFORM_STAGE_H
#define SKEIN_TESTS_CONFORM_STAGE_H

#include "env/env.h"

/* Runs fn(arg) there, to its end. 0, or -1 after a message on stderr. */
int stage_run(const char *device, void (*fn)(void *arg), void *arg);
/* The environment of a side's node; NULL: no simulation. */
struct skein_env *stage_env(int side);
void stage_sleep(uint64_t ns);
/* CONFORM_LOSS=N: of a million messages between the simulated nodes N are
 * lost. RC must hide it. */
unsigned stage_loss(void);

#endif
