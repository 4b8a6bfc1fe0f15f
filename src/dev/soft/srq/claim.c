/* SPDX-License-Identifier: MIT */
/*
 * claim.c - the owner's side of claimed slots: posting, taking back, sweeping.
 * claim.h says what pairs with what, and why no process waits for a dead or
 * stopped producer; tests/model/claim.pml checks it.
 */
#include "dev/soft/srq/claim.h"

#include "base/assert.h"
#include "env/env.h"

int claim_alloc(struct claim *c, struct skein_env *env, uint32_t slots)
{
	skein_assert((slots & (slots - 1)) == 0);
	c->slots = slots;
	c->free = c->order = NULL;
	if (!slots)
		return 0;
	c->free = env_alloc(env, slots * sizeof(*c->free));
	c->order = env_alloc(env, slots * sizeof(*c->order));
	if (c->free && c->order)
		return 0;
	claim_fini(c, env);
	return -ENOMEM;
}

void claim_reset(struct claim *c)
{
	uint64_t head = atomic_load(&c->shm->head) + 1;
	uint32_t i;

	/* One position is left out between two lives: a producer may have read
	 * it as the head while nothing was posted there, and found the old
	 * gate open. It is 0 at first, which a cell of zeroes names. */
	atomic_store(&c->shm->head, head);
	atomic_store(&c->tail, head);
	for (i = 0; i < c->slots; i++) {
		c->free[i] = i;
		c->order[i] = 0;
	}
	c->free_head = 0;
	atomic_store(&c->free_tail, c->slots);
	atomic_store(&c->shm->fault, 0);
	shm_set(c->shm->slots, c->slots);
}

int claim_init(struct claim *c, struct skein_env *env, struct shm_claim *shm,
	       uint32_t slots)
{
	int err = claim_alloc(c, env, slots);

	if (err)
		return err;
	c->shm = shm;
	claim_reset(c);
	return 0;
}

void claim_fini(struct claim *c, struct skein_env *env)
{
	env_free(env, c->free);
	env_free(env, c->order);
	c->free = c->order = NULL;
}

int claim_slot_get(struct claim *c, uint32_t *slot)
{
	/* acquire: pairs with claim_slot_put(): the slot has been read */
	if (c->free_head ==
	    atomic_load_explicit(&c->free_tail, memory_order_acquire))
		return -ENOMEM;
	*slot = c->free[c->free_head++ & (c->slots - 1)];
	return 0;
}

void claim_slot_put(struct claim *c, uint32_t slot)
{
	uint32_t at = atomic_load_explicit(&c->free_tail, memory_order_relaxed);

	c->free[at & (c->slots - 1)] = slot;
	/* release: pairs with claim_slot_get() */
	atomic_store_explicit(&c->free_tail, at + 1, memory_order_release);
}

/* Each post brings the head to within slots of its position. A head that is
 * farther off was scribbled on by a peer; it must not keep the owner busy. */
static void head_repair(struct claim *c, uint64_t head)
{
	atomic_store_explicit(&c->shm->head, head, memory_order_release);
}

void claim_post(struct claim *c, uint32_t slot)
{
	uint64_t pos = atomic_load_explicit(&c->tail, memory_order_relaxed);
	struct shm_claim *s = c->shm;
	uint64_t head;

	c->order[pos & (c->slots - 1)] = slot;
	/* release: a producer that sees POSTED also sees the slot's content */
	atomic_store_explicit(&s->cell[slot].word,
			      claim_make(pos, 0, CLAIM_POSTED),
			      memory_order_release);
	/* The cell's old order is overwritten below. Its position was claimed:
	 * at most slots - 1 others are posted, and claims are in order. A head
	 * that lags behind it would find the cell's order gone. */
	while (pos - (head = claim_head(s)) >= c->slots) {
		if (pos - head > c->slots) {
			head_repair(c, pos - c->slots + 1);
			break;
		}
		claim_help(s, head);
	}
	/* release: a producer that sees the order also sees POSTED and the
	 * head */
	atomic_store_explicit(&s->cell[pos & (c->slots - 1)].order,
			      pos << CLAIM_SLOT_BITS | slot,
			      memory_order_release);
	/* release: pairs with claim_tail() */
	atomic_store_explicit(&c->tail, pos + 1, memory_order_release);
}

void claim_post_shut(struct claim *c, uint32_t slot)
{
	uint64_t pos = atomic_load_explicit(&c->tail, memory_order_relaxed);

	c->order[pos & (c->slots - 1)] = slot;
	/* Nobody finds it: its order is not written. release: as above */
	atomic_store_explicit(&c->shm->cell[slot].word,
			      claim_make(pos, CLAIM_OWNER, CLAIM_CLAIMED),
			      memory_order_release);
	atomic_store_explicit(&c->tail, pos + 1, memory_order_release);
}

void claim_close(struct claim *c)
{
	uint64_t pos, tail = claim_tail(c);
	uint32_t slot;

	/* Not from the head: a producer could have scribbled on it. */
	for (pos = tail - (tail > c->slots ? c->slots : tail - 1); pos < tail;
	     pos++) {
		slot = claim_order(c, pos);
		claim_take(c->shm, pos, slot, CLAIM_OWNER);
	}
	/* The next life goes on from here. */
	while ((pos = claim_head(c->shm)) != tail) {
		if (tail - pos > c->slots)
			head_repair(c, tail);
		else
			claim_help(c->shm, pos);
	}
}

bool claim_busy(const struct claim *c, uint64_t since)
{
	uint64_t word;
	uint32_t i;

	for (i = 0; i < c->slots; i++) {
		/* seq_cst: as the claim is; after the caller's fence */
		word = atomic_load(&c->shm->cell[i].word);
		if (claim_state(word) == CLAIM_CLAIMED &&
		    claim_id(word) != CLAIM_OWNER && claim_pos(word) < since)
			return true;
	}
	return false;
}

bool claim_sweep(struct claim *c, uint32_t id, uint32_t from, uint32_t *slot)
{
	uint64_t word;
	uint32_t i;

	for (i = from; i < c->slots; i++) {
		word = claim_word(c, i);
		if (claim_state(word) != CLAIM_CLAIMED || claim_id(word) != id)
			continue;
		/* No other thread writes it any more; a store would do. */
		if (!atomic_compare_exchange_strong(
			    &c->shm->cell[i].word, &word,
			    claim_make(claim_pos(word), CLAIM_OWNER,
				       CLAIM_CLAIMED)))
			continue;
		*slot = i;
		return true;
	}
	return false;
}
