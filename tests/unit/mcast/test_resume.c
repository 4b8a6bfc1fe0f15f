/* SPDX-License-Identifier: MIT */
/*
 * test_resume.c - what members of a group have of a message that a failure has
 * ended, they finish in new groups, whichever members die meanwhile and come
 * back: everybody has it, or all are told that and how much of it is lost; nobody
 * is sent what it has. SKEIN_SEEDS: how many worlds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mcast/world.h"
#include "unit/cm.h"

#define SECOND 1000000000ull
#define BLOCK 4096u
#define BLOCKS 40u
#define WORDS 1

static struct world w;
static struct prng prng;
static uint64_t size;
static uint32_t blocks;

/* What the surviving members have. */
static struct kept {
	bool knows;
	enum skein_mcast_store store; /* where, next time */
	uint64_t have[WORDS];
	uint8_t bytes[BLOCKS * BLOCK];
} kept[WORLD_MEMBERS], before[WORLD_MEMBERS];
static uint32_t n_kept;

static unsigned seeds(unsigned most)
{
	const char *s = getenv("SKEIN_SEEDS");

	return s ? (unsigned)atoi(s) : most;
}

static uint64_t all_bits(void)
{
	return blocks == 64 ? ~0ull : (1ull << blocks) - 1;
}

static uint32_t count(uint64_t bits)
{
	return (uint32_t)__builtin_popcountll(bits);
}

static void object_new(uint64_t seed)
{
	static const uint64_t edges[] = {0, 1, BLOCK, BLOCK + 1, 5 * BLOCK};

	memset(kept, 0, sizeof(kept));
	memset(before, 0, sizeof(before));
	prng_init(&prng, seed * 77 + 1);
	size = prng_below(&prng, 4)
		       ? 1 + prng_below(&prng, (uint64_t)BLOCKS * BLOCK)
		       : edges[prng_below(&prng, 5)];
	blocks = size ? (uint32_t)((size + BLOCK - 1) / BLOCK) : 1;
}

static void right_bytes(uint8_t *bytes)
{
	for (uint64_t i = 0; i < size; i++)
		bytes[i] = world_byte(0, i);
}

static void keep_whole(struct kept *k)
{
	k->knows = true;
	k->have[0] = all_bits();
	right_bytes(k->bytes);
}

/* --- ends --------------------------------------------------------------- */

static bool all_quiet(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].dead && !mcast_eng_quiet(&world->m[i].eng))
			return false;
	return true;
}

static void close_all(void)
{
	for (uint32_t i = 0; i < w.n; i++)
		if (!w.m[i].dead)
			mcast_eng_close(&w.m[i].eng);
}

/* What a member has after its group is over. */
static void collect_one(struct kept *k, const struct member *m)
{
	const struct mcast_left *left = &m->eng.left;
	const struct seen *s = &m->seen[0];

	memset(k, 0, sizeof(*k));
	if (s->done && !s->status) {
		keep_whole(k);
		return;
	}
	if (!left->is)
		return;
	assert_true(s->done && left->msg.size == size);
	k->knows = true;
	if (left->whole)
		k->have[0] = all_bits();
	else if (left->have && size)
		k->have[0] = left->have[0];
	/* block() was called: the application may not be through with it. */
	if (s->stream)
		k->have[0] &= m->had;
	if (s->copy)
		memcpy(k->bytes, s->copy, size);
	if (!m->rank && !s->copy)
		right_bytes(k->bytes); /* it was filled in */
	for (uint32_t b = 0; b < blocks; b++)
		for (uint64_t i = (uint64_t)b * BLOCK;
		     k->have[0] >> b & 1 && i < size && i < (b + 1ull) * BLOCK;
		     i++)
			assert_int_equal(k->bytes[i], world_byte(0, i));
}

static void collect(void)
{
	memcpy(before, kept, sizeof(before));
	n_kept = 0;
	for (uint32_t i = 0; i < w.n; i++)
		if (!w.m[i].dead)
			collect_one(&kept[n_kept++], &w.m[i]);
}

/* --- a group that loses a member ---------------------------------------- */

static void first_group(uint64_t seed)
{
	uint32_t n = 3 + (uint32_t)prng_below(&prng, 12);
	uint64_t steps = prng_below(&prng, 150ull * n);

	world_init(&w, seed, n, (enum mcast_algorithm)prng_below(&prng, 5),
		   BLOCK);
	w.keep = true;
	w.stream_odds = (int)prng_below(&prng, 101);
	world_send(&w, size);
	for (uint64_t i = 0; i < steps; i++)
		if (!world_step(&w))
			world_wait(&w);
	world_kill(&w, (uint32_t)prng_below(&prng, n));
	close_all();
	assert_true(world_run(&w, all_quiet, 20 * SECOND));
	collect();
	world_fini(&w);
}

/* One more member joins: it has nothing, or something from before. */
static void one_returns(void)
{
	uint32_t at = (uint32_t)prng_below(&prng, n_kept + 1);

	memmove(&kept[at + 1], &kept[at], (n_kept - at) * sizeof(*kept));
	n_kept++;
	if (prng_below(&prng, 2))
		kept[at] = before[prng_below(&prng, 3)];
	else
		memset(&kept[at], 0, sizeof(kept[at]));
}

static void second_group(uint64_t seed)
{
	world_init(&w, seed, n_kept, (enum mcast_algorithm)prng_below(&prng, 5),
		   BLOCK);
	w.keep = true;
	for (uint32_t i = 0; i < n_kept; i++)
		world_part(&w, i, kept[i].store,
			   kept[i].knows ? kept[i].bytes : NULL, size,
			   kept[i].have);
	w.stream_odds = 0;
}

static bool anybody_knows(void)
{
	for (uint32_t i = 0; i < n_kept; i++)
		if (kept[i].knows)
			return true;
	return false;
}

static uint32_t lost_blocks(void)
{
	uint64_t there = 0;

	if (!size)
		return 0;
	for (uint32_t i = 0; i < n_kept; i++)
		if (kept[i].store != SKEIN_MCAST_CONSUMED)
			there |= kept[i].have[0];
	return anybody_knows() ? blocks - count(there) : 0;
}

static void draw_stores(void)
{
	for (uint32_t i = 0; i < n_kept; i++)
		kept[i].store =
			(enum skein_mcast_store)prng_below(&prng, i ? 3 : 2);
}

/* What was consumed is sent again if another lacks it. */
static void check_refused(const struct kept *k, uint64_t refused)
{
	uint64_t all = ~0ull;

	for (uint32_t i = 0; i < n_kept; i++)
		all &= kept[i].have[0];
	if (k->store != SKEIN_MCAST_CONSUMED)
		assert_int_equal(refused, 0);
	else if (size)
		assert_int_equal(refused, count(k->have[0] & ~all));
}

static void check_finished(void)
{
	const struct skein_mcast_stats *s;
	uint64_t received;
	uint32_t had;

	for (uint32_t i = 0; i < w.n; i++) {
		s = &w.m[i].eng.stats;
		had = size ? count(kept[i].have[0]) : 0;
		assert_int_equal(w.m[i].eng.over, 0);
		assert_true(w.m[i].eng.closed);
		assert_true(w.m[i].seen[0].done);
		assert_int_equal(w.m[i].seen[0].status, 0);
		assert_int_equal(w.m[i].seen[0].digest, w.m[0].seen[0].digest);
		/* Nothing that it had. */
		check_refused(&kept[i], s->blocks_refused);
		assert_int_equal(s->blocks_kept + s->blocks_refused, had);
		/* A member that keeps nothing also passes on what the root
		 * lacks. */
		received = s->blocks_received;
		if (kept[i].store == SKEIN_MCAST_CONSUMED && size)
			assert_in_range(received, blocks - s->blocks_kept,
					2 * blocks);
		else
			assert_int_equal(received,
					 size ? blocks - s->blocks_kept : 0);
	}
}

static void check_lost(uint32_t lost)
{
	for (uint32_t i = 0; i < w.n; i++) {
		assert_int_equal(w.m[i].eng.over, -ENODATA);
		assert_int_equal(w.m[i].eng.over_lost, lost);
		assert_int_equal(w.m[i].eng.stats.blocks_received, 0);
	}
}

/* Until it is finished or lost; some die on the way, some come. */
static void finish(uint64_t seed)
{
	uint32_t lost;
	bool over = false;

	for (unsigned round = 0; !over; round++) {
		if (prng_below(&prng, 3) == 0)
			one_returns();
		draw_stores();
		lost = lost_blocks();
		second_group(seed + round);
		if (w.n > 2 && !lost && prng_below(&prng, 2)) {
			uint64_t steps = prng_below(&prng, 150ull * w.n);

			for (uint64_t i = 0; i < steps; i++)
				if (!world_step(&w))
					world_wait(&w);
			world_kill(&w, (uint32_t)prng_below(&prng, w.n));
		}
		close_all();
		assert_true(world_run(&w, all_quiet, 20 * SECOND));
		over = true;
		for (uint32_t i = 0; i < w.n; i++)
			over &= !w.m[i].dead;
		if (!over)
			collect();
		else if (lost || !anybody_knows())
			check_lost(lost);
		else
			check_finished();
		world_fini(&w);
	}
}

static void test_until_finished(void **state)
{
	unsigned most = seeds(150);

	for (unsigned seed = 0; seed < most; seed++) {
		object_new(seed);
		first_group(seed);
		finish(seed);
	}
}

/* Any parts, not only those that a failure leaves; the root has some. */
static void test_any_parts(void **state)
{
	unsigned most = seeds(120);

	for (unsigned seed = 0; seed < most; seed++) {
		object_new(seed + 100000);
		n_kept = 1 + (uint32_t)prng_below(&prng, 14);
		for (uint32_t i = 0; i < n_kept; i++) {
			memset(&kept[i], 0, sizeof(kept[i]));
			if (prng_below(&prng, 5) == 0)
				continue;
			keep_whole(&kept[i]);
			if (prng_below(&prng, 3))
				kept[i].have[0] &=
					prng_below(&prng, UINT64_MAX);
			if (!size)
				kept[i].have[0] = 0;
			for (uint32_t b = 0; b < blocks; b++)
				if (!(kept[i].have[0] >> b & 1) && size)
					kept[i].bytes[(size_t)b * BLOCK] ^= 1;
		}
		memcpy(before, kept, sizeof(before));
		finish(seed);
	}
}

/* And it is a group like others afterwards. */
static void test_goes_on(void **state)
{
	object_new(5);
	n_kept = 6;
	memset(kept, 0, sizeof(kept));
	keep_whole(&kept[2]);
	second_group(5);
	world_send(&w, 3 * BLOCK + 1);
	world_send(&w, 7);
	close_all();
	assert_true(world_run(&w, all_quiet, 20 * SECOND));
	for (uint32_t i = 0; i < w.n; i++) {
		assert_int_equal(w.m[i].eng.over, 0);
		assert_int_equal(w.m[i].eng.done, 3);
	}
	world_fini(&w);
}

/* A member's block is not what it was: the root, which has all, sees it. */
static void test_a_lie_costs_a_block(void **state)
{
	uint64_t refused;

	for (unsigned seed = 0; seed < 40; seed++) {
		object_new(seed);
		if (blocks < 3)
			continue;
		n_kept = 5;
		for (uint32_t i = 0; i < n_kept; i++)
			keep_whole(&kept[i]);
		kept[1].have[0] = kept[2].have[0] = 5; /* 0 and 2 */
		kept[2].bytes[2 * BLOCK] ^= 4;
		for (uint32_t i = 0; i < n_kept; i++)
			kept[i].store = (seed + i) % 2 ? SKEIN_MCAST_REREAD
						       : SKEIN_MCAST_MEMORY;
		kept[3].have[0] = 0;
		second_group(seed);
		close_all();
		assert_true(world_run(&w, all_quiet, 20 * SECOND));
		for (uint32_t i = 0; i < w.n; i++) {
			refused = w.m[i].eng.stats.blocks_refused;
			assert_int_equal(w.m[i].eng.over, 0);
			assert_int_equal(w.m[i].seen[0].status, 0);
			assert_int_equal(refused, i == 2 ? 1 : 0);
		}
		world_fini(&w);
	}
}

/* Only the digest can show it. No member ends with status 0 and a wrong object,
 * but the one that brought the wrong bytes. */
static void test_a_lie_is_no_object(void **state)
{
	object_new(3);
	size = 6 * BLOCK;
	blocks = 6;
	n_kept = 3;
	for (uint32_t i = 0; i < n_kept; i++)
		keep_whole(&kept[i]);
	kept[0].have[0] = 1;
	kept[1].have[0] = 0x3e;
	kept[2].bytes[5] ^= 4;
	second_group(9);
	/* Checked here: the world's own look at done() would stop at it. */
	close_all();
	assert_true(world_run(&w, all_quiet, 20 * SECOND));
	for (uint32_t i = 0; i < w.n; i++) {
		assert_int_equal(w.m[i].eng.over, -EBADMSG);
		assert_int_equal(w.m[i].eng.over_rank, 2);
	}
	assert_int_equal(w.m[2].seen[0].status, -EBADMSG);
	world_fini(&w);
}

static bool root_begins(struct world *world)
{
	return world->m[0].eng.resume->started;
}

/* A file that is another when it is read again is its member's failure. */
static void test_a_file_changes(void **state)
{
	for (unsigned seed = 0; seed < 20; seed++) {
		object_new(seed);
		size = 6 * BLOCK;
		blocks = 6;
		n_kept = 4;
		keep_whole(&kept[0]);
		kept[0].store = SKEIN_MCAST_REREAD;
		second_group(seed);
		assert_true(world_run(&w, root_begins, 20 * SECOND));
		w.m[0].seen[0].buf[5 * BLOCK] ^= 1;
		close_all();
		assert_true(world_run(&w, all_quiet, 20 * SECOND));
		for (uint32_t i = 0; i < w.n; i++) {
			assert_int_equal(w.m[i].eng.over, -EBADMSG);
			assert_int_equal(w.m[i].eng.over_rank, 0);
		}
		world_fini(&w);
	}
}

static void test_sizes_differ(void **state)
{
	object_new(3);
	n_kept = 4;
	for (uint32_t i = 0; i < n_kept; i++)
		keep_whole(&kept[i]);
	world_init(&w, 1, 4, MCAST_PIPELINE, BLOCK);
	for (uint32_t i = 0; i < n_kept; i++)
		world_part(&w, i, SKEIN_MCAST_MEMORY, kept[i].bytes,
			   i == 2 ? 5 : 6, kept[i].have);
	close_all();
	assert_true(world_run(&w, all_quiet, 20 * SECOND));
	for (uint32_t i = 0; i < w.n; i++) {
		assert_int_equal(w.m[i].eng.over, -EINVAL);
		assert_int_equal(w.m[i].eng.over_rank, 2);
	}
	world_fini(&w);
}

static bool up_to_plan(struct world *world)
{
	return world->m[3].eng.over != 0;
}

/* A member that stops while they tell each other is named. */
static void test_stops_early(void **state)
{
	for (unsigned seed = 0; seed < 60; seed++) {
		object_new(seed);
		n_kept = 4;
		for (uint32_t i = 0; i < n_kept; i++)
			keep_whole(&kept[i]);
		kept[0].have[0] = 0;
		second_group(seed);
		for (unsigned i = 0; i < seed; i++)
			if (!world_step(&w))
				world_wait(&w);
		w.m[1].stopped = true;
		if (!w.m[1].seen[0].done) {
			world_run(&w, up_to_plan, 20 * SECOND);
			if (w.m[3].eng.over)
				assert_int_equal(w.m[3].eng.over_rank, 1);
			else
				assert_true(w.m[3].seen[0].done);
		}
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_until_finished),
		cmocka_unit_test(test_any_parts),
		cmocka_unit_test(test_goes_on),
		cmocka_unit_test(test_a_lie_costs_a_block),
		cmocka_unit_test(test_a_lie_is_no_object),
		cmocka_unit_test(test_a_file_changes),
		cmocka_unit_test(test_sizes_differ),
		cmocka_unit_test(test_stops_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
