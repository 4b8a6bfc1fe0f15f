/* SPDX-License-Identifier: MIT */
/*
 * optable.h - which operation a completion belongs to, and how much room the
 * QP's send queue has.
 *
 * Send completions of one RC QP come in the order of posting, so the table is a
 * ring of signalled WRs. wr_id's low 32 bits are a sequence number that only
 * grows: modulo the ring it is the slot, the rest is the generation. Only the
 * oldest entry may complete; any other number is stale. Each entry counts the
 * WRs that its completion frees: itself and the unsignalled ones before it, at
 * most half of the queue, so a full queue always has a signalled WR under way.
 *
 * Two parties: the sender names WRs (take, untake); the poller, the engine's
 * owner, completes them. The sender is the leader of the lane's combiner, or
 * the engine's owner. Each word has one writer. Pure: no device, no allocation.
 *
 * Memory order: the sender stores tail (release) before it posts the WR. The
 * poller loads tail (acquire) before it reads a slot, so it sees what the
 * sender wrote there. The poller stores freed (release) after it has read the
 * slot. The sender loads freed (acquire) before it writes a slot again: there
 * are as many slots as WRs, so that slot's WR was freed.
 */
#ifndef SKEIN_CONN_OPTABLE_H
#define SKEIN_CONN_OPTABLE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct conn_op;

/* wr_id: connection (16 bits), kind (16 bits), sequence (32 bits). For a WR
 * that completes with a later one the kind also holds its place in the chain,
 * from 1 on. */
#define OPTABLE_CONN_SHIFT 48
#define OPTABLE_RECV (1ull << 32)
#define OPTABLE_UNSIGNALLED (2ull << 32)
#define OPTABLE_PLACE_SHIFT 36
#define OPTABLE_PLACE(wr_id) \
	((unsigned)((wr_id) >> OPTABLE_PLACE_SHIFT & 0xfff))

struct optable_slot {
	struct conn_op *op;
	uint32_t wrs;
};

struct optable {
	struct optable_slot *slots; /* mask + 1 of them */
	uint64_t tag;		    /* the connection's bits of wr_id */
	uint32_t mask;
	uint32_t half;
	uint32_t depth;
	/* Written by the sender. */
	_Atomic uint32_t tail; /* the next sequence number */
	uint32_t taken;	       /* WRs named so far */
	uint32_t unsignalled;  /* ... since the last signalled one */
	/* Written by the poller. */
	uint32_t head;		/* the oldest sequence number under way */
	_Atomic uint32_t freed; /* WRs that have ended so far */
};

static inline uint32_t optable_tail(const struct optable *t)
{
	return atomic_load_explicit(&t->tail, memory_order_acquire);
}

/* Sender: how many WRs still fit. */
static inline uint32_t optable_room(const struct optable *t)
{
	return t->depth - (t->taken - atomic_load_explicit(
					      &t->freed, memory_order_acquire));
}

/* slots: room for a power of two >= depth. first: the first sequence number;
 * a fresh one for each use of an index. */
static inline void optable_init(struct optable *t, struct optable_slot *slots,
				uint32_t n_slots, uint32_t depth,
				uint16_t index, uint32_t first)
{
	t->slots = slots;
	t->mask = n_slots - 1;
	t->tag = (uint64_t)index << OPTABLE_CONN_SHIFT;
	t->head = first;
	atomic_init(&t->tail, first);
	t->taken = 0;
	atomic_init(&t->freed, 0);
	t->depth = depth;
	t->unsignalled = 0;
	t->half = depth > 1 ? depth / 2 : 1;
}

/* Takes room for one WR and names it; there must be room. True: signal it. */
static inline bool optable_take(struct optable *t, struct conn_op *op,
				uint64_t *wr_id)
{
	uint32_t tail = atomic_load_explicit(&t->tail, memory_order_relaxed);
	struct optable_slot *s;

	t->taken++;
	if (!op && ++t->unsignalled < t->half) {
		*wr_id = t->tag | OPTABLE_UNSIGNALLED | tail;
		return false;
	}
	s = &t->slots[tail & t->mask];
	s->op = op;
	s->wrs = t->unsignalled + (op ? 1 : 0);
	t->unsignalled = 0;
	*wr_id = t->tag | tail;
	atomic_store_explicit(&t->tail, tail + 1, memory_order_release);
	return true;
}

/* Names the i-th WR of a chain, in a list of WRs: the list's next
 * optable_take() with an op ends the chain. Always unsignalled. */
static inline void optable_take_chained(struct optable *t, unsigned i,
					uint64_t *wr_id)
{
	t->taken++;
	t->unsignalled++;
	*wr_id = t->tag | OPTABLE_UNSIGNALLED |
		 (uint64_t)(i + 1) << OPTABLE_PLACE_SHIFT |
		 atomic_load_explicit(&t->tail, memory_order_relaxed);
}

/* The device has not taken the WR that was named last: takes the name back. */
static inline void optable_untake(struct optable *t, bool signalled)
{
	uint32_t tail = atomic_load_explicit(&t->tail, memory_order_relaxed);

	t->taken--;
	if (!signalled) {
		t->unsignalled--;
		return;
	}
	t->unsignalled = t->slots[--tail & t->mask].wrs - 1;
	atomic_store_explicit(&t->tail, tail, memory_order_release);
}

/* A signalled WR has completed: 0 and its op (may be NULL), or -EPROTO when the
 * oldest WR under way has another number. */
static inline int optable_complete(struct optable *t, uint32_t seq,
				   struct conn_op **op)
{
	struct optable_slot *s;

	if (seq != t->head || t->head == optable_tail(t))
		return -EPROTO;
	s = &t->slots[t->head++ & t->mask];
	*op = s->op;
	/* Relaxed load: the poller is the only writer. */
	atomic_store_explicit(
		&t->freed,
		atomic_load_explicit(&t->freed, memory_order_relaxed) + s->wrs,
		memory_order_release);
	return 0;
}

/* The chain of operations that ends with the oldest signalled WR; NULL when
 * that has another number. */
static inline struct conn_op **optable_oldest(struct optable *t, uint32_t seq)
{
	if (seq != t->head || t->head == optable_tail(t))
		return NULL;
	return &t->slots[t->head & t->mask].op;
}

static inline bool optable_idle(const struct optable *t)
{
	return t->head == optable_tail(t);
}

#endif
