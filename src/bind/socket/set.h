/* SPDX-License-Identifier: MIT */
/*
 * set.h - an epoll set that has sockets of ours: those on TCP are the kernel's
 * business, those on streams are looked at here.
 *
 * Thread rule: st.lock for everything; the real epoll_wait() is called without.
 */
#ifndef SKEIN_BIND_SOCKET_SET_H
#define SKEIN_BIND_SOCKET_SET_H

#include "bind/socket/sock.h"

struct env_waiter;

struct set {
	int fd;
	bool tied;	/* something of it needs the kernel's answer */
	bool closed;	/* the last user frees it */
	unsigned users; /* threads in set_wait() */
	struct env_waiter *waiter;
	unsigned sleepers;
	bool idling;	       /* a thread counts its rounds in `waiter` */
	struct sock **members; /* that are on streams */
	unsigned count, cap, turn;
	uint64_t kernel_ns; /* when the kernel's set was asked last */
};

/* epoll_ctl() for a socket of ours. errno is set. */
int set_ctl(int epfd, int op, struct sock *s, struct epoll_event *ev);
/* A socket of this set is on a stream now. -errno: it cannot be. Locked. */
int set_promote(struct set *set, struct sock *s);
void set_remove(struct set *set, struct sock *s);
/* It is on TCP again. -errno. Locked. */
int set_demote(struct set *set, struct sock *s);
/* Threads that sleep there look again. Locked. */
void set_wake(struct set *set);
int set_wait(int epfd, struct epoll_event *events, int max, int64_t timeout_ns,
	     const sigset_t *mask);
/* What the kernel's epoll_wait() said where there was no set of ours before it
 * slept. Returns what is the program's, or -EAGAIN: nothing is, wait again. */
int set_sift(int epfd, struct epoll_event *events, int n);
/* It is asked about by other means than epoll_wait().
 * -errno: its sockets could not be handed back. */
int set_tie(int epfd, const char *what);
void set_forget(int epfd);

#endif
