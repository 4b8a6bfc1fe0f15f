/* SPDX-License-Identifier: MIT */
/*
 * bells.h - what peers say to those that sleep arrives at one descriptor, the
 * channel's. A thread that sleeps in an epoll set takes it in by itself, so a
 * bell is one wake-up; where no thread sleeps so, the helper does.
 *
 * The kernel chooses the thread. Each set with streams has the channel
 * (EPOLLEXCLUSIVE), and the helper's own set, behind all of them, too: a bell
 * goes to the first set in which a thread sleeps at that moment. A thread of the
 * program is told once (EPOLLET), so it takes all in that is there, before it
 * looks at its streams, and wakes the other threads that it is for
 * (model: tests/model/bells.pml). Where the kernel refuses the helper's set,
 * the helper sleeps on the channel itself, and hears all.
 *
 * Thread rule: st.lock for everything.
 */
#ifndef SKEIN_BIND_SOCKET_BELLS_H
#define SKEIN_BIND_SOCKET_BELLS_H

#include <stdbool.h>
#include <stdint.h>

struct set;
struct stream_host;
struct stream_qp;

/* The helper's: from now on bells are heard, and there it sleeps. */
void bells_open(struct stream_host *host);
int bells_helper_fd(void);
/* No more: the host is about to close. */
void bells_close(void);
/* A thread is about to sleep in this kernel's set, for the first time. */
void bells_join(int epfd);
/* The program uses the set otherwise than by epoll_wait(). */
void bells_leave(int epfd);
/* Is this what the kernel says of the channel, in place of the program's word? */
bool bells_are(uint64_t data);
/* The kernel has said so. mine: the set that the caller looks at next, or
 * NULL. In a forked child: the parent is told instead. */
void bells_hear(int epfd, const struct set *mine);
/* Hears what has come for streams of q; mine and *last as above and below, or
 * NULL. */
void bells_woken(struct stream_qp *q, const struct set *mine,
		 struct set **last);
/* Takes all in, and wakes threads; *last: a set that the caller
 * rings without the lock (set_ring()), or NULL. The helper's. */
void bells_take(struct set **last);

#endif
