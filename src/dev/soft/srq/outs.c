/* SPDX-License-Identifier: MIT */
/*
 * outs.c - claimed slots in the order of positions, until they are over.
 *
 * Positions are claimed in order, so the first one that is still POSTED ends
 * the look. Of an SRQ a slot is given back only when its position was looked at
 * (srq.c), hence what is not looked at is within the last `slots` positions,
 * and only their slots are known. If the slot of a position has moved on, no UD
 * sender claimed that position.
 */
#include "dev/soft/srq/outs.h"

#include "env/env.h"

int outs_init(struct soft_outs *o, struct skein_env *env, struct claim *c,
	      bool shared)
{
	o->c = c;
	o->shared = shared;
	o->out = env_alloc(env, (c->slots + 1) * sizeof(*o->out));
	return o->out ? 0 : -ENOMEM;
}

void outs_fini(struct soft_outs *o, struct skein_env *env)
{
	env_free(env, o->out);
	o->out = NULL;
}

void outs_reset(struct soft_outs *o)
{
	uint64_t tail = claim_tail(o->c);
	uint32_t i, end = o->c->slots;

	for (i = 0; i < end; i++)
		o->out[i].in = false;
	o->out[end] = (struct soft_out){end, end, true};
	/* RC and UC senders may use the SRQ already: their slots are
	 * skipped. */
	o->next = o->shared && tail > end ? tail - end : tail;
}

static void add(struct soft_outs *o, uint32_t n)
{
	uint32_t end = o->c->slots, last = o->out[end].prev;

	if (o->out[n].in) /* by a word that a peer has scribbled on */
		return;
	o->out[n] = (struct soft_out){.prev = last, .next = end, .in = true};
	o->out[last].next = n;
	o->out[end].prev = n;
}

void outs_del(struct soft_outs *o, uint32_t n)
{
	struct soft_out *out = &o->out[n];

	if (!out->in)
		return;
	out->in = false;
	o->out[out->prev].next = out->next;
	o->out[out->next].prev = out->prev;
}

void outs_gather(struct soft_outs *o)
{
	uint64_t tail = claim_tail(o->c), word;
	uint32_t n;

	for (; o->next != tail; o->next++) {
		n = claim_order(o->c, o->next);
		word = claim_word(o->c, n);
		if (o->shared && claim_pos(word) != o->next)
			continue;
		if (claim_state(word) == CLAIM_POSTED)
			break;
		if (!o->shared || (claim_state(word) != CLAIM_FREE &&
				   soft_ud_id(claim_id(word))))
			add(o, n);
	}
}

static bool is_over(const struct soft_outs *o, uint32_t n, bool flush)
{
	uint64_t word = claim_word(o->c, n);

	return claim_state(word) == CLAIM_DONE ||
	       (flush && claim_state(word) == CLAIM_CLAIMED &&
		claim_id(word) == CLAIM_OWNER);
}

uint32_t outs_first(const struct soft_outs *o, bool flush)
{
	uint32_t end = o->c->slots, best = end, n;

	for (n = o->out[end].next; n != best; n = o->out[n].next) {
		if (!is_over(o, n, flush))
			continue;
		/* An earlier slot of the same sender that was not over at the
		 * first look is over now: is_over() acquires, so the second
		 * look sees it. */
		best = n;
		if (o->out[n].prev != end)
			n = end;
		else
			break;
	}
	return best;
}
