/* SPDX-License-Identifier: MIT */
/*
 * count.h - marks the counted part of a program.
 *
 * Run under `valgrind --tool=callgrind --collect-atstart=no`: collecting is on
 * between the marks only. Outside of valgrind the marks are a few instructions
 * that do nothing. bench/instructions.sh runs the programs and divides.
 */
#ifndef SKEIN_BENCH_COUNT_H
#define SKEIN_BENCH_COUNT_H

#ifdef HAVE_CALLGRIND
#include <valgrind/callgrind.h>
#define COUNT_ON() CALLGRIND_TOGGLE_COLLECT
#define COUNT_OFF() CALLGRIND_TOGGLE_COLLECT
#else
#define COUNT_ON() ((void)0)
#define COUNT_OFF() ((void)0)
#endif

#endif
