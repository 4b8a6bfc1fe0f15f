/* SPDX-License-Identifier: MIT */
/*
 * test_engine.c - groups of engines in a world of random delays: everything
 * arrives, once, in order; failures are known to all; nothing is written into
 * memory that has been handed back. SKEIN_SEEDS: how many worlds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcast/world.h"
#include "unit/cm.h"
#include "unit/part.h"

#define SECOND 1000000000ull
#define BLOCK 4096u

static struct world w;

static unsigned seeds(unsigned most)
{
	const char *s = getenv("SKEIN_SEEDS");

	return s ? (unsigned)atoi(s) : most;
}

/* --- all is well -------------------------------------------------------- */

static bool all_have(struct world *world)
{
	for (unsigned i = 0; i < world->messages; i++)
		if (!world_has(world, i))
			return false;
	return true;
}

static bool all_quiet(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].dead && !world->m[i].stopped &&
		    !mcast_eng_quiet(&world->m[i].eng))
			return false;
	return true;
}

static void world_close(void)
{
	for (uint32_t i = 0; i < w.n; i++)
		mcast_eng_close(&w.m[i].eng);
	assert_true(world_run(&w, all_quiet, 60 * SECOND));
	for (uint32_t i = 0; i < w.n; i++) {
		assert_true(w.m[i].eng.closed);
		assert_int_equal(w.m[i].eng.over, 0);
		assert_int_equal(w.m[i].eng.done, w.messages);
	}
}

static uint64_t some_size(void)
{
	static const uint64_t edges[] = {
		0,
		1,
		BLOCK - 1,
		BLOCK,
		BLOCK + 1,
		2 * BLOCK,
		7 * BLOCK - 5,
		WORLD_SMALL,
		WORLD_SMALL + 1,
	};

	if (prng_below(&w.prng, 2))
		return edges[prng_below(&w.prng, 9)];
	return prng_below(&w.prng, 30 * BLOCK);
}

static void same_digests(void)
{
	for (unsigned i = 0; i < w.messages; i++)
		for (uint32_t r = 1; r < w.n; r++)
			assert_int_equal(w.m[r].seen[i].digest,
					 w.m[0].seen[i].digest);
}

static void test_everything_arrives(void **state)
{
	unsigned most = seeds(250);
	uint32_t n;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		n = 1 + seed % 23;
		world_init(&w, seed, n, (seed / 23) % 5, BLOCK);
		for (unsigned i = 0; i < 1 + seed % 4; i++)
			world_send(&w, some_size());
		for (unsigned i = 0; i < seed % 7 * 3; i++)
			world_send(&w, prng_below(&w.prng, WORLD_SMALL + 200));
		assert_true(world_run(&w, all_have, 60 * SECOND));
		if (n > 1)
			same_digests();
		/* And more, when all are at rest. */
		for (unsigned i = 0; i < seed % 3; i++)
			world_send(&w, some_size());
		world_close();
		assert_true(all_have(&w));
		for (uint32_t r = 0; r < n; r++) {
			assert_int_equal(w.m[r].eng.stats.bad_blocks, 0);
			assert_false(w.m[r].told);
		}
		world_fini(&w);
	}
}

/* Of one block, but more than a receiver keeps room for: BEGIN, and in place. */
static void test_room_of_a_block(void **state)
{
	static const uint64_t sizes[] = {MCAST_FIRST_ROOM - 1, MCAST_FIRST_ROOM,
					 MCAST_FIRST_ROOM + 1,
					 3 * MCAST_FIRST_ROOM,
					 4 * MCAST_FIRST_ROOM};
	uint32_t n;

	for (unsigned seed = 0; seed < 40; seed++) {
		n = 2 + seed % 9;
		world_init(&w, seed, n, seed % 5, 4 * MCAST_FIRST_ROOM);
		w.stream_odds = seed % 3 ? 0 : 50;
		for (unsigned i = 0; i < 2 * 5; i++)
			world_send(&w, sizes[i % 5]);
		assert_true(world_run(&w, all_have, 60 * SECOND));
		same_digests();
		for (uint32_t r = 1; r < n; r++)
			assert_int_equal(w.m[r].eng.stats.copies,
					 4 * MCAST_FIRST_ROOM - 2);
		world_close();
		world_fini(&w);
	}
}

/* A group that has nothing to do says nothing. */
static void test_idle_is_silent(void **state)
{
	uint64_t packets;

	world_init(&w, 7, 8, MCAST_PIPELINE, BLOCK);
	world_send(&w, 100);
	assert_true(world_run(&w, all_have, 60 * SECOND));
	while (w.now < 100 * SECOND)
		if (!world_step(&w))
			world_wait(&w);
	packets = w.packets;
	while (w.now < 200 * SECOND)
		if (!world_step(&w))
			world_wait(&w);
	assert_int_equal(w.packets, packets);
	world_close();
	world_fini(&w);
}

/* --- failures ----------------------------------------------------------- */

static uint32_t victim;

static bool all_know(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].dead && !world->m[i].stopped &&
		    !mcast_eng_quiet(&world->m[i].eng))
			return false;
	return true;
}

static void check_failure(int err)
{
	struct member *m;

	for (uint32_t i = 0; i < w.n; i++) {
		m = &w.m[i];
		if (m->dead || m->stopped)
			continue;
		/* Closed before it heard of it: then everybody, the victim
		 * too, has had everything. */
		if (m->eng.closed) {
			for (uint32_t k = 0; k < w.n; k++)
				assert_int_equal(w.m[k].eng.done, w.messages);
			continue;
		}
		assert_true(m->told);
		assert_int_equal(m->eng.over_rank, victim);
		if (err)
			assert_int_equal(m->eng.over, err);
		assert_true(mcast_eng_quiet(&m->eng));
		for (unsigned k = 0; k < w.messages; k++)
			if (m->seen[k].begun || !i)
				assert_true(m->seen[k].done);
	}
}

/* A group with work for `steps` steps, so that something breaks in it. */
static void under_way(unsigned seed, unsigned steps)
{
	uint32_t n = 2 + seed % 18;

	world_init(&w, seed, n, (seed / 18) % 5, BLOCK);
	victim = (uint32_t)prng_below(&w.prng, n);
	for (unsigned i = 0; i < 4; i++)
		world_send(&w, 20 * BLOCK);
	/* Small ones behind, among them some that are not. */
	for (unsigned i = 0; w.slots && i < 30; i++)
		world_send(&w, prng_below(&w.prng, 12)
				       ? prng_below(&w.prng, WORLD_SMALL + 1)
				       : 3 * BLOCK);
	for (uint32_t i = 0; i < n; i++)
		mcast_eng_close(&w.m[i].eng);
	for (unsigned i = 0; i < steps; i++)
		if (!world_step(&w))
			world_wait(&w);
}

static void test_death_at_every_step(void **state)
{
	unsigned most = seeds(250);

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 3 * (seed % 500));
		if (w.m[victim].eng.closed || w.m[0].eng.closed) {
			world_fini(&w);
			continue;
		}
		world_kill(&w, victim);
		assert_true(world_run(&w, all_know, 2 * SECOND));
		check_failure(0);
		world_fini(&w);
	}
}

static bool everybody_up(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].eng.up)
			return false;
	return true;
}

static bool one_is_over(struct world *world)
{
	return world->m[1].eng.over;
}

/* A neighbour that cuts its link has not failed: a FAIL of some member will say
 * which one has, or none has failed. */
static void test_left_alone(void **state)
{
	struct mcast_eng *e = &w.m[1].eng;
	uint64_t from;

	for (int word = 0; word < 2; word++) {
		world_init(&w, 2, 3, MCAST_CHAIN, BLOCK);
		w.later_odds = 0;
		assert_true(world_run(&w, everybody_up, SECOND));
		from = w.now;
		assert_true(mcast_eng_channel_down(e, mcast_nb_find(e, 0),
						   -ECONNRESET));
		mcast_eng_link_down(e, mcast_nb_find(e, 0), -ECONNRESET);
		world_run(&w, one_is_over, SECOND / 4);
		assert_int_equal(e->over, 0);
		if (word)
			mcast_eng_link_down(e, mcast_nb_find(e, 2),
					    -SKEIN_EDEAD);
		assert_true(world_run(&w, one_is_over, SECOND));
		assert_int_equal(e->over_rank, word ? 2 : 0);
		assert_true(word || w.now >= from + SECOND / 2);
		world_fini(&w);
	}
}

/* Some members do not run for longer than a failure takes to settle, but not
 * long enough to count as failed. Their links are cut, and they name the same
 * failed member as all others. */
static void test_death_while_others_stand_still(void **state)
{
	unsigned most = seeds(250);
	uint64_t until;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 3 * (seed % 500));
		if (w.m[victim].eng.closed || w.m[0].eng.closed) {
			world_fini(&w);
			continue;
		}
		for (uint32_t i = 0; i < w.n; i++)
			w.m[i].stopped = i != victim && !prng_below(&w.prng, 3);
		world_kill(&w, victim);
		until = w.now + SECOND * 6 / 10 +
			prng_below(&w.prng, SECOND / 10);
		while (w.now < until)
			if (!world_step(&w))
				world_wait(&w);
		for (uint32_t i = 0; i < w.n; i++)
			w.m[i].stopped = false;
		assert_true(world_run(&w, all_know, 2 * SECOND));
		check_failure(0);
		world_fini(&w);
	}
}

/* A group that has not looked at the clock for long. */
static void test_death_in_an_idle_group(void **state)
{
	unsigned most = seeds(250);

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		world_init(&w, seed, 2 + seed % 18, (seed / 18) % 5, BLOCK);
		world_send(&w, 3 * BLOCK);
		assert_true(world_run(&w, all_have, 60 * SECOND));
		while (world_step(&w))
			;
		w.now += 100 * SECOND;
		victim = (uint32_t)prng_below(&w.prng, w.n);
		world_kill(&w, victim);
		assert_true(world_run(&w, all_know, 2 * SECOND));
		check_failure(-SKEIN_EDEAD);
		world_fini(&w);
	}
}

/* Members that have heard CLOSE wait for the last one's BYE: that is no
 * failure. */
static bool all_over(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].stopped && !world->m[i].eng.closed &&
		    !mcast_eng_quiet(&world->m[i].eng))
			return false;
	return true;
}

/* The members that wait for a stopped member name it within 2 s. */
static void test_stop_at_every_step(void **state)
{
	unsigned most = seeds(60);
	uint64_t from;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 0);
		assert_true(world_run(&w, everybody_up, SECOND));
		for (unsigned i = 0; i < 3 * (seed % 400); i++)
			if (!world_step(&w))
				world_wait(&w);
		if (w.m[0].eng.closed) {
			world_fini(&w);
			continue;
		}
		w.m[victim].stopped = true;
		from = w.now;
		assert_true(world_run(&w, all_over, 4 * SECOND));
		check_failure(-ETIMEDOUT);
		for (uint32_t i = 0; i < w.n; i++)
			if (i != victim)
				assert_true(w.m[i].eng.closed ||
					    w.m[i].reported_ns <
						    from + 2 * SECOND);
		world_fini(&w);
	}
}

static bool victim_is_quiet(struct world *world)
{
	return mcast_eng_quiet(&world->m[victim].eng);
}

/* A member leaves at once while no other runs. It ends as soon as their devices
 * have FAIL. When they run, they name the member that left. */
static void test_leaves_while_others_stand_still(void **state)
{
	unsigned most = seeds(90);
	struct mcast_eng *e;
	uint64_t from;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 0);
		assert_true(world_run(&w, everybody_up, SECOND));
		for (unsigned i = 0; i < 3 * (seed % 500); i++)
			if (!world_step(&w))
				world_wait(&w);
		e = &w.m[victim].eng;
		if (e->closed || w.m[0].eng.closed) {
			world_fini(&w);
			continue;
		}
		for (uint32_t i = 0; i < w.n; i++)
			w.m[i].stopped = i != victim;
		from = w.now;
		mcast_eng_fail(e, victim, -ECANCELED, victim);
		mcast_eng_leave(e);
		assert_true(world_run(&w, victim_is_quiet, SECOND));
		/* What found no room is tried again some ms later. */
		assert_true(w.now < from + MCAST_SETTLE_NS / 2);
		for (uint32_t i = 0; i < w.n; i++)
			w.m[i].stopped = false;
		assert_true(world_run(&w, all_know, 2 * SECOND));
		check_failure(-ECANCELED);
		world_fini(&w);
	}
}

/* ... but not before: nothing says that FAIL will be ahead of the cut. */
static void test_leaves_by_a_slow_link(void **state)
{
	struct mcast_eng *e;
	uint64_t from;

	for (unsigned seed = 0; seed < 40; seed++) {
		world_init(&w, seed, 2, MCAST_CHAIN, BLOCK);
		w.later_odds = 0;
		assert_true(world_run(&w, everybody_up, SECOND));
		victim = seed / 20;
		e = &w.m[victim].eng;
		w.links[victim][!victim].held = true;
		w.m[!victim].stopped = true;
		from = w.now;
		mcast_eng_fail(e, victim, -ECANCELED, victim);
		mcast_eng_leave(e);
		assert_true(world_run(&w, victim_is_quiet, SECOND));
		assert_true(w.now >= from + MCAST_SETTLE_NS);
		world_fini(&w);
	}
}

/* A member that fails while links still come up runs until it has told each
 * neighbour that comes; then it stops running. */
static void test_fails_before_it_is_up(void **state)
{
	unsigned most = seeds(90);

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, seed / 3 % 30);
		mcast_eng_fail(&w.m[victim].eng, victim, -ENOMEM, victim);
		assert_true(world_run(&w, victim_is_quiet, SECOND));
		w.m[victim].stopped = true;
		assert_true(world_run(&w, all_know, 2 * SECOND));
		check_failure(-ENOMEM);
		world_fini(&w);
	}
}

static void test_gives_up(void **state)
{
	unsigned most = seeds(120);
	bool over;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 0);
		w.stream_odds = 100;
		w.m[victim].gives_up = -ENOSPC;
		/* A root that does not stream, or one with an end of its tree
		 * that is asked for nothing, gives up nothing. */
		assert_true(world_run(&w, all_know, 2 * SECOND));
		over = w.m[0].told;
		if (over)
			check_failure(-ENOSPC);
		assert_true(over || !victim);
		world_fini(&w);
	}
}

/* A member that streams, and has no memory for the buffers. */
static void test_no_memory_for_buffers(void **state)
{
	unsigned most = seeds(60), roots = 0;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 0);
		w.stream_odds = 100;
		w.m[victim].no_mem = true;
		/* A root that does not stream needs none. */
		assert_true(world_run(&w, all_know, 2 * SECOND));
		assert_true(w.m[0].told || !victim);
		if (w.m[0].told)
			check_failure(-ENOMEM);
		roots += w.m[0].told && !victim;
		world_fini(&w);
	}
	assert_true(roots || part_step(5) != 1);
}

static void test_corruption_is_seen(void **state)
{
	unsigned most = seeds(100);
	unsigned bad;

	for (unsigned seed = 0; seed < most; seed += part_step(5)) {
		under_way(seed, 3 * (seed % 300));
		if (w.m[0].eng.closed) {
			world_fini(&w);
			continue;
		}
		w.flip = true;
		world_run(&w, all_know, 2 * SECOND);
		if (w.flip) { /* nothing was left to send */
			world_fini(&w);
			continue;
		}
		bad = 0;
		for (uint32_t i = 0; i < w.n; i++) {
			bad += (unsigned)w.m[i].eng.stats.bad_blocks;
			assert_int_equal(w.m[i].eng.over, -EBADMSG);
		}
		assert_int_equal(bad, 1);
		world_fini(&w);
	}
}

/* A member that is not there in time. */
static void test_not_opened(void **state)
{
	world_init(&w, 3, 6, MCAST_CHAIN, BLOCK);
	victim = 3;
	w.m[3].stopped = true;
	assert_true(world_run(&w, all_know, 40 * SECOND));
	check_failure(-ETIMEDOUT);
	world_fini(&w);
}

static bool root_closed(struct world *world)
{
	return world->m[0].eng.closed;
}

/* Nothing was sent, but not everybody is there: no close says that all have
 * everything. */
static void test_not_closed_before_opened(void **state)
{
	world_init(&w, 3, 6, MCAST_CHAIN, BLOCK);
	w.m[4].stopped = true;
	mcast_eng_close(&w.m[0].eng);
	assert_false(world_run(&w, root_closed, SECOND));
	w.m[4].stopped = false;
	world_close();
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_arrives),
		cmocka_unit_test(test_room_of_a_block),
		cmocka_unit_test(test_idle_is_silent),
		cmocka_unit_test(test_death_at_every_step),
		cmocka_unit_test(test_death_while_others_stand_still),
		cmocka_unit_test(test_death_in_an_idle_group),
		cmocka_unit_test(test_left_alone),
		cmocka_unit_test(test_stop_at_every_step),
		cmocka_unit_test(test_leaves_while_others_stand_still),
		cmocka_unit_test(test_leaves_by_a_slow_link),
		cmocka_unit_test(test_fails_before_it_is_up),
		cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_no_memory_for_buffers),
		cmocka_unit_test(test_corruption_is_seen),
		cmocka_unit_test(test_not_opened),
		cmocka_unit_test(test_not_closed_before_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
