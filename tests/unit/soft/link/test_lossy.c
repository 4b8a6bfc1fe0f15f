/* SPDX-License-Identifier: MIT */
/*
 * test_lossy.c - the link's engine on a bad wire: random requests at both ends,
 * each byte verified.
 *
 *	test_lossy [FIRST_SEED SEEDS]
 */
#include "world.h"

#include <stdlib.h>

static uint64_t first_seed = 1, seeds = 1500;
static uint64_t seen[FAULT_KINDS]; /* packets */

/* A seed's wire: each fault alone, a slow one, none, and two of all at once. */
enum {
	SLOW = FAULT_CUT + 1,
	GOOD,
	WIRES = GOOD + 3
};

static void make_slow(struct world *w)
{
	w->wire.rate = 50000000 + world_random(w, 400000000);
	w->wire.queue = 8192 + world_random(w, 65536);
}

static void make_bad(struct world *w, uint64_t seed)
{
	static const unsigned most[] = {
		[FAULT_LOST] = 60,    [FAULT_TWICE] = 60, [FAULT_LATE] = 100,
		[FAULT_FLIPPED] = 60, [FAULT_SHORT] = 60, [FAULT_MARKED] = 200,
		[FAULT_CUT] = 10,
	};
	unsigned kind = seed % WIRES, i;

	for (i = 0; i <= FAULT_CUT; i++)
		if (kind == i || kind > GOOD)
			w->wire.of_1000[i] =
				1 + (unsigned)world_random(w, most[i]);
	if (kind == SLOW || kind > GOOD)
		make_slow(w);
}

/* Where nothing is lost packets go over connections, too: they come and break,
 * and what is on its way breaks with them. On a bad wire it is all the same. */
static void change_carrier(struct world *w, uint64_t seed)
{
	bool stream = seed % WIRES == GOOD && world_random(w, 2);
	unsigned i;

	if (seed % WIRES < GOOD || world_random(w, 40) != 0)
		return;
	if (w->ends[0]->rc->stream || world_random(w, 2))
		w->n_air = 0;
	for (i = 0; i < 2; i++)
		rc_carrier(w->ends[i]->rc, stream);
	for (i = 0; i < 2; i++)
		end_run(w->ends[i]);
}

/* The sum of all that was sent, and when. */
static uint64_t one_seed(uint64_t seed)
{
	static const uint32_t mtus[] = {256, 1024, 4096};
	struct world *w;
	unsigned turns = 0, i;
	uint64_t sum;
	uint64_t rng = seed * 77 + 1;
	uint32_t near = (uint32_t)(PACKET_PSN_MASK - seed % 40);

	w = world_new(seed, mtus[seed % 3], near, (uint32_t)(rng & 0xffffff),
		      1 + (unsigned)(seed / 3 % RD_MAX));
	make_bad(w, seed);
	/* long enough for probes */
	if (seed / 7 % 2)
		w->ends[0]->attr.timeout = w->ends[1]->attr.timeout = 14;
	while (w->ends[0]->over < REQUESTS || w->ends[1]->over < REQUESTS) {
		for (i = 0; i < 2; i++) {
			struct end *e = w->ends[i];

			while (e->posted < REQUESTS && e->posted - e->over < 12)
				end_post_random(e);
			if (e->recv_posted - e->recv_taken < 2 &&
			    world_random(w, 4) == 0)
				e->recv_posted++;
			if (rc_deadline(e->rc) == RC_NEVER)
				end_run(e);
		}
		change_carrier(w, seed);
		if (!world_turn(w) || ++turns > 200000)
			fail_msg("seed %llu: nothing moves any more",
				 (unsigned long long)seed);
	}
	for (i = 0; i < 2; i++) {
		struct end *e = w->ends[i];

		for (int n = 0; n < REQUESTS; n++) {
			assert_int_equal(e->req[n].status, 0);
			if (!is_write(&e->req[n].w))
				continue;
			for (uint32_t b = 0; b < e->req[n].w.len; b++)
				assert_int_equal(
					e->peer->mem[(size_t)n * SLOT + b],
					0xee);
		}
		assert_true(e->met);
		assert_int_equal(e->peer->word, e->adds);
	}
	assert_false(seed % WIRES == GOOD && fault_is_bad(&w->wire));
	for (i = 0; i < FAULT_KINDS; i++)
		seen[i] += w->wire.counts[i];
	sum = w->sum;
	world_free(w);
	return sum;
}

static void test_lossy(void **state)
{
	for (uint64_t s = first_seed; s < first_seed + seeds; s++)
		one_seed(s);
	for (unsigned i = 0; seeds >= 1000 && i < FAULT_KINDS; i++)
		if (!seen[i])
			fail_msg("no packet was %s", fault_names[i]);
}

/* The same packets at the same times; and others for another seed. */
static void test_same(void **state)
{
	for (uint64_t s = first_seed; s < first_seed + 2 * WIRES; s++) {
		uint64_t sum = one_seed(s);

		assert_int_equal(one_seed(s), sum);
		assert_int_not_equal(one_seed(s + WIRES), sum);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lossy),
		cmocka_unit_test(test_same),
	};

	if (argc > 2) {
		first_seed = strtoull(argv[1], NULL, 10);
		seeds = strtoull(argv[2], NULL, 10);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
