/* SPDX-License-Identifier: MIT */
/*
 * idle.h - connections that no byte passes for st.idle_ns give their rings back:
 * they go on by TCP, and traffic promotes them again.
 *
 * A look compares the counters of the status page, a few sockets at a time; no
 * call of the program does anything for it. Thread rule: the helper's thread, but
 * idle_watch(), which is any thread's that has st.lock.
 */
#ifndef SKEIN_BIND_SOCKET_IDLE_H
#define SKEIN_BIND_SOCKET_IDLE_H

#include <stdint.h>

/* The helper's place in its look at all sockets. */
struct idle {
	uint64_t due_ns; /* when the next look begins; 0: none is planned */
	int at;		 /* the descriptor where it goes on */
};

/* Goes on with the look, if it is time. Returns when it has to be called again,
 * or UINT64_MAX: after the next promotion. */
uint64_t idle_round(struct idle *idle, uint64_t now_ns);
/* A connection has a stream: there is something to look at. Locked. */
void idle_watch(void);

#endif
