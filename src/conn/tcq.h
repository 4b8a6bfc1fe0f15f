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
 * docs/design/combining.md; tests/model/tcq.pml.
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

struct tcq;

enum tcq_state {
	TCQ_QUEUED,  /* waits */
	TCQ_LEAD,    /* leads */
	TCQ_OFFERED, /* has a place to copy its payload to */
	TCQ_COPYING, /* its owner does */
	TCQ_COPIED,  /* its owner did, or the leader does */
	TCQ_DONE,    /* sent, or refused: result says */
};

/* One request, or several of one thread that leave together: never more than the
 * bound. Its owner's memory again after tcq_submit(), but for `next`,
 * which a follower may have yet to write: until tcq_node_settle(). What is below
 * result is written before tcq_submit() and read by the leader. */
struct tcq_node {
	_Atomic(struct tcq_node *) next;
	_Atomic uint32_t state; /* enum tcq_state */
	int result;		/* the leader's: 0 or a negative error */
	void *request;		/* the sender's own: which call */
	bool solo;		/* tcq_hold()'s: no leader sends it */
	uint16_t requests;	/* that it counts as against the bound; 1 */
	uint32_t len;
	/* of its message, if it leads: the last node, and its requests */
	struct tcq_node *last;
	uint32_t message;
	void *place; /* TCQ_OFFERED */
	/* <= TCQ_INLINE bytes stand in bytes, more in *payload */
	const void *payload;
	alignas(8) unsigned char bytes[TCQ_INLINE];
};

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
	bool charges;	/* env has a model that is told of swaps */
};

/* In next: the leader has gone; who links here leads. An address that no node
 * has, nobody looks at what it points to; the same for all queues, as a node that
 * moves from one to another is settled on either. */
extern const char tcq_mark;
static inline struct tcq_node *tcq_left_mark(void)
{
	return (struct tcq_node *)(void *)&tcq_mark;
}

void tcq_init(struct tcq *q, struct skein_env *env, const struct tcq_ops *ops,
	      unsigned bound);
void tcq_node_init(struct tcq_node *n);

/* Before its memory is freed. tcq_submit() begins with it. */
void tcq_node_settle_slow(struct tcq *q, struct tcq_node *n);
static inline void tcq_node_settle(struct tcq *q, struct tcq_node *n)
{
	/* Acquire pairs with the swap that takes the mark: that thread touches
	 * the node no more. */
	if (__builtin_expect(atomic_load_explicit(&n->next,
						  memory_order_acquire) ==
				     tcq_left_mark(),
			     0))
		tcq_node_settle_slow(q, n);
}

/* Returns when the node was sent, by this thread or another: its result. Waits
 * (pause, then yield) while another thread leads. */
int tcq_submit(struct tcq *q, struct tcq_node *n);

/* Where a thread stands that has entered. */
enum tcq_place {
	TCQ_BEHIND, /* somebody; it will be sent or told to lead */
	TCQ_FIRST,  /* leads */
};

/*
 * The same in steps, for a request that is alone and leaves at once, without a
 * list: what stands between two threads that meet costs one that is alone a swap
 * and a CAS.
 *
 *	at = tcq_enter(q, n);
 *	if (!tcq_alone(q, n, at))
 *		return tcq_go_on(q, n, at);
 *	... sends n, as send() would with n = 1 ...
 *	tcq_leave(q, n);
 *
 * Who links behind n after the look is handed the lead: a leader may take any
 * number of those that stand behind it, none too.
 */
static inline enum tcq_place tcq_enter(struct tcq *q, struct tcq_node *n);
static inline bool tcq_alone(const struct tcq *q, const struct tcq_node *n,
			     enum tcq_place at)
{
	/* Relaxed: nothing of the next node is looked at. */
	return at == TCQ_FIRST && q->least == 1 &&
	       !atomic_load_explicit(&n->next, memory_order_relaxed);
}
int tcq_go_on(struct tcq *q, struct tcq_node *n, enum tcq_place at);
static inline void tcq_leave(struct tcq *q, struct tcq_node *n);

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

/* In send(), which has all that it was given: one that came to stand behind
 * them meanwhile, for the same message, or NULL. Making a message takes time in
 * which others come. */
struct tcq_node *tcq_more(struct tcq *q, struct tcq_node *first);

/* In send(), for payloads longer than TCQ_INLINE of followers: a place of len
 * bytes that its owner may begin to copy to. Each is settled afterwards: then
 * the bytes are there. */
void tcq_offer(struct tcq_node *n, void *place);
void tcq_settle(struct tcq *q, struct tcq_node *n);

/* --- the steps (tcq.c has the order of memory) --------------------------- */

/* A test puts delays in here. */
#ifndef TCQ_STEP
#define TCQ_STEP() ((void)0)
#endif

static inline void tcq_charge(struct tcq *q)
{
	if (__builtin_expect(q->charges, 0))
		env_charge(q->env, ENV_COST_SWAP, 1);
}

static inline enum tcq_place tcq_enter(struct tcq *q, struct tcq_node *n)
{
	struct tcq_node *prev;

	tcq_node_settle(q, n);
	atomic_store_explicit(&n->next, NULL, memory_order_relaxed);
	atomic_store_explicit(&n->state, TCQ_QUEUED, memory_order_relaxed);
	tcq_charge(q);
	prev = atomic_exchange_explicit(&q->tail, n, memory_order_acq_rel);
	if (__builtin_expect(!prev, 1))
		return TCQ_FIRST;
	TCQ_STEP();
	return atomic_exchange_explicit(&prev->next, n, memory_order_acq_rel) ==
			       tcq_left_mark()
		       ? TCQ_FIRST
		       : TCQ_BEHIND;
}

void tcq_hand_on(struct tcq *q, struct tcq_node *last, struct tcq_node *next);

/* The lead goes on: nothing of the queue but its own node is this thread's. */
static inline void tcq_give_up(struct tcq *q, struct tcq_node *last)
{
	struct tcq_node *was = last, *next;

	next = atomic_load_explicit(&last->next, memory_order_acquire);
	if (__builtin_expect(!next, 1) &&
	    __builtin_expect(atomic_compare_exchange_strong_explicit(
				     &q->tail, &was, NULL, memory_order_release,
				     memory_order_relaxed),
			     1))
		return;
	tcq_hand_on(q, last, next);
}

static inline void tcq_leave(struct tcq *q, struct tcq_node *n)
{
	tcq_charge(q);
	TCQ_STEP();
	tcq_give_up(q, n);
	atomic_store_explicit(&n->state, TCQ_DONE, memory_order_relaxed);
}

#endif
