/* SPDX-License-Identifier: MIT */
/*
 * combiner.c - the thread combining queue.
 *
 * Memory order, step by step:
 *
 *	step				pairs with
 *	tail swap, acq_rel		the next swap (release), so that a node
 *					is blank before anybody links to it; and
 *					give_up()'s CAS (acquire): who finds the
 *					queue empty sees all that the leader
 *					before it wrote of the sending side
 *	next swap, acq_rel		take_next() (release): a node's request is
 *					older than its link; hand_on() (acquire):
 *					who takes the mark sees the sending side
 *					as the last leader left it
 *	next load, acquire, take_next()	the above
 *	tail CAS to NULL, release	the swap that finds NULL
 *	next CAS to the mark, release	the swap that finds it
 *	state LEAD, release		await(), acquire: the sending side
 *	state OFFERED, release		copy_own(), acquire: place
 *	state COPIED, release		combiner_settle(), acquire: the bytes
 *	state DONE, release		await(), acquire: result; and the leader
 *					reads the node no more
 *	next load, acquire, when settled	the swap that took the mark: that thread
 *					touches the node no more
 *
 * Why nothing is lost: a node is linked to exactly one before it, whoever had
 * the tail. That one's next is written once more at most after it was blanked:
 * by its follower's swap, or first by hand_on() with the mark and then by that
 * swap. give_up() either empties the queue by CAS on the tail (then there is no
 * follower), or leaves its mark (then the follower finds it and leads), or finds
 * the follower (and tells it). All three exclude each other, for each is one
 * read-modify-write on one word.
 */
#include "conn/combiner.h"

#include "base/fence.h"

#include <string.h>

#define PAUSES 64u /* before a waiting thread yields */
/* How long a leader waits for company: whichever is first. Yields take long
 * where others want the core, and company may not come. */
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

	/* Its last follower has yet to link to it: a few instructions, unless
	 * that thread was preempted between them. */
	while (atomic_load_explicit(&n->next, memory_order_acquire) ==
	       combiner_left_mark())
		give_way(q, &round);
}

/* Somebody has swapped behind `last`, and has linked to it (next) or will. */
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

/* Waits a little for one more: false when it has been long enough. */
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

/* Takes along the one behind the last, if it is there and may come: it, or
 * NULL. *stop: nobody will, whatever comes. */
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

	/* A model's time has to pass, or nobody comes. */
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
	/* What is told may be gone, and last be in use again: links first. */
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

	/* Or the leader was quicker. */
	if (!atomic_compare_exchange_strong_explicit(
		    &n->state, &was, COMBINER_COPYING, memory_order_acquire,
		    memory_order_relaxed))
		return;
	COMBINER_STEP();
	memcpy(n->place, n->payload, n->len);
	atomic_store_explicit(&n->state, COMBINER_COPIED, memory_order_release);
}

/* Until it was sent: true, or leads: false. */
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
	/* Nobody sends it, so await() ends in the lead. */
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
	/* It is copying at this moment. */
	while (was != COMBINER_COPIED) {
		give_way(q, &round);
		was = atomic_load_explicit(&n->state, memory_order_acquire);
	}
}
