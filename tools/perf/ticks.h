/* SPDX-License-Identifier: MIT */
/*
 * ticks.h - the clock of a measurement: the time-stamp counter where there is
 * one, since reading the system's clock would cost as much as what is measured.
 *
 * Thread rule: none needed; threads that compare ticks rely on a counter that
 * is the same on all cores (constant_tsc), as every x86-64 of this decade has.
 */
#ifndef SKEIN_TOOLS_PERF_TICKS_H
#define SKEIN_TOOLS_PERF_TICKS_H

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#else
	return clock_ns();
#endif
}

/* Nanoseconds of one tick, by comparing both clocks for 10 ms. */
static inline double ticks_calibrate(void)
{
#if defined(__x86_64__)
	uint64_t c0 = clock_ns(), t0 = ticks_now(), c1;

	do
		c1 = clock_ns();
	while (c1 - c0 < 10000000);
	return (double)(c1 - c0) / (double)(ticks_now() - t0);
#else
	return 1.0;
#endif
}

#endif
