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
static unsigned seen[8]; /* of each kind of wire: that it was bad */

/* Each fault alone, all at once, and none. */
static void make_bad(struct world *w, uint64_t seed)
{
	unsigned *faults[] = {&w->loss, &w->twice, &w->late, &w->flip, &w->cut};
	static const unsigned most[] = {60, 60, 100, 60, 10};
	unsigned kind = seed % 8, i;

	for (i = 0; i < 5; i++)
		if (kind == i || kind > 5)
			*faults[i] = (unsigned)world_random(w, most[i]);
}

/* Where nothing is lost packets go over connections, too: they come and break,
 * and what is on its way breaks with them. On a bad wire it is all the same. */
static void change_carrier(struct world *w, uint64_t seed)
{
	bool stream = seed % 8 == 5 && world_random(w, 2);
	unsigned i;

	if (seed % 8 < 5 || world_random(w, 40) != 0)
		return;
	if (w->ends[0]->rc->stream || world_random(w, 2))
		w->n_air = 0;
	for (i = 0; i < 2; i++)
		rc_carrier(w->ends[i]->rc, stream);
	for (i = 0; i < 2; i++)
		end_run(w->ends[i]);
}

static void one_seed(uint64_t seed)
{
	static const uint32_t mtus[] = {256, 1024, 4096};
	struct world *w;
	unsigned turns = 0, i;
	uint64_t rng = seed * 77 + 1;
	uint32_t near = (uint32_t)(PACKET_PSN_MASK - seed % 40);

	w = world_new(seed, mtus[seed % 3], near, (uint32_t)(rng & 0xffffff),
		      1 + (unsigned)(seed / 3 % RD_MAX));
	make_bad(w, seed);
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
	seen[seed % 8] += w->faults;
	world_free(w);
}

static void test_lossy(void **state)
{
	for (uint64_t s = first_seed; s < first_seed + seeds; s++)
		one_seed(s);
	for (unsigned i = 0; seeds >= 1000 && i < 8; i++)
		assert_int_equal(!!seen[i], i != 5);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lossy),
	};

	if (argc > 2) {
		first_seed = strtoull(argv[1], NULL, 10);
		seeds = strtoull(argv[2], NULL, 10);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
