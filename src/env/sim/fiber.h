/* SPDX-License-Identifier: MIT */
/*
 * fiber.h - stacks that one OS thread switches between.
 *
 * swapcontext() saves the signal mask by a system call at every switch. A
 * switch here saves only what the ABI demands, in a few nanoseconds. The
 * sanitizers and valgrind are informed of every stack and every switch.
 *
 * Thread rule: all fibers of one struct fiber_main belong to one OS thread.
 */
#ifndef SKEIN_ENV_SIM_FIBER_H
#define SKEIN_ENV_SIM_FIBER_H

#include <stddef.h>

struct fiber {
	void *sp; /* where it stopped */
	void *stack;
	size_t stack_len;
	void (*fn)(void *arg);
	void *arg;
	void *asan_fake;
	void *tsan;
	unsigned valgrind_id;
};

/* The stack the world itself runs on. Zeroed, then fiber_main_init(). */
void fiber_main_init(struct fiber *main);

/* A fiber that will run fn(arg) at its first switch; fn never returns, it
 * switches away for the last time. Its stack has a guard page below. -ENOMEM. */
int fiber_init(struct fiber *f, size_t stack_len, void (*fn)(void *arg),
	       void *arg);
/* Not the running fiber. Nothing on its stack is unwound. */
void fiber_fini(struct fiber *f);

/* from: the running fiber. Returns when another fiber switches back to it. */
void fiber_switch(struct fiber *from, struct fiber *to);

#endif
