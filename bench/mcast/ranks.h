/* SPDX-License-Identifier: MIT */
/*
 * ranks.h - the processes of a measurement on one machine. The caller is rank 0;
 * the others are its children and end with it. One set of them a program.
 */
#ifndef SKEIN_BENCH_RANKS_H
#define SKEIN_BENCH_RANKS_H

#include <stdint.h>

#include "skein/skein.h"

#define RANKS_MAX 64

/* Says what failed, and exits, unless rc is 0. */
void must(const char *what, int rc);
uint64_t now_ns(void);

/* Forks ranks 1 to n - 1: each runs fn() and exits with what it returns. Returns
 * in rank 0 when all have met: 0, or -1. */
int ranks_start(unsigned n, int (*fn)(unsigned rank, void *arg), void *arg);
/* In fn(), once: opens a listener, tells its address, and learns everybody's. */
void ranks_meet(struct skein_ctx *ctx, unsigned rank);
/* Everybody's address; rank 0 has none and needs none. */
const char *const *ranks_members(void);
/* Waits for all: 0, or 1 when some did not return 0. */
int ranks_end(void);

#endif
