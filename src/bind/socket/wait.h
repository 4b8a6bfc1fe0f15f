/* SPDX-License-Identifier: MIT */
/*
 * wait.h - a thread that waits for sockets on streams outside of an epoll set:
 * poll(), select() and blocking calls.
 *
 * Thread rule: st.lock for waiters and the spare waiters; none while it sleeps.
 */
#ifndef SKEIN_BIND_SOCKET_WAIT_H
#define SKEIN_BIND_SOCKET_WAIT_H

#include "bind/socket/sock.h"

#include <poll.h>

/* Seconds and n parts of a second of part_ns each, none negative; INT64_MAX, for
 * ever, is the most. */
static inline int64_t wait_ns(int64_t seconds, int64_t n, int64_t part_ns)
{
	int64_t ns, more;

	if (__builtin_mul_overflow(seconds, 1000000000, &ns) ||
	    __builtin_mul_overflow(n, part_ns, &more) ||
	    __builtin_add_overflow(ns, more, &ns))
		return INT64_MAX;
	return ns;
}

/* How long a call waits by the program's timeout; NULL: INT64_MAX, for ever. False:
 * the kernel says what is wrong with it. */
bool wait_time(const struct timespec *timeout, int64_t *ns);
/* poll() for descriptors of any kind. timeout_ns: INT64_MAX for ever. what: the
 * name of the program's call. errno is set. */
int wait_poll(struct pollfd *fds, nfds_t n, int64_t timeout_ns,
	      const sigset_t *mask, const char *what);
/* A blocking call on a socket that is on a stream waits for events, at most for
 * the socket's own timeout. cancel: the cancel state of the program's thread. 0:
 * the call tries again. -1: errno is set. */
int wait_one(struct sock *s, short events, int cancel);
/* Would one of these threads find what it waits for? Locked. */
bool wait_finds(struct sock *s);
/* Threads that wait for the socket look again. Locked. */
void wait_wake(struct sock *s);
/* The peer's library has said something to the stream of s: wakes the threads
 * that have to look again, but those that sleep in its set, which is returned:
 * the caller wakes them. NULL: none. The helper's, locked. */
struct set *wait_hear(struct sock *s);

#endif
