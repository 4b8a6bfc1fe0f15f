/* SPDX-License-Identifier: MIT */
/*
 * agenda.c - events in order of time; see agenda.h.
 *
 * Invariant: an event is in the ring exactly if it is due before now + SPAN. So
 * an event put into the ring for some nanosecond comes after all events that
 * moved over from the heap for it: those were scheduled earlier.
 */
#include "env/sim/agenda.h"

#include "base/assert.h"

#include <stdlib.h>

#define ARITY 4u
#define MASK (AGENDA_SPAN - 1)
#define IN_RING UINT32_MAX
#define WORDS (AGENDA_SPAN / 64)

_Static_assert(!(AGENDA_SPAN & MASK) && AGENDA_SPAN >= 4096, "two bitmaps");

/* --- the heap: 4-ary, of (time, number of the scheduling) -------------- */

static bool slot_before(const struct agenda_slot *a,
			const struct agenda_slot *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void slot_put(struct agenda *a, uint32_t i, struct agenda_slot s)
{
	a->heap[i] = s;
	s.ev->pos = i + 1;
}

static void heap_up(struct agenda *a, uint32_t i, struct agenda_slot s)
{
	uint32_t up;

	while (i) {
		up = (i - 1) / ARITY;
		if (!slot_before(&s, &a->heap[up]))
			break;
		slot_put(a, i, a->heap[up]);
		i = up;
	}
	slot_put(a, i, s);
}

static void heap_down(struct agenda *a, uint32_t i, struct agenda_slot s)
{
	uint32_t c, k, best;

	for (;;) {
		c = i * ARITY + 1;
		if (c >= a->heap_n)
			break;
		best = c;
		for (k = c + 1; k < c + ARITY && k < a->heap_n; k++)
			if (slot_before(&a->heap[k], &a->heap[best]))
				best = k;
		if (!slot_before(&a->heap[best], &s))
			break;
		slot_put(a, i, a->heap[best]);
		i = best;
	}
	slot_put(a, i, s);
}

static void heap_take(struct agenda *a, uint32_t i)
{
	struct agenda_slot last = a->heap[--a->heap_n];

	a->heap[i].ev->pos = 0;
	if (i == a->heap_n)
		return;
	if (i && slot_before(&last, &a->heap[(i - 1) / ARITY]))
		heap_up(a, i, last);
	else
		heap_down(a, i, last);
}

static void heap_add(struct agenda *a, struct sim_event *ev)
{
	struct agenda_slot s = {ev->at, a->seq++, ev};

	if (a->heap_n == a->heap_cap) {
		a->heap_cap = a->heap_cap ? 2 * a->heap_cap : 1024;
		a->heap = realloc(a->heap, a->heap_cap * sizeof(*a->heap));
		/* The world itself has no way to be short of memory. */
		skein_assert(a->heap);
	}
	heap_up(a, a->heap_n++, s);
}

/* --- the ring ---------------------------------------------------------- */

static void ring_add(struct agenda *a, struct sim_event *ev)
{
	uint32_t i = ev->at & MASK;
	struct agenda_list *l = &a->ring[i];

	ev->pos = IN_RING;
	ev->next = NULL;
	ev->prev = l->last;
	if (l->last) {
		l->last->next = ev;
	} else {
		l->first = ev;
		a->busy[i / 64] |= 1ull << i % 64;
		a->busy_words[i / 4096] |= 1ull << i / 64 % 64;
	}
	l->last = ev;
}

static void ring_del(struct agenda *a, struct sim_event *ev)
{
	uint32_t i = ev->at & MASK;
	struct agenda_list *l = &a->ring[i];

	ev->pos = 0;
	*(ev->prev ? &ev->prev->next : &l->first) = ev->next;
	*(ev->next ? &ev->next->prev : &l->last) = ev->prev;
	if (l->first)
		return;
	a->busy[i / 64] &= ~(1ull << i % 64);
	if (!a->busy[i / 64])
		a->busy_words[i / 4096] &= ~(1ull << i / 64 % 64);
}

/* The first non-zero word at or after `from`, around the ring; WORDS: none. */
static uint32_t word_next(const struct agenda *a, uint32_t from)
{
	const uint32_t n = WORDS / 64;
	uint64_t bits = a->busy_words[from / 64] & ~0ull << from % 64;
	uint32_t k = from / 64;

	for (uint32_t i = 0; i <= n; i++) {
		if (bits)
			return k * 64 + (uint32_t)__builtin_ctzll(bits);
		k = (k + 1) % n;
		bits = a->busy_words[k];
	}
	return WORDS;
}

/* The first event of the ring from now on; or NULL. */
static struct sim_event *ring_first(const struct agenda *a)
{
	uint32_t i = a->now & MASK, word = i / 64;
	uint64_t bits = a->busy[word] & ~0ull << i % 64;

	if (!bits) {
		word = word_next(a, (word + 1) % WORDS);
		if (word == WORDS)
			return NULL;
		bits = a->busy[word];
	}
	return a->ring[word * 64 + (uint32_t)__builtin_ctzll(bits)].first;
}

/* --- both -------------------------------------------------------------- */

static void advance(struct agenda *a, uint64_t now)
{
	struct sim_event *ev;

	a->now = now;
	while (a->heap_n && a->heap[0].at - now < AGENDA_SPAN) {
		ev = a->heap[0].ev;
		heap_take(a, 0);
		ring_add(a, ev);
	}
}

void agenda_add(struct agenda *a, struct sim_event *ev, uint64_t at)
{
	agenda_del(a, ev);
	ev->at = at;
	if (at - a->now < AGENDA_SPAN)
		ring_add(a, ev);
	else
		heap_add(a, ev);
}

void agenda_del(struct agenda *a, struct sim_event *ev)
{
	if (ev->pos == IN_RING)
		ring_del(a, ev);
	else if (ev->pos)
		heap_take(a, ev->pos - 1);
}

struct sim_event *agenda_take(struct agenda *a, uint64_t until)
{
	struct sim_event *ev = ring_first(a);

	if (!ev && a->heap_n)
		ev = a->heap[0].ev;
	if (!ev)
		return NULL;
	if (ev->at > until) {
		if (until > a->now)
			advance(a, until);
		return NULL;
	}
	if (ev->at != a->now)
		advance(a, ev->at);
	ring_del(a, ev);
	return ev;
}

bool agenda_empty(const struct agenda *a)
{
	return !a->heap_n && !ring_first(a);
}

void agenda_fini(struct agenda *a)
{
	free(a->heap);
	a->heap = NULL;
	a->heap_n = a->heap_cap = 0;
}
