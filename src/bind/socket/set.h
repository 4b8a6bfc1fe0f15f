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
	int bell_fd;	/* in the kernel's set; wakes a thread that sleeps */
	bool hears;	/* bells arrive there, or never will (bells.h) */
	bool armed;	/* nobody has rung it yet since one went to sleep */
	unsigned sleepers;
	struct env_waiter *waiter; /* how a thread idles before it sleeps */
	bool idling;		   /* a thread counts its rounds there */
	struct sock **members;	   /* that are on streams */
	unsigned count, cap, turn;
	uint64_t kernel_ns; /* the last real epoll_wait() */
};

/* epoll_ctl() for a socket of ours. errno is set. */
int set_ctl(int epfd, int op, int fd, struct sock *s, struct epoll_event *ev);
/* A socket of this set moves onto a stream. -errno: it cannot. Locked. */
int set_promote(struct set *set, struct sock *s);
void set_remove(struct set *set, struct sock *s);
/* The same, and the kernel's set has it no more. */
void set_drop(struct set *set, struct sock *s);
/* The socket is on TCP again. 0 or -errno. Locked. */
int set_demote(struct set *set, struct sock *s);
/* Threads that sleep there look again. Locked. */
void set_wake(struct set *set);
/* The same in two steps, so that the thread that wakes up finds the lock free:
 * the first returns the set, or NULL if nobody is to be woken. Locked; the
 * second one is called without the lock. */
struct set *set_wake_later(struct set *set);
void set_ring(struct set *set);
/* Would a thread that looks at its set find an event of s now? Locked. */
bool set_finds(struct sock *s);
int set_wait(int epfd, struct epoll_event *events, int max, int64_t timeout_ns,
	     const sigset_t *mask);
/* After a real epoll_wait() that returned n events and began before the
 * descriptor had a struct set: takes out the events that are not for the
 * program. Returns how many are left, or -EAGAIN: none, wait again. */
int set_sift(int epfd, struct epoll_event *events, int max, int n);
/* The program uses the set otherwise than by epoll_wait(): its sockets go back
 * to TCP. what: the call. -errno: they could not. */
int set_tie(int epfd, const char *what);
void set_forget(int epfd);
/* The kernel alone has it from now on, if it can be: no thread waits there, and
 * none of its sockets is on a stream. Locked. */
bool set_leave(int epfd);
/* Before fork(): a child has the kernel's set, too, and might sleep in it. It can
 * hand a bell back only if it has the channel, so a set that does not hear bells
 * never will. Locked. */
void set_fork(struct set *set);

#endif
