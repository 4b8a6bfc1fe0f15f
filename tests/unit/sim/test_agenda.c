/* SPDX-License-Identifier: MIT */
/*
 * The agenda against a plain array that is searched: whatever is added, moved
 * and cancelled, events come in the order of time, and within a nanosecond in
 * that of scheduling.
 */
#include "unit/cm.h"
#include "env/sim/agenda.h"

#include "base/prng.h"

#include <stdlib.h>

#define EVENTS 300
#define STEPS 20000

struct model {
	struct agenda a;
	struct sim_event ev[EVENTS];
	uint64_t seq[EVENTS]; /* 0: not due */
	uint64_t n;
	struct prng r;
};

static int model_first(const struct model *m)
{
	int best = -1;

	for (int i = 0; i < EVENTS; i++) {
		if (!m->seq[i])
			continue;
		if (best < 0 || m->ev[i].at < m->ev[best].at ||
		    (m->ev[i].at == m->ev[best].at && m->seq[i] < m->seq[best]))
			best = i;
	}
	return best;
}

/* Now, within the ring, at its end, or far behind it. */
static uint64_t draw_delay(struct model *m)
{
	switch (prng_below(&m->r, 4)) {
	case 0:
		return prng_below(&m->r, 4);
	case 1:
		return AGENDA_SPAN - 2 + prng_below(&m->r, 4);
	case 2:
		return prng_below(&m->r, 100 * AGENDA_SPAN);
	default:
		return prng_below(&m->r, AGENDA_SPAN);
	}
}

static void add(struct model *m)
{
	unsigned i = (unsigned)prng_below(&m->r, EVENTS);

	agenda_add(&m->a, &m->ev[i], m->a.now + draw_delay(m));
	m->seq[i] = ++m->n;
}

static void del(struct model *m)
{
	unsigned i = (unsigned)prng_below(&m->r, EVENTS);

	agenda_del(&m->a, &m->ev[i]);
	assert_int_equal(m->ev[i].pos, 0);
	m->seq[i] = 0;
}

static void take(struct model *m)
{
	int first = model_first(m);
	uint64_t until = m->a.now + draw_delay(m), was = m->a.now;
	struct sim_event *ev = agenda_take(&m->a, until);

	if (first < 0) {
		assert_null(ev);
		assert_int_equal(m->a.now, was);
	} else if (m->ev[first].at > until) {
		assert_null(ev);
		assert_int_equal(m->a.now, until);
	} else {
		assert_ptr_equal(ev, &m->ev[first]);
		assert_int_equal(m->a.now, ev->at);
		m->seq[first] = 0;
	}
	assert_int_equal(agenda_empty(&m->a), model_first(m) < 0);
}

static void test_order(void **state)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct model *m = calloc(1, sizeof(*m));

		assert_non_null(m);
		prng_init(&m->r, seed);
		for (unsigned k = 0; k < STEPS; k++) {
			uint64_t what = prng_below(&m->r, 10);

			if (what < 4)
				add(m);
			else if (what < 5)
				del(m);
			else
				take(m);
		}
		agenda_fini(&m->a);
		free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
