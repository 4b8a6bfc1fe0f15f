/* SPDX-License-Identifier: MIT */
/*
 * tuner.c - see tuner.h.
 */
#include "rpc/client/tuner.h"

void tuner_init(struct tuner *t, uint64_t bound_ns, unsigned tolerance,
		unsigned size_max)
{
	*t = (struct tuner){.bound_ns = bound_ns,
			    .tolerance =
				    tolerance ? tolerance : TUNER_TOLERANCE,
			    .size = 1,
			    .size_max = size_max,
			    .next_pause = 1};
}

static void window_begin(struct tuner *t)
{
	t->seen = t->late = 0;
	t->grew = false;
}

static void shrink(struct tuner *t, uint64_t now_ns)
{
	if (t->grew) {
		t->pause = t->next_pause;
		if (t->next_pause < TUNER_PAUSE_MAX)
			t->next_pause *= 2;
	}
	window_begin(t);
	if (t->size == 1) {
		t->unmet++;
		return;
	}
	t->size--;
	t->since_ns = now_ns;
}

static void window_end(struct tuner *t, uint64_t now_ns)
{
	bool few = 1000 * t->late < t->tolerance * TUNER_WINDOW;

	if (t->grew)
		t->next_pause = 1;
	window_begin(t);
	if (!few || t->size == t->size_max)
		return;
	if (t->pause) {
		t->pause--;
		return;
	}
	t->size++;
	t->grew = true;
	t->since_ns = now_ns;
}

void tuner_ended(struct tuner *t, uint64_t begun_ns, uint64_t now_ns)
{
	bool late = now_ns - begun_ns > t->bound_ns;

	t->seen_all++;
	t->late_all += late;
	if (begun_ns < t->since_ns)
		return;
	t->seen++;
	t->late += late;
	if (100 * t->late > t->tolerance * TUNER_WINDOW)
		shrink(t, now_ns);
	else if (t->seen == TUNER_WINDOW)
		window_end(t, now_ns);
}
