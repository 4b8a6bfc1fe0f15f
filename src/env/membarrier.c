/* SPDX-License-Identifier: MIT */
/*
 * membarrier.c - membarrier(2), and what takes its place.
 *
 * The caller has stored X and will load Y; another thread stores Y and then
 * loads X, without a fence. It must not happen that both loads miss the other
 * side's store. membarrier_wait() makes a full fence, so X is in memory at a
 * time T, and returns at T + 20 ms or later. If the other thread's load of X
 * came after T, it has seen X. If it came before T, its store of Y was before
 * it in program order and is at T in memory or in the store buffer of its
 * core. Within 20 ms that core takes a timer interrupt (a core that runs user
 * code takes one each 1/HZ s, and HZ is 100 or more), or the thread leaves the
 * core, or the virtual machine leaves it. Each of these empties the store
 * buffer (SDM volume 3A, 11.10), so the caller's load of Y sees it. A core
 * without ticks (nohz_full) takes no interrupt; there it counts that a store
 * buffer also empties by itself, within microseconds, which no manual bounds.
 * tests/model/fence.pml has both sides.
 */
#include "env/membarrier.h"

#include "base/fence.h"
#include "env/env.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of the process, as a seccomp filter is. */
static atomic_bool refused;

int membarrier_register(enum membarrier_scope scope)
{
	int cmd = scope == MEMBARRIER_HOST
			  ? MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED
			  : MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;

	return syscall(SYS_membarrier, cmd, 0, 0) ? -errno : 0;
}

bool membarrier_try(enum membarrier_scope scope)
{
	int cmd = scope == MEMBARRIER_HOST ? MEMBARRIER_CMD_GLOBAL_EXPEDITED
					   : MEMBARRIER_CMD_PRIVATE_EXPEDITED;
	int err = errno;

	if (!syscall(SYS_membarrier, cmd, 0, 0))
		return true;
	errno = err; /* the caller has no error */
	atomic_store_explicit(&refused, true, memory_order_relaxed);
	return false;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void membarrier_wait(void)
{
	struct timespec nap = {0};
	int was = env_cancel_off(NULL), err = errno;
	uint64_t start, gone;

	/* See the file head. Without it the wait may begin before our own
	 * store is in memory. */
	fence_full();
	start = now_ns();
	for (gone = 0; gone < MEMBARRIER_WAIT_NS; gone = now_ns() - start) {
		nap.tv_nsec = (long)(MEMBARRIER_WAIT_NS - gone);
		/* refused as well, or a signal: the clock decides */
		if (nanosleep(&nap, NULL))
			sched_yield();
	}
	env_cancel_back(NULL, was);
	errno = err;
}

void membarrier_fence(enum membarrier_scope scope)
{
	if (!membarrier_try(scope))
		membarrier_wait();
}

bool membarrier_refused(void)
{
	return atomic_load_explicit(&refused, memory_order_relaxed);
}
