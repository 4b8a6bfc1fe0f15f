/* SPDX-License-Identifier: MIT */
/*
 * membarrier.h - a full fence in threads that do not make one themselves, for
 * protocols in which one side comes all the time and the other side seldom.
 * The kernel does it, by membarrier(2). A sandbox may forbid that call at any
 * later time: then the fence takes 20 ms, by waiting, and is still a fence.
 *
 * Any thread may call these. Of another thread the fence orders what stands
 * before the moment of the call against what stands behind it.
 */
#ifndef SKEIN_ENV_MEMBARRIER_H
#define SKEIN_ENV_MEMBARRIER_H

#include <stdbool.h>

enum membarrier_scope {
	MEMBARRIER_PROCESS, /* all threads of this process */
	MEMBARRIER_HOST,    /* of every process that registered for it */
};

/* Two ticks of the slowest kernel (CONFIG_HZ is at least 100). */
#define MEMBARRIER_WAIT_NS 20000000ull

/* Once in a process, before the first fence. 0 or -errno. */
int membarrier_register(enum membarrier_scope scope);
/* The fence, in microseconds; false: the kernel refuses it, and nothing was
 * done. */
bool membarrier_try(enum membarrier_scope scope);
/* The fence in any case: where the kernel refuses it, by membarrier_wait(). */
void membarrier_fence(enum membarrier_scope scope);
/* The same fence without the kernel's help, in MEMBARRIER_WAIT_NS. */
void membarrier_wait(void);
/* True once the kernel has refused it to this process. */
bool membarrier_refused(void);

#endif
