/* SPDX-License-Identifier: MIT */
/*
 * set.h - an epoll set of the program. The kernel's set watches its sockets on
 * TCP; set_wait() looks at those on streams itself.
 *
 * Thread rule: st.lock for everything, but not while a thread is in the real
 * epoll_wait().
 */
#ifndef SKEIN_BIND_SOCKET_SET_H
#define SKEIN_BIND_SOCKET_SET_H

#include "bind/socket/sock.h"

struct env_waiter;

struct set {
	int fd;
	bool tied;	/* its sockets stay on TCP */
	bool closed;	/* the last user frees it */
	unsigned users; /* threads in set_wait() */
	struct env_waiter *waiter;
	unsigned sleepers;
	bool idling;	       /* a thread counts its rounds in `waiter` */
	struct sock **members; /* that are on streams */
	unsigned count, cap, turn;
	uint64_t kernel_ns; /* the last real epoll_wait() */
};

/* epoll_ctl() for a socket of ours. errno is set. */
int set_ctl(int epfd, int op, struct sock *s, struct epoll_event *ev);
/* A socket of this set moves onto a stream. -errno: it cannot. Locked. */
int set_promote(struct set *set, struct sock *s);
void set_remove(struct set *set, struct sock *s);
/* The socket is on TCP again. 0 or -errno. Locked. */
int set_demote(struct set *set, struct sock *s);
/* Threads that sleep there look again. Locked. */
void set_wake(struct set *set);
int set_wait(int epfd, struct epoll_event *events, int max, int64_t timeout_ns,
	     const sigset_t *mask);
/* After a real epoll_wait() that returned n events and began before the
 * descriptor had a struct set: takes out the events that are not for the
 * program. Returns how many are left, or -EAGAIN: none, wait again. */
int set_sift(int epfd, struct epoll_event *events, int n);
/* The program uses the set otherwise than by epoll_wait(): its sockets go back
 * to TCP. what: the call. -errno: they could not. */
int set_tie(int epfd, const char *what);
void set_forget(int epfd);

#endif
