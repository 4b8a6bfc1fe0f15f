/* SPDX-License-Identifier: MIT */
/*
 * agenda.h - what is due, in the order of time, and within one nanosecond in
 * the order of scheduling.
 *
 * What is due within AGENDA_SPAN lies in a ring of lists, one a nanosecond, so
 * that adding, cancelling and taking cost the same however many events there
 * are; the rest waits in a heap, and moves over as time goes on. Nothing
 * depends on an address. Events are their owners'; no allocation but the
 * heap's. Not for more than one thread.
 */
#ifndef SKEIN_ENV_SIM_AGENDA_H
#define SKEIN_ENV_SIM_AGENDA_H

#include "env/sim/sim.h"

#define AGENDA_SPAN 8192u /* ns, a power of two, at least 4096 */

struct agenda_slot {
	uint64_t at;
	uint64_t seq;
	struct sim_event *ev;
};

struct agenda_list {
	struct sim_event *first, *last;
};

struct agenda {
	uint64_t now;
	struct agenda_list ring[AGENDA_SPAN];
	/* which lists have something; and which of these words */
	uint64_t busy[AGENDA_SPAN / 64];
	uint64_t busy_words[AGENDA_SPAN / 64 / 64];
	struct agenda_slot *heap;
	uint64_t seq;
	uint32_t heap_n, heap_cap;
};

/* Zeroed memory is an empty one, at 0. */
void agenda_fini(struct agenda *a);
/* at is not before the agenda's now. An event already due is moved. */
void agenda_add(struct agenda *a, struct sim_event *ev, uint64_t at);
void agenda_del(struct agenda *a, struct sim_event *ev);
/* Takes the next event out, and it becomes its time. NULL when none is due up
 * to then: it becomes until, if there is one later. */
struct sim_event *agenda_take(struct agenda *a, uint64_t until);
bool agenda_empty(const struct agenda *a);

#endif
