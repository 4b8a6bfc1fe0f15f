/* SPDX-License-Identifier: MIT */
/* clock.h - monotonic nanoseconds for the application's own deadlines and
 * latencies. */
#ifndef KV_CLOCK_H
#define KV_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t kv_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
