/* SPDX-License-Identifier: MIT */
/*
 * combiner.c - the thread combining queue.
 *
 * Memory order, step by step:
 *
 *	step				pairs with
 *	tail swap, acq_rel		release: the next tail swap, so that a
 *					node is blank before a thread links to
 *					it; acquire: give_up()'s CAS, so that a
 *					thread that finds the queue empty sees
 *					the sending side as the leader before
 *					it left it
 *	next swap, acq_rel		release: take_next(), so that a leader
 *					that sees the link sees the request;
 *					acquire: hand_on(), so that a thread
 *					that takes the mark sees the sending
 *					side as the last leader left it
 *	next load, acquire, take_next()	the next swap
 *	tail CAS to NULL, release	the swap that finds NULL
 *	next CAS to the mark, release	the next swap that finds it
 *	state LEAD, release		await(), acquire: the sending side
 *	state OFFERED, release		copy_own(), acquire: place
 *	state COPIED, release		combiner_settle(), acquire: the bytes
 *	state DONE, release		await(), acquire: result; and the leader
 *					reads the node no more
 *	next load, acquire, in settle()	the swap that took the mark: that
 *					thread touches the node no more
 *
 * Why nothing is lost: each node is linked to exactly one node, the tail before
 * it. After a node is blanked its next is written by its one follower's swap,
 * and perhaps before that by hand_on(), with the mark. give_up() does one of
 * three things: it empties the queue by its CAS on the tail (no follower); it
 * leaves the mark (the follower finds the mark and leads); or it finds the
 * follower, and hand_on() tells it. They exclude each other, as each is one
 * read-modify-write of one word.
 */
#include "conn/handle/combiner.h"

#include "base/fence.h"

#include <string.h>

#define PAUSES 64u /* before a waiting thread yields */
/* How long a leader waits for followers (combiner.least): until the first of
 * two limits. A yield takes long where other threads want the core. */
#define LEAST_ROUNDS 4096u
#define LEAST_NS (100 * 1000 * 1000ull)

const char combiner_mark;

void combiner_init(struct combiner *q, struct skein_env *env,
		   const struct combiner_ops *ops, unsigned bound)
{
	atomic_init(&q->tail, NULL);
	q->ops = ops;
	q->env = env;
	q->bound = bound ? bound : COMBINER_BOUND;
	q->least = 1;
	q->charges = env->ops->charge != NULL;
}

void combiner_node_init(struct combiner_node *n)
{
	atomic_init(&n->next, NULL);
	atomic_init(&n->state, COMBINER_DONE);
	n->solo = false;
	n->requests = 1;
}

static void give_way(struct combiner *q, unsigned *round)
{
	if (++*round >= PAUSES) {
		env_yield(q->env);
		return;
	}
	cpu_pause();
	env_charge(q->env, ENV_COST_PAUSE, 1);
}

void combiner_node_settle_slow(struct combiner *q, struct combiner_node *n)
{
	unsigned round = 0;

	/* n's follower has swapped the tail and has yet to link to n: a few
	 * instructions, unless it was preempted between them. */
	while (atomic_load_explicit(&n->next, memory_order_acquire) ==
	       combiner_left_mark())
		give_way(q, &round);
}

/* A thread has swapped behind `last`. It has linked its node (next), or will
 * (NULL). */
void combiner_hand_on(struct combiner *q, struct combiner_node *last,
		      struct combiner_node *next)
{
	if (!next) {
		COMBINER_STEP();
		if (atomic_compare_exchange_strong_explicit(
			    &last->next, &next, combiner_left_mark(),
			    memory_order_release, memory_order_acquire))
			return;
	}
	COMBINER_STEP();
	atomic_store_explicit(&next->state, COMBINER_LEAD,
			      memory_order_release);
}

static void tell(struct combiner_node *n)
{
	atomic_store_explicit(&n->state, COMBINER_DONE, memory_order_release);
}

/* Waits a little for one more follower. False: the time limit has passed. */
static bool wait_for_more(struct combiner *q, unsigned *round, uint64_t *until)
{
	if (*round == PAUSES)
		*until = env_now_ns(q->env) + LEAST_NS;
	if (*round > LEAST_ROUNDS ||
	    (*round > PAUSES && env_now_ns(q->env) > *until))
		return false;
	give_way(q, round);
	return true;
}

/* Takes the node behind the last one into the message, if there is one and it
 * fits: that node, or NULL. *stop: the message takes no more nodes. */
static struct combiner_node *take_next(struct combiner *q,
				       struct combiner_node *first, bool *stop)
{
	struct combiner_node *next = NULL;

	*stop = first->message >= q->bound;
	if (!*stop)
		next = atomic_load_explicit(&first->last->next,
					    memory_order_acquire);
	if (!next)
		return NULL;
	*stop = next->solo || next->requests > q->bound - first->message;
	if (*stop)
		return NULL;
	first->last = next;
	first->message += next->requests;
	return next;
}

struct combiner_node *combiner_more(struct combiner *q,
				    struct combiner_node *first)
{
	bool stop;

	/* In a model other threads run only when time passes. */
	if (__builtin_expect(q->charges, 0))
		env_charge(q->env, ENV_COST_SWAP, 0);
	COMBINER_STEP();
	return take_next(q, first, &stop);
}

static void lead(struct combiner *q, struct combiner_node *first)
{
	unsigned count = 1, round = 0;
	struct combiner_node *last, *next, *n;
	uint64_t until = 0;
	bool stop = false;

	first->last = first;
	first->message = first->requests;
	while (!stop) {
		if (take_next(q, first, &stop))
			count++;
		else if (first->message >= q->least ||
			 !wait_for_more(q, &round, &until))
			break;
	}
	COMBINER_STEP();
	q->ops->send(q, first, count);
	last = first->last;
	combiner_charge(q);
	COMBINER_STEP();
	/* A node that was told may be gone or in use again, and so may `last`
	 * after give_up(): read each link before. */
	n = first == last ? NULL : combiner_next(first);
	combiner_give_up(q, last);
	for (; n; n = next) {
		COMBINER_STEP();
		next = n == last ? NULL : combiner_next(n);
		tell(n);
	}
}

static void copy_own(struct combiner_node *n)
{
	uint32_t was = COMBINER_OFFERED;

	/* The CAS fails if the leader has claimed the copy. */
	if (!atomic_compare_exchange_strong_explicit(
		    &n->state, &was, COMBINER_COPYING, memory_order_acquire,
		    memory_order_relaxed))
		return;
	COMBINER_STEP();
	memcpy(n->place, n->payload, n->len);
	atomic_store_explicit(&n->state, COMBINER_COPIED, memory_order_release);
}

/* Waits until n was sent (true) or leads (false). */
static bool await(struct combiner *q, struct combiner_node *n)
{
	unsigned round = 0;
	uint32_t st;

	for (;;) {
		st = atomic_load_explicit(&n->state, memory_order_acquire);
		if (st == COMBINER_DONE)
			return true;
		if (st == COMBINER_LEAD)
			return false;
		if (st == COMBINER_OFFERED)
			copy_own(n);
		else
			give_way(q, &round);
	}
}

int combiner_go_on(struct combiner *q, struct combiner_node *n,
		   enum combiner_place at)
{
	if (at == COMBINER_BEHIND && await(q, n))
		return n->result;
	lead(q, n);
	atomic_store_explicit(&n->state, COMBINER_DONE, memory_order_relaxed);
	return n->result;
}

int combiner_submit(struct combiner *q, struct combiner_node *n)
{
	return combiner_go_on(q, n, combiner_enter(q, n));
}

void combiner_hold(struct combiner *q, struct combiner_node *n)
{
	n->solo = true;
	/* No leader sends a solo node, so await() ends in the lead. */
	if (combiner_enter(q, n) == COMBINER_BEHIND)
		await(q, n);
}

void combiner_release(struct combiner *q, struct combiner_node *n)
{
	combiner_give_up(q, n);
	n->solo = false;
	atomic_store_explicit(&n->state, COMBINER_DONE, memory_order_relaxed);
}

void combiner_offer(struct combiner_node *n, void *place)
{
	n->place = place;
	atomic_store_explicit(&n->state, COMBINER_OFFERED,
			      memory_order_release);
}

void combiner_settle(struct combiner *q, struct combiner_node *n)
{
	uint32_t was = COMBINER_OFFERED;
	unsigned round = 0;

	if (atomic_compare_exchange_strong_explicit(
		    &n->state, &was, COMBINER_COPIED, memory_order_acquire,
		    memory_order_acquire)) {
		memcpy(n->place, n->payload, n->len);
		return;
	}
	/* The node's owner is copying at this moment. */
	while (was != COMBINER_COPIED) {
		give_way(q, &round);
		was = atomic_load_explicit(&n->state, memory_order_acquire);
	}
}
