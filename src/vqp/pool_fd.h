/* SPDX-License-Identifier: MIT */
/*
 * pool_fd.h - the descriptor of skein_pool_fd(), for both fronts: an epoll fd
 * over what wakes the pool's front (a completion channel, or the socket of a node
 * service), an eventfd, and a timer for work that no event announces.
 *
 * How no wake-up is lost (tests/model/pool_fd.pml). All calls on a pool are under
 * its lock. skein_pool_arm() runs a round, looks whether any vqp has something
 * for pop or poll, and only if none has it empties the descriptor; then it asks
 * the source for an event, looks once more, and marks the pool armed. So:
 *
 * - what comes after the request makes an event: the source's promise, behind
 *   the fence of dev_req_notify_cq(), or of the client's word (ring.h);
 * - what a call of another thread finds or makes meanwhile wakes the sleeper: in
 *   an own pool each call that has moved anything, or that leaves something
 *   waiting, does, if the pool is armed. A client of a node service takes
 *   completions out of a ring, and the service sends a message for each sleep all
 *   the same; so only a call that reads the socket, or takes the client's word
 *   back, wakes;
 * - what one thread empties is missed by no other: nothing was there for any. If
 *   it finds work behind that, for whomever, it wakes all.
 *
 * Thread rule: under the pool's lock.
 */
#ifndef SKEIN_VQP_POOL_FD_H
#define SKEIN_VQP_POOL_FD_H

#include "env/env.h"

struct pool_fd {
	struct skein_env *env;
	struct env_waiter *w; /* NULL: not open */
	int timer;	      /* -1: none */
	uint64_t due_ns;      /* of the timer */
	bool armed;	      /* once: a thread may sleep from then on */
	bool rung;	      /* since it was emptied last */
};

/* The descriptor; the first call opens it. source: a descriptor that makes it
 * readable, too. timer: for pool_fd_due(). -EMFILE, -ENOMEM. */
int pool_fd_get(struct pool_fd *f, struct skein_env *env, int source,
		bool timer);
void pool_fd_close(struct pool_fd *f);
int pool_fd_watch(struct pool_fd *f, int fd);
void pool_fd_unwatch(struct pool_fd *f, int fd);

/* Takes wake-ups back; later ones make it readable again. Is fd, which is watched,
 * ready? Other threads that sleep may not have seen what is taken back: a caller
 * that finds work behind this wakes them. */
bool pool_fd_empty(struct pool_fd *f, int fd);
/* It is readable from due_ns on, or earlier. */
void pool_fd_due(struct pool_fd *f, uint64_t now_ns, uint64_t due_ns);
/* Something has moved. */
static inline void pool_fd_wake(struct pool_fd *f)
{
	if (!f->armed || f->rung)
		return;
	f->rung = true;
	env_waiter_wake(f->env, f->w);
}

#endif
