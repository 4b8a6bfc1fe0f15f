/* SPDX-License-Identifier: MIT */
/*
 * optable.h - which operation a completion belongs to, and how much room the
 * send queue has.
 *
 * Send completions of one RC QP come in the order of posting, so the table is
 * a ring of signalled WRs: wr_id's low 32 bits are a sequence number that only
 * grows; its slot is the number modulo the ring, its generation the rest. Only
 * the oldest entry may complete; any other number is stale. Each entry knows
 * how many WRs its completion frees: itself and the unsignalled ones before
 * it. Those are bounded by half of the queue, so that a full queue always has
 * a signalled WR under way.
 *
 * Pure: no device, no allocation. Thread rule: one owner.
 */
#ifndef SKEIN_CONN_OPTABLE_H
#define SKEIN_CONN_OPTABLE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct conn_op;

/* wr_id: connection (16 bits), kind (16 bits), sequence (32 bits) */
#define OPTABLE_CONN_SHIFT 48
#define OPTABLE_RECV (1ull << 32)
#define OPTABLE_UNSIGNALLED (2ull << 32)

struct optable_slot {
	struct conn_op *op;
	uint32_t wrs;
};

struct optable {
	struct optable_slot *slots; /* mask + 1 of them */
	uint64_t tag;		    /* the connection's bits of wr_id */
	uint32_t mask;
	uint32_t head, tail; /* oldest under way, next */
	uint32_t room;	     /* WRs that still fit */
	uint32_t unsignalled;
	uint32_t half;
	uint32_t depth;
};

/* slots: room for a power of two >= depth. first: the first sequence number;
 * a fresh one for each use of an index. */
static inline void optable_init(struct optable *t, struct optable_slot *slots,
				uint32_t n_slots, uint32_t depth,
				uint16_t index, uint32_t first)
{
	t->slots = slots;
	t->mask = n_slots - 1;
	t->tag = (uint64_t)index << OPTABLE_CONN_SHIFT;
	t->head = t->tail = first;
	t->room = t->depth = depth;
	t->unsignalled = 0;
	t->half = depth > 1 ? depth / 2 : 1;
}

/* Takes room for one WR (there is some) and names it. True: signal it. */
static inline bool optable_take(struct optable *t, struct conn_op *op,
				uint64_t *wr_id)
{
	struct optable_slot *s;

	t->room--;
	if (!op && ++t->unsignalled < t->half) {
		*wr_id = t->tag | OPTABLE_UNSIGNALLED | t->tail;
		return false;
	}
	s = &t->slots[t->tail & t->mask];
	s->op = op;
	s->wrs = t->unsignalled + (op ? 1 : 0);
	t->unsignalled = 0;
	*wr_id = t->tag | t->tail++;
	return true;
}

/* The device has not taken the WR named last: as if it had not been named. */
static inline void optable_untake(struct optable *t, bool signalled)
{
	t->room++;
	if (signalled)
		t->unsignalled = t->slots[--t->tail & t->mask].wrs - 1;
	else
		t->unsignalled--;
}

/* A completion of a signalled WR: 0 and its op (may be NULL), or -EPROTO when
 * no WR of that number is the oldest under way. */
static inline int optable_complete(struct optable *t, uint32_t seq,
				   struct conn_op **op)
{
	struct optable_slot *s;

	if (seq != t->head || t->head == t->tail)
		return -EPROTO;
	s = &t->slots[t->head++ & t->mask];
	t->room += s->wrs;
	*op = s->op;
	return 0;
}

static inline bool optable_idle(const struct optable *t)
{
	return t->head == t->tail;
}

#endif
