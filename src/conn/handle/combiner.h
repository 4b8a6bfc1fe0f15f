/* SPDX-License-Identifier: MIT */
/*
 * combiner.h - the thread combining queue of a QP (FLOCK, section 3.3.2):
 * threads that want to send at the same moment share one message.
 *
 * Each thread swaps a node of its own onto the tail. A thread that finds the
 * queue empty is the leader: it takes the nodes behind its own, of `bound`
 * requests at most, sends them all, hands the lead to the first node it has not
 * taken, and tells its followers. The rest of the sending side (the ring's
 * tail, the mirror, the QP) belongs to the leader and needs no lock.
 *
 * A leader never waits for a preempted thread, with one exception: a thread in
 * the middle of its copy. Payloads up to COMBINER_INLINE lie in the node, and
 * the leader copies them. A longer payload is copied by its owner or by the
 * leader, by the first that claims it (combiner_offer(), combiner_settle()). A
 * thread between its swap and its link does not hold up the leader, which
 * leaves a mark. Followers of a preempted leader yield until it runs again: at
 * most a slice of the scheduler.
 *
 * No step is a cancellation point: a thread is cancelled before it enters or
 * after its request was sent, and owns its node then. The queue belongs to one
 * process and dies with it.
 *
 * Thread rule: combiner_submit() by any thread, one node of its own at a time.
 * docs/design/combining.md; tests/model/combiner.pml.
 */
#ifndef SKEIN_CONN_HANDLE_COMBINER_H
#define SKEIN_CONN_HANDLE_COMBINER_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/env.h"

#define COMBINER_INLINE 256u
#define COMBINER_BOUND 16u /* requests a message, by default */

struct combiner;

enum combiner_state {
	COMBINER_QUEUED,  /* its owner waits */
	COMBINER_LEAD,	  /* its owner leads */
	COMBINER_OFFERED, /* the leader has set place for a long payload */
	COMBINER_COPYING, /* its owner copies the payload there */
	COMBINER_COPIED,  /* its owner has copied it, or the leader does so */
	COMBINER_DONE,	  /* sent, or refused: result says */
};

/* One request, or several of one thread that leave together: at most the bound.
 * After combiner_submit() the memory is its owner's again, except `next`: a
 * follower may still write that, until combiner_node_settle(). The owner sets
 * request, solo, requests, len and payload before combiner_submit(); the leader
 * reads them. */
struct combiner_node {
	_Atomic(struct combiner_node *) next;
	_Atomic uint32_t state; /* enum combiner_state */
	int result;		/* the leader's: 0 or a negative error */
	void *request;		/* the sender's own: which call */
	bool solo;		/* combiner_hold()'s: no leader sends it */
	uint16_t requests;	/* how many it counts against the bound; 1 */
	uint32_t len;
	/* While its owner leads: the message's last node, and its requests. */
	struct combiner_node *last;
	uint32_t message;
	void *place; /* COMBINER_OFFERED: where the payload goes */
	/* len <= COMBINER_INLINE: the payload is in bytes, else in *payload */
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
	bool charges;	/* env is a model that charges time for swaps */
};

/* In next: the leader has gone, and the thread that links here leads. It is an
 * address that no node has; nothing reads what is there. All queues share it,
 * as a node that moves between queues is settled on either. */
extern const char combiner_mark;
static inline struct combiner_node *combiner_left_mark(void)
{
	return (struct combiner_node *)(void *)&combiner_mark;
}

void combiner_init(struct combiner *q, struct skein_env *env,
		   const struct combiner_ops *ops, unsigned bound);
void combiner_node_init(struct combiner_node *n);

/* Waits until no follower writes to n any more. Call it before n is freed;
 * combiner_submit() begins with it. */
void combiner_node_settle_slow(struct combiner *q, struct combiner_node *n);
static inline void combiner_node_settle(struct combiner *q,
					struct combiner_node *n)
{
	/* Acquire pairs with the follower's swap that takes the mark: that
	 * follower touches the node no more. */
	if (__builtin_expect(atomic_load_explicit(&n->next,
						  memory_order_acquire) ==
				     combiner_left_mark(),
			     0))
		combiner_node_settle_slow(q, n);
}

/* Returns the node's result, when this thread or another has sent it. Waits
 * (pause, then yield) while another thread leads. */
int combiner_submit(struct combiner *q, struct combiner_node *n);

/* What a thread finds when it enters. */
enum combiner_place {
	COMBINER_BEHIND, /* another node: it is sent, or told to lead */
	COMBINER_FIRST,	 /* it leads */
};

/*
 * combiner_submit() in steps, for a request that leaves alone, without a list:
 * a thread that meets no other pays a swap and a CAS.
 *
 *	at = combiner_enter(q, n);
 *	if (!combiner_alone(q, n, at))
 *		return combiner_go_on(q, n, at);
 *	... sends n, as send() would with n = 1 ...
 *	combiner_leave(q, n);
 *
 * A thread that links behind n after combiner_alone() has looked is handed the
 * lead: a leader may take any number of the nodes behind it, also none.
 */
static inline enum combiner_place combiner_enter(struct combiner *q,
						 struct combiner_node *n);
static inline bool combiner_alone(const struct combiner *q,
				  const struct combiner_node *n,
				  enum combiner_place at)
{
	/* Relaxed: only whether there is a next node counts. */
	return at == COMBINER_FIRST && q->least == 1 &&
	       !atomic_load_explicit(&n->next, memory_order_relaxed);
}
int combiner_go_on(struct combiner *q, struct combiner_node *n,
		   enum combiner_place at);
static inline void combiner_leave(struct combiner *q, struct combiner_node *n);

/* For work that is no request: returns when this thread leads, alone, until
 * combiner_release(). Waits as combiner_submit(). The holder must not submit to
 * the same queue, nor wait for a thread that may. */
void combiner_hold(struct combiner *q, struct combiner_node *n);
void combiner_release(struct combiner *q, struct combiner_node *n);

/* In send(): the request behind n. */
static inline struct combiner_node *combiner_next(const struct combiner_node *n)
{
	/* take_next() has acquired it */
	return atomic_load_explicit(&n->next, memory_order_relaxed);
}

/* In send(), after the last node it was given: one that has come behind them
 * since, for the same message, or NULL. Others come while a message is made. */
struct combiner_node *combiner_more(struct combiner *q,
				    struct combiner_node *first);

/* In send(), for a follower's payload longer than COMBINER_INLINE: a place of
 * len bytes, to which the node's owner may begin to copy. The leader settles
 * each offered node afterwards: then the bytes are there. */
void combiner_offer(struct combiner_node *n, void *place);
void combiner_settle(struct combiner *q, struct combiner_node *n);

/* --- the steps (combiner.c has the memory order) ----------------------- */

/* A test puts delays here. */
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

/* Ends the lead: from here on only its own node is this thread's. */
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
