/* SPDX-License-Identifier: MIT */
/*
 * agenda.h - events in order of time, and within one nanosecond in order of
 * scheduling.
 *
 * Events due within AGENDA_SPAN are in a ring of lists, one per nanosecond, so
 * adding, cancelling and taking cost the same however many events there are.
 * The rest waits in a heap and moves over as time goes on. Nothing depends on
 * an address.
 *
 * The owners have the events' memory; only the heap allocates. One thread only.
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
	/* a bit per non-empty list; a bit per non-zero word of it */
	uint64_t busy[AGENDA_SPAN / 64];
	uint64_t busy_words[AGENDA_SPAN / 64 / 64];
	struct agenda_slot *heap;
	uint64_t seq;
	uint32_t heap_n, heap_cap;
};

/* Zeroed memory is an empty agenda at time 0. */
void agenda_fini(struct agenda *a);
/* at is not before the agenda's now. An event that is already due is moved. */
void agenda_add(struct agenda *a, struct sim_event *ev, uint64_t at);
void agenda_del(struct agenda *a, struct sim_event *ev);
/* Takes the next event that is due up to `until`, and now becomes its time.
 * NULL: there is none; now becomes `until`, if a later event exists. */
struct sim_event *agenda_take(struct agenda *a, uint64_t until);
bool agenda_empty(const struct agenda *a);

#endif
