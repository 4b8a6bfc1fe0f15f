/* SPDX-License-Identifier: MIT */
/*
 * claim.h - receive slots that many producers claim: the queue of a UD QP, and
 * of an SRQ. docs/soft.md, "Claimed slots".
 *
 * The owner posts slots, each at a position that is never used again; a
 * producer claims the oldest by one CAS that writes its id, fills the slot in
 * place and says DONE. Every step is one store or one CAS:
 *
 *	what			party		pairs with
 *	word POSTED, release	owner		claim_look(), acquire: the slot's
 *						content is older than POSTED
 *	order, release		owner		claim_look(), acquire: POSTED and
 *						the advanced head are older
 *	word CLAIMED, CAS	one producer	claim_close(), claim_busy(): either
 *						they see the claim, or the claim
 *						fails, or the claimant's second
 *						look sees the gate shut
 *	head + 1, CAS		anybody		nobody: a hint that lags behind the
 *						words; a thread that finds it
 *						lagging moves it
 *	word DONE, release	the claimant	the owner's claim_word(), acquire:
 *						data and completion are older
 *	free_tail, release	the reaper	claim_slot_get(), acquire: the slot
 *						was read before it is written anew
 *
 * A producer that dies or stops between any two of them leaves at most one
 * slot CLAIMED by its id, and a head that the others move on. No one waits for
 * it: positions are claimed in order, but completed in any. Once it is dead,
 * claim_sweep() gives its slot back to the owner.
 *
 * A claim is the claimant's hazard as well: an owner that wants its memory to
 * itself shuts the way (a gate, a key), fences, and waits until claim_busy()
 * says no. A claimant looks at gate and keys again after its claim and
 * before it touches memory.
 *
 * Old producers: a word holds its position, so a CAS that was begun in an
 * earlier life of the slot, or of the whole area, fails. For that to hold an
 * area of cells is only ever used again as one, positions go on from the
 * life before (with one left out), claim_close() comes before the area is given away, and a producer
 * reads the head *before* it checks the gate.
 */
#ifndef SKEIN_DEV_SOFT_CLAIM_H
#define SKEIN_DEV_SOFT_CLAIM_H

#include "dev/soft/shm.h"

#include <errno.h>
#include <stdbool.h>

struct skein_env;

#define CLAIM_POS_BITS 40 /* a million a second for 12 days, times 1,000 */
#define CLAIM_SLOT_BITS 24
#define CLAIM_ID_BITS 22
#define CLAIM_OWNER ((1u << CLAIM_ID_BITS) - 1) /* the owner's own id */

enum claim_state {
	CLAIM_FREE,    /* the owner's */
	CLAIM_POSTED,  /* the first producer may claim it */
	CLAIM_CLAIMED, /* the claimant's */
	CLAIM_DONE,    /* the owner's again, with a completion in it */
};

/* order: position << 24 | slot. word: position << 24 | id << 2 | state. The
 * word of slot n is in cell n, whatever the number of slots: an old producer's
 * CAS meets a word, never anything else. */
struct shm_claim_cell {
	_Atomic uint64_t order;
	_Atomic uint64_t word;
};

/* In the NIC file, an arena of its own kind. */
struct shm_claim {
	_Atomic uint64_t head; /* the oldest position that may be unclaimed */
	/* owner, on the control path */
	alignas(SHM_LINE) uint32_t slots; /* power of two */
	/* set by any claimant, read by the owner: a receive failed */
	_Atomic uint32_t fault;
	alignas(SHM_LINE) struct shm_claim_cell cell[];
};

_Static_assert(sizeof(struct shm_claim_cell) == 16, "cell");
_Static_assert(offsetof(struct shm_claim, slots) == 64, "owner's line");
_Static_assert(offsetof(struct shm_claim, cell) == 128, "cells");

static inline size_t claim_bytes(uint32_t slots)
{
	return sizeof(struct shm_claim) +
	       (size_t)slots * sizeof(struct shm_claim_cell);
}

static inline uint64_t claim_make(uint64_t pos, uint32_t id,
				  enum claim_state st)
{
	return pos << CLAIM_SLOT_BITS | (uint64_t)id << 2 | st;
}

static inline enum claim_state claim_state(uint64_t word)
{
	return (enum claim_state)(word & 3);
}

static inline uint32_t claim_id(uint64_t word)
{
	return (uint32_t)(word >> 2) & CLAIM_OWNER;
}

static inline uint64_t claim_pos(uint64_t word)
{
	return word >> CLAIM_SLOT_BITS;
}

/*
 * The producer's side. slots is what it has checked against the size of the
 * file; nothing else it reads is trusted.
 *
 *	again:	pos = claim_head(c);
 *		is this still the queue of the QP that I mean? (the gate)
 *		claim_look(c, slots, pos, &slot): -EAGAIN: again
 *		is the receive long enough, its memory at hand? (relaxed reads)
 *		claim_take(c, pos, slot, id): false: again
 *		gate and keys once more
 *		data, completion
 *		claim_done(c, pos, slot, id)
 */
static inline uint64_t claim_head(const struct shm_claim *c)
{
	return atomic_load_explicit(&c->head, memory_order_acquire);
}

/* pos has been claimed: any thread that sees it moves the head on. */
static inline void claim_help(struct shm_claim *c, uint64_t pos)
{
	atomic_compare_exchange_strong_explicit(&c->head, &pos, pos + 1,
						memory_order_release,
						memory_order_relaxed);
}

/* Which slot is posted at pos. -ENOENT: none is, -EAGAIN: it is claimed. */
static inline int claim_look(struct shm_claim *c, uint32_t slots, uint64_t pos,
			     uint32_t *slot)
{
	uint64_t order = atomic_load_explicit(&c->cell[pos & (slots - 1)].order,
					      memory_order_acquire);
	uint32_t n = (uint32_t)order & ((1u << CLAIM_SLOT_BITS) - 1);

	if (order >> CLAIM_SLOT_BITS != pos)
		return claim_head(c) == pos ? -ENOENT : -EAGAIN;
	if (n >= slots)
		return -ENOENT;
	if (atomic_load_explicit(&c->cell[n].word, memory_order_acquire) !=
	    claim_make(pos, 0, CLAIM_POSTED)) {
		claim_help(c, pos);
		return -EAGAIN;
	}
	*slot = n;
	return 0;
}

/* Release, of the acq_rel: what was read of the slot was read while it was
 * posted. seq_cst against the owner that shuts the gate and then looks for
 * claims: see the file head. */
static inline bool claim_take(struct shm_claim *c, uint64_t pos, uint32_t slot,
			      uint32_t id)
{
	uint64_t was = claim_make(pos, 0, CLAIM_POSTED);
	bool ok;

	ok = atomic_compare_exchange_strong_explicit(
		&c->cell[slot].word, &was, claim_make(pos, id, CLAIM_CLAIMED),
		memory_order_seq_cst, memory_order_relaxed);
	claim_help(c, pos);
	return ok;
}

static inline void claim_done(struct shm_claim *c, uint64_t pos, uint32_t slot,
			      uint32_t id)
{
	atomic_store_explicit(&c->cell[slot].word,
			      claim_make(pos, id, CLAIM_DONE),
			      memory_order_release);
}

/*
 * The owner's side. Posting (claim_slot_get, claim_post) is serialised by its
 * user, and so is giving back (claim_slot_put); the two sides may run at once.
 */
struct claim {
	struct shm_claim *shm;
	uint32_t slots;
	uint32_t free_head;	    /* the poster's */
	_Atomic uint32_t free_tail; /* the reaper's */
	_Atomic uint64_t tail;	    /* the poster's: where the next is posted */
	uint32_t *free;
	uint32_t *order; /* of the last positions; no peer writes it */
};

/* slots is a power of two, at most 2^23; shm has claim_bytes() of it, all zero
 * or from an earlier life that was closed. -ENOMEM. */
int claim_init(struct claim *c, struct skein_env *env, struct shm_claim *shm,
	       uint32_t slots);
/* The same in parts: memory (slots may be 0), then c->shm, then a life. */
int claim_alloc(struct claim *c, struct skein_env *env, uint32_t slots);
void claim_fini(struct claim *c, struct skein_env *env);
/* A new life: all slots are free. Both sides are held. */
void claim_reset(struct claim *c);

/* A free slot, to be filled in and posted (or put back); -ENOMEM: none. */
int claim_slot_get(struct claim *c, uint32_t *slot);
void claim_post(struct claim *c, uint32_t slot);
/* After claim_close(): at its place in the order, but the owner's. */
void claim_post_shut(struct claim *c, uint32_t slot);
/* Its completion was read, or it was swept. */
void claim_slot_put(struct claim *c, uint32_t slot);

/* Claims all posted slots for the owner (CLAIM_OWNER): no other claim succeeds
 * any more. The poster's side is held. */
void claim_close(struct claim *c);
/* Has a producer still claimed a slot? Called after claim_close(), or after a
 * key was cleared and fenced. Counts only claims of positions before since. */
bool claim_busy(const struct claim *c, uint64_t since);
/* Takes back one slot that the dead claimant id has claimed and will never
 * complete. Looks from slot `from` on; *slot tells which it is. None of the
 * threads of id runs any more. */
bool claim_sweep(struct claim *c, uint32_t id, uint32_t from, uint32_t *slot);

/* acquire: pairs with claim_done() */
static inline uint64_t claim_word(const struct claim *c, uint32_t slot)
{
	return atomic_load_explicit(&c->shm->cell[slot].word,
				    memory_order_acquire);
}

/* acquire: pairs with claim_post(): positions below it have their order */
static inline uint64_t claim_tail(const struct claim *c)
{
	return atomic_load_explicit(&c->tail, memory_order_acquire);
}

/* The slot that was posted at pos, one of the last c->slots positions. */
static inline uint32_t claim_order(const struct claim *c, uint64_t pos)
{
	return c->order[pos & (c->slots - 1)];
}

/* How many receives are posted; more may have been claimed than this knows. */
static inline uint32_t claim_posted(const struct claim *c)
{
	return (uint32_t)(claim_tail(c) - claim_head(c->shm));
}

#endif
