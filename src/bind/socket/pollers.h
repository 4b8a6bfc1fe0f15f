/* SPDX-License-Identifier: MIT */
/*
 * pollers.h - how the threads of this process wait for streams, and its polling
 * threads (RR-Compound, algorithm 2; the decisions are stream/poller.h's).
 *
 * A thread that sleeps in the kernel is woken by a polling thread while these
 * are awake, else by its peers' bells, for which it has asked. Polling threads
 * rest when nothing has moved for POLLERS_REST_NS: first they ask the peers of
 * all that sleep. A bell makes them look again. A change between the two, and
 * the way into sleep, are each one step under st.lock
 * (model: tests/model/poller.pml).
 *
 * Thread rule: st.lock, but for pollers_idle() and pollers_found().
 */
#ifndef SKEIN_BIND_SOCKET_POLLERS_H
#define SKEIN_BIND_SOCKET_POLLERS_H

#include "bind/socket/sock.h"

#include "stream/poller.h"

#define POLLERS_REST_NS 1000000u
/* Rounds after which a thread that never sleeps asks the kernel for what would have
 * ended its sleep. */
#define POLL_ROUNDS 64

struct env_waiter;

/* At start. count: SKEIN_RUN_POLLERS, or NULL. */
void pollers_init(enum poller_mode mode, const char *count);
/* In a forked child: it has none. */
void pollers_fork(void);
/* A round has found nothing: gives way as the mode says. True: sleep now. *pw is
 * all zero when the wait begins. */
bool pollers_idle(struct env_waiter *w, struct poller_wait *pw, unsigned round);
/* The round, from 0, does not end in a sleep. Does the thread ask the kernel now for
 * what would end one: a cancellation, or a signal that its mask lets through? With a
 * mask at once: each of its waits may be over before it would sleep. */
static inline bool pollers_check(unsigned round, const sigset_t *mask)
{
	if (!round)
		return mask != NULL;
	return round % POLL_ROUNDS == 0 && !poller_sleeps(&st.poller);
}
/* The wait has ended with something. */
void pollers_found(const struct poller_wait *pw);
/* The caller goes to sleep, or leaves others asleep. True: polling threads look
 * at their streams. False: the peers must be asked. Locked. */
bool pollers_watch(void);
/* A bell rang: streams move again. Locked. */
void pollers_bell(void);

#endif
