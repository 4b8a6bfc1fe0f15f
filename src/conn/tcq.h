/* SPDX-License-Identifier: MIT */
/*
 * tcq.h - the thread combining queue of a QP (FLOCK, section 3.3.2): threads
 * that want to send at the same moment share one message.
 *
 * A thread brings a node and swaps it onto the tail. Who finds nobody before
 * it is the leader: it takes the nodes that stand behind its own, `bound` at
 * most, sends them all, hands the lead to the first that it has not taken, and
 * tells its followers. Everything else of the sending side (the ring's tail,
 * the mirror, the QP) belongs to the leader, so it needs no lock.
 *
 * Nobody who leads waits for a thread that may have been preempted, but for
 * one that is copying at that moment: payloads up to TCQ_INLINE go along in
 * the node, and the leader copies them; the copy of a longer one is whoever's
 * that claims it first, its owner or the leader (tcq_offer(), tcq_settle()).
 * A thread that stands between its swap and its link does not hold up the leader
 * either (it leaves a mark). Who is behind a preempted leader waits until that one runs
 * again: the scheduler's slice is the bound, since those who wait yield.
 *
 * No step is a cancellation point, so that a thread is cancelled before it
 * enters or after its request was sent; it owns its node in both cases. The
 * queue is one process's: it dies as a whole or not at all.
 *
 * Thread rule: tcq_submit() by any thread, one node of its own at a time.
 * docs/combining.md; tests/model/tcq.pml.
 */
#ifndef SKEIN_CONN_TCQ_H
#define SKEIN_CONN_TCQ_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"

#define TCQ_INLINE 256u
#define TCQ_BOUND 16u /* requests a message, by default */

enum tcq_state {
	TCQ_QUEUED,  /* waits */
	TCQ_LEAD,    /* leads */
	TCQ_OFFERED, /* has a place to copy its payload to */
	TCQ_COPYING, /* its owner does */
	TCQ_COPIED,  /* its owner did, or the leader does */
	TCQ_DONE,    /* sent, or refused: result says */
};

/* One request. Its owner's memory again after tcq_submit(), but for `next`,
 * which a follower may have yet to write: until tcq_node_settle(). What is below
 * result is written before tcq_submit() and read by the leader. */
struct tcq_node {
	_Atomic(struct tcq_node *) next;
	_Atomic uint32_t state; /* enum tcq_state */
	int result;		/* the leader's: 0 or a negative error */
	void *place;		/* TCQ_OFFERED */
	uint32_t len;
	/* <= TCQ_INLINE bytes stand in bytes, more in *payload */
	const void *payload;
	void *request; /* the sender's own: what kind, which call */
	bool solo;     /* tcq_hold()'s: no leader sends it */
	alignas(8) unsigned char bytes[TCQ_INLINE];
};

struct tcq;

struct tcq_ops {
	/* Sends the n requests from first on, in order, and sets each one's
	 * result. Never blocks. */
	void (*send)(struct tcq *q, struct tcq_node *first, unsigned n);
};

struct tcq {
	alignas(64) _Atomic(struct tcq_node *) tail;
	const struct tcq_ops *ops;
	struct skein_env *env;
	unsigned bound;
	unsigned least; /* for measurements: wait a while for so many; 1 */
};

void tcq_init(struct tcq *q, struct skein_env *env, const struct tcq_ops *ops,
	      unsigned bound);
void tcq_node_init(struct tcq_node *n);

/* Before its memory is freed. tcq_submit() begins with it. */
void tcq_node_settle(struct tcq *q, struct tcq_node *n);

/* Returns when the node was sent, by this thread or another: its result. Waits
 * (pause, then yield) while another thread leads. */
int tcq_submit(struct tcq *q, struct tcq_node *n);

/* For what is no request: returns when this thread leads, alone, until
 * tcq_release(). Waits as tcq_submit(). Whoever holds must not submit to the
 * same queue, and must not wait for anybody who may. */
void tcq_hold(struct tcq *q, struct tcq_node *n);
void tcq_release(struct tcq *q, struct tcq_node *n);

/* In send(): the request behind n. */
static inline struct tcq_node *tcq_next(const struct tcq_node *n)
{
	/* lead() has acquired it */
	return atomic_load_explicit(&n->next, memory_order_relaxed);
}

/* In send(), for payloads longer than TCQ_INLINE of followers: a place of len
 * bytes that its owner may begin to copy to. Each is settled afterwards: then
 * the bytes are there. */
void tcq_offer(struct tcq_node *n, void *place);
void tcq_settle(struct tcq *q, struct tcq_node *n);

#endif
