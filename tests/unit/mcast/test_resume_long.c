/* SPDX-License-Identifier: MIT */
/*
 * test_resume_long.c - an object of as many blocks as there can be (`make soak`; an
 * eighth of them elsewhere): a member looks at each of them before the first
 * moves, and by a round it holds up the other groups of its context. So it takes
 * as many rounds as the bounds of a round say, where it compares, plans and
 * counts. How long the longest round took of the processor is printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcast/world.h"
#include "unit/cm.h"
#include "unit/part.h"

#define SECOND 1000000000ull
#define MEMBERS 5u

static struct world w;
static uint32_t blocks = SKEIN_MCAST_BLOCKS_MAX;
static struct rounds {
	uint64_t longest_ns, all_ns, count;
	uint64_t compares, plans, counts; /* of them: those in which it did */
} rounds[MEMBERS];

static void polled(struct member *m, uint64_t cpu_ns)
{
	struct rounds *r = &rounds[m->rank];

	r->count++;
	r->all_ns += cpu_ns;
	if (cpu_ns > r->longest_ns)
		r->longest_ns = cpu_ns;
	r->compares += m->eng.resume && m->eng.resume->compare.upto;
	r->plans += m->eng.resume && m->eng.resume->plan.sweep;
	r->counts += m->eng.x.ring_due && m->eng.x.need.left;
}

static void tell(void)
{
	for (uint32_t i = 0; i < w.n; i++)
		print_message("member %u: %llu rounds, %.1f ms; the longest "
			      "%.2f ms\n",
			      i, (unsigned long long)rounds[i].count,
			      (double)rounds[i].all_ns / 1e6,
			      (double)rounds[i].longest_ns / 1e6);
}

/* Everybody knows its part and asks for it. */
static bool under_way(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].eng.x.active || world->m[i].eng.x.ring_due)
			return false;
	return true;
}

/* Stretches of the object: all but the part-th of each `of`. */
static uint64_t *stretches(uint32_t n, uint32_t part, uint32_t of)
{
	uint64_t *have = calloc(blocks / 64 + 1, sizeof(*have));
	uint32_t len = blocks / n;

	assert_non_null(have);
	for (uint32_t b = 0; b < blocks; b++)
		if (b / len % of != part)
			have[b / 64] |= 1ull << b % 64;
	return have;
}

static void test_resumed(void **state)
{
	uint8_t *bytes = malloc(blocks);
	uint64_t *have[] = {stretches(64, 9, 16), NULL, stretches(8000, 1, 2),
			    stretches(3000, 0, 3), stretches(1, 1, 2)};
	static const enum skein_mcast_store stores[MEMBERS] = {
		SKEIN_MCAST_MEMORY, SKEIN_MCAST_CONSUMED, SKEIN_MCAST_MEMORY,
		SKEIN_MCAST_CONSUMED, SKEIN_MCAST_MEMORY};

	for (uint32_t i = 0; i < blocks; i++)
		bytes[i] = world_byte(0, i);
	world_init(&w, 2, MEMBERS, MCAST_PIPELINE, 1);
	for (uint32_t i = 0; i < MEMBERS; i++)
		world_part(&w, i, stores[i], have[i] ? bytes : NULL, blocks,
			   have[i]);
	memset(rounds, 0, sizeof(rounds));
	w.polled = polled;
	assert_true(world_run(&w, under_way, 20 * SECOND));
	tell();
	assert_true(rounds[0].compares >= blocks / MCAST_COMPARE_LOOKS);
	for (uint32_t i = 0; i < MEMBERS; i++)
		assert_true(rounds[i].plans >= 2);
	assert_true(rounds[1].counts >= blocks / MCAST_NEED_LOOKS);
	assert_true(rounds[3].counts >= blocks / MCAST_NEED_LOOKS);
	world_fini(&w);
	for (uint32_t i = 0; i < MEMBERS; i++)
		free(have[i]);
	free(bytes);
}

static void test_streamed(void **state)
{
	world_init(&w, 2, MEMBERS, MCAST_PIPELINE, 1);
	w.stream_odds = 100;
	world_send(&w, blocks);
	memset(rounds, 0, sizeof(rounds));
	w.polled = polled;
	assert_true(world_run(&w, under_way, 20 * SECOND));
	tell();
	for (uint32_t i = 1; i < MEMBERS; i++)
		assert_true(rounds[i].counts >= blocks / MCAST_NEED_LOOKS);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resumed),
		cmocka_unit_test(test_streamed),
	};

	if (getenv("SKEIN_TEST_VALGRIND"))
		blocks /= 64;
	else if (!part_is_whole())
		blocks /= 8;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
