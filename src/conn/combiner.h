/* SPDX-License-Identifier: MIT */
/*
 * combiner.h - the thread combining queue of a QP (FLOCK, section 3.3.2): threads
 * that want to send at the same moment share one message.
 *
 * A thread brings a node and swaps it onto the tail. Who finds nobody before
 * it is the leader: it takes the nodes that stand behind its own, `bound` at
 * most, sends them all, hands the lead to the first that it has not taken, and
 * tells its followers. Everything else of the sending side (the ring's tail,
 * the mirror, the QP) belongs to the leader, so it needs no lock.
 *
 * Nobody who leads waits for a thread that may have been preempted, but for one
 * that is copying at that moment: payloads up to COMBINER_INLINE go along in
 * the node, and the leader copies them; the copy of a longer one is whoever's
 * that claims it first, its owner or the leader (combiner_offer(),
 * combiner_settle()). A thread that stands between its swap and its link does
 * not hold up the leader either (it leaves a mark). Who is behind a preempted
 * leader waits until that one runs again: the scheduler's slice is the bound,
 * since those who wait yield.
 *
 * No step is a cancellation point, so that a thread is cancelled before it
 * enters or after its request was sent; it owns its node in both cases. The
 * queue is one process's: it dies as a whole or not at all.
 *
 * Thread rule: combiner_submit() by any thread, one node of its own at a time.
 * docs/design/combining.md; tests/model/combiner.pml.
 */
#ifndef SKEIN_CONN_COMBINER_H
#define SKEIN_CONN_COMBINER_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"

#define COMBINER_INLINE 256u
#define COMBINER_BOUND 16u /* requests a message, by default */

struct combiner;

enum combiner_state {
	COMBINER_QUEUED,  /* waits */
	COMBINER_LEAD,	  /* leads */
	COMBINER_OFFERED, /* has a place to copy its payload to */
	COMBINER_COPYING, /* its owner does */
	COMBINER_COPIED,  /* its owner did, or the leader does */
	COMBINER_DONE,	  /* sent, or refused: result says */
};

/* One request, or several of one thread that leave together: never more than
 * the bound. Its owner's memory again after combiner_submit(), but for `next`,
 * which a follower may have yet to write: until combiner_node_settle(). What is
 * below result is written before combiner_submit() and read by the leader. */
struct combiner_node {
	_Atomic(struct combiner_node *) next;
	_Atomic uint32_t state; /* enum combiner_state */
	int result;		/* the leader's: 0 or a negative error */
	void *request;		/* the sender's own: which call */
	bool solo;		/* combiner_hold()'s: no leader sends it */
	uint16_t requests;	/* that it counts as against the bound; 1 */
	uint32_t len;
	/* of its message, if it leads: the last node, and its requests */
	struct combiner_node *last;
	uint32_t message;
	void *place; /* COMBINER_OFFERED */
	/* <= COMBINER_INLINE bytes stand in bytes, more in *payload */
	const void *payload;
	alignas(8) unsigned char bytes[COMBINER_INLINE];
};

struct combiner_ops {
	/* Sends the n requests from first on, in order, and sets each one's
	 * result. Never blocks. */
	void (*send)(struct combiner *q, struct combiner_node *first,
		     unsigned n);
};

struct combiner {
	alignas(64) _Atomic(struct combiner_node *) tail;
	const struct combiner_ops *ops;
	struct skein_env *env;
	unsigned bound;
	unsigned least; /* for measurements: wait a while for so many; 1 */
	bool charges;	/* env has a model that is told of swaps */
};

/* In next: the leader has gone; who links here leads. An address that no node
 * has, nobody looks at what it points to; the same for all queues, as a node that
 * moves from one to another is settled on either. */
extern const char combiner_mark;
static inline struct combiner_node *combiner_left_mark(void)
{
	return (struct combiner_node *)(void *)&combiner_mark;
}

void combiner_init(struct combiner *q, struct skein_env *env,
		   const struct combiner_ops *ops, unsigned bound);
void combiner_node_init(struct combiner_node *n);

/* Before its memory is freed. combiner_submit() begins with it. */
void combiner_node_settle_slow(struct combiner *q, struct combiner_node *n);
static inline void combiner_node_settle(struct combiner *q,
					struct combiner_node *n)
{
	/* Acquire pairs with the swap that takes the mark: that thread touches
	 * the node no more. */
	if (__builtin_expect(atomic_load_explicit(&n->next,
						  memory_order_acquire) ==
				     combiner_left_mark(),
			     0))
		combiner_node_settle_slow(q, n);
}

/* Returns when the node was sent, by this thread or another: its result. Waits
 * (pause, then yield) while another thread leads. */
int combiner_submit(struct combiner *q, struct combiner_node *n);

/* Where a thread stands that has entered. */
enum combiner_place {
	COMBINER_BEHIND, /* somebody; it will be sent or told to lead */
	COMBINER_FIRST,	 /* leads */
};

/*
 * The same in steps, for a request that is alone and leaves at once, without a
 * list: what stands between two threads that meet costs one that is alone a swap
 * and a CAS.
 *
 *	at = combiner_enter(q, n);
 *	if (!combiner_alone(q, n, at))
 *		return combiner_go_on(q, n, at);
 *	... sends n, as send() would with n = 1 ...
 *	combiner_leave(q, n);
 *
 * Who links behind n after the look is handed the lead: a leader may take any
 * number of those that stand behind it, none too.
 */
static inline enum combiner_place combiner_enter(struct combiner *q,
						 struct combiner_node *n);
static inline bool combiner_alone(const struct combiner *q,
				  const struct combiner_node *n,
				  enum combiner_place at)
{
	/* Relaxed: nothing of the next node is looked at. */
	return at == COMBINER_FIRST && q->least == 1 &&
	       !atomic_load_explicit(&n->next, memory_order_relaxed);
}
int combiner_go_on(struct combiner *q, struct combiner_node *n,
		   enum combiner_place at);
static inline void combiner_leave(struct combiner *q, struct combiner_node *n);

/* For what is no request: returns when this thread leads, alone, until
 * combiner_release(). Waits as combiner_submit(). Whoever holds must not submit
 * to the same queue, and must not wait for anybody who may. */
void combiner_hold(struct combiner *q, struct combiner_node *n);
void combiner_release(struct combiner *q, struct combiner_node *n);

/* In send(): the request behind n. */
static inline struct combiner_node *combiner_next(const struct combiner_node *n)
{
	/* lead() has acquired it */
	return atomic_load_explicit(&n->next, memory_order_relaxed);
}

/* In send(), which has all that it was given: one that came to stand behind
 * them meanwhile, for the same message, or NULL. Making a message takes time in
 * which others come. */
struct combiner_node *combiner_more(struct combiner *q,
				    struct combiner_node *first);

/* In send(), for payloads longer than COMBINER_INLINE of followers: a place of
 * len bytes that its owner may begin to copy to. Each is settled afterwards:
 * then the bytes are there. */
void combiner_offer(struct combiner_node *n, void *place);
void combiner_settle(struct combiner *q, struct combiner_node *n);

/* --- the steps (combiner.c has the order of memory)
 * --------------------------- */

/* A test puts delays in here. */
#ifndef COMBINER_STEP
#define COMBINER_STEP() ((void)0)
#endif

static inline void combiner_charge(struct combiner *q)
{
	if (__builtin_expect(q->charges, 0))
		env_charge(q->env, ENV_COST_SWAP, 1);
}

static inline enum combiner_place combiner_enter(struct combiner *q,
						 struct combiner_node *n)
{
	struct combiner_node *prev;

	combiner_node_settle(q, n);
	atomic_store_explicit(&n->next, NULL, memory_order_relaxed);
	atomic_store_explicit(&n->state, COMBINER_QUEUED, memory_order_relaxed);
	combiner_charge(q);
	prev = atomic_exchange_explicit(&q->tail, n, memory_order_acq_rel);
	if (__builtin_expect(!prev, 1))
		return COMBINER_FIRST;
	COMBINER_STEP();
	return atomic_exchange_explicit(&prev->next, n, memory_order_acq_rel) ==
			       combiner_left_mark()
		       ? COMBINER_FIRST
		       : COMBINER_BEHIND;
}

void combiner_hand_on(struct combiner *q, struct combiner_node *last,
		      struct combiner_node *next);

/* The lead goes on: nothing of the queue but its own node is this thread's. */
static inline void combiner_give_up(struct combiner *q,
				    struct combiner_node *last)
{
	struct combiner_node *was = last, *next;

	next = atomic_load_explicit(&last->next, memory_order_acquire);
	if (__builtin_expect(!next, 1) &&
	    __builtin_expect(atomic_compare_exchange_strong_explicit(
				     &q->tail, &was, NULL, memory_order_release,
				     memory_order_relaxed),
			     1))
		return;
	combiner_hand_on(q, last, next);
}

static inline void combiner_leave(struct combiner *q, struct combiner_node *n)
{
	combiner_charge(q);
	COMBINER_STEP();
	combiner_give_up(q, n);
	atomic_store_explicit(&n->state, COMBINER_DONE, memory_order_relaxed);
}

#endif
