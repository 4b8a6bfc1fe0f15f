/* SPDX-License-Identifier: MIT */
/*
 * poller.h - how a thread waits for streams: RR-Compound's five ways, their
 * algorithms 1 and 2 one step at a time, and `adaptive`.
 *
 * Pure: no I/O, no clock. The simulator's figures and the preload run this
 * object. Where the paper's pseudocode is wrong this is right: a thread leaves
 * the loop at its first event, and sleeps only when there was none. (That an
 * eventfd which is set is not written again is env_waiter_wake()'s.)
 *
 * Thread rule: one struct poller for all threads of a process; its words may be
 * changed at any time. A struct poller_wait belongs to the waiting thread.
 */
#ifndef SKEIN_STREAM_POLLER_H
#define SKEIN_STREAM_POLLER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum poller_mode {
	POLLER_ADAPTIVE, /* looks, gives the core away, then sleeps */
	POLLER_TCP,	 /* nothing is on a stream */
	POLLER_BP,	 /* looks, and never sleeps */
	POLLER_BPTS,	 /* the same, and asks the kernel in each round */
	POLLER_EVENT,	 /* sleeps at once */
	POLLER_BPEV,	 /* looks for bp_timeout, then sleeps */
	POLLER_MODES
};

/* The kernel is asked at least so often: about other descriptors, and about the
 * sockets themselves. */
#define POLLER_KERNEL_NS 20000u
/* Between these bp_timeout follows what was measured. */
#define POLLER_TIMEOUT_MIN_NS 2000u
#define POLLER_TIMEOUT_MAX_NS 50000u
#define POLLER_THREADS_MAX 16

/* What the waiting thread does next. */
enum poller_step {
	POLLER_LOOK,  /* look at the streams */
	POLLER_ASK,   /* the same, and ask the kernel without waiting */
	POLLER_SLEEP, /* arm, look once more, and sleep in the kernel */
};

struct poller {
	_Atomic uint32_t mode;
	/* Not 0: bp_timeout as it was set. 0: it is measured. */
	_Atomic uint64_t bp_timeout_ns;
	_Atomic uint64_t wait_ns; /* how long waits take, smoothed; 0: unknown */
};

struct poller_wait {
	uint64_t begun_ns;
	uint64_t asked_ns; /* the kernel was asked last */
};

void poller_init(struct poller *p, enum poller_mode mode);
/* Any thread, also while others wait: they follow with their next step. */
void poller_set(struct poller *p, enum poller_mode mode);
enum poller_mode poller_mode(const struct poller *p);
/* By name; -EINVAL. */
int poller_mode_find(const char *name, enum poller_mode *mode);
const char *poller_mode_name(enum poller_mode mode);

/* Does a wait end in a sleep, when nothing comes for long? */
bool poller_sleeps(const struct poller *p);
/* Is it time to ask the kernel, for a thread that looks? */
bool poller_asks(const struct poller *p, uint64_t asked_ns, uint64_t now_ns);
/* A round of a wait has found nothing; or, at `now` == begun_ns, there was none
 * yet. The caller notes in asked_ns when it asked the kernel. */
enum poller_step poller_step(const struct poller *p,
			     const struct poller_wait *w, uint64_t now_ns);
/* When the step will be another one, if nothing comes; UINT64_MAX: never. */
uint64_t poller_until(const struct poller *p, const struct poller_wait *w,
		      uint64_t now_ns);
/* A wait has ended with an event. Waits that took longer than anything worth
 * polling for count as that. */
void poller_found(struct poller *p, const struct poller_wait *w,
		  uint64_t now_ns);
/* bpev: how long a thread looks before it sleeps: a little above the waits that
 * were measured, that is the round trip (section V-B). */
uint64_t poller_timeout_ns(const struct poller *p);

/* Polling threads that a process has unless told: none below four cores. */
unsigned poller_threads(unsigned cores);

#endif
