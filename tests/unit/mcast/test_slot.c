/* SPDX-License-Identifier: MIT */
/*
 * test_slot.c - small messages by slots: which go that way, the window, the
 * order among others, and what a root must not say. That they arrive, whatever
 * happens, is test_engine.c's.
 */
#include <errno.h>
#include <string.h>

#include "mcast/world.h"
#include "unit/cm.h"
#include <skein/error.h>

#define SECOND 1000000000ull
#define BLOCK 4096u
#define ODD 7 /* a seed with slots in its world */

static struct world w;

static bool all_have(struct world *world)
{
	for (unsigned i = 0; i < world->messages; i++)
		if (!world_has(world, i))
			return false;
	return true;
}

static void until_all_have(void)
{
	assert_true(world_run(&w, all_have, 60 * SECOND));
}

static bool never(struct world *world)
{
	return false;
}

static bool all_up(struct world *world)
{
	for (uint32_t i = 0; i < world->n; i++)
		if (!world->m[i].eng.reported_up && i)
			return false;
	return true;
}

/* --- which go by slots -------------------------------------------------- */

static void test_straight_to_all(void **state)
{
	world_init(&w, ODD, 9, MCAST_PIPELINE, BLOCK);
	for (unsigned i = 0; i < 40; i++)
		world_send(&w, i * 25);
	until_all_have();
	for (uint32_t i = 0; i < w.n; i++) {
		const struct skein_mcast_stats *s = &w.m[i].eng.stats;

		assert_int_equal(s->small, 40);
		assert_int_equal(s->messages, 40);
		/* Nobody but the root sends, and nobody is asked. */
		assert_int_equal(s->blocks_sent, i ? 0 : 8 * 40);
		assert_int_equal(s->blocks_received, i ? 40 : 0);
		assert_int_equal(s->not_ready, 0);
	}
	world_fini(&w);
}

static void small_of(uint64_t seed, uint32_t n, uint64_t size, unsigned right)
{
	world_init(&w, seed, n, MCAST_CHAIN, BLOCK);
	world_send(&w, size);
	until_all_have();
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(w.m[i].eng.stats.small, right);
	world_fini(&w);
}

static void test_bounds(void **state)
{
	small_of(ODD, 16, WORLD_SMALL, 1);
	small_of(ODD, 16, WORLD_SMALL + 1, 0);
	small_of(ODD, 2, 0, 1);
	small_of(ODD, 17, 10, 0);
	small_of(ODD + 1, 16, 10, 0);
}

/* A digest does not tell the way. */
static void test_digest(void **state)
{
	uint64_t digest[2];

	for (unsigned slots = 0; slots < 2; slots++) {
		world_init(&w, ODD + 1 + slots, 3, MCAST_CHAIN, BLOCK);
		world_send(&w, 321);
		until_all_have();
		assert_int_equal(w.m[1].eng.stats.small, slots);
		assert_int_equal(w.m[1].seen[0].digest, w.m[0].seen[0].digest);
		digest[slots] = w.m[2].seen[0].digest;
		world_fini(&w);
	}
	assert_int_equal(digest[0], digest[1]);
}

/* --- the window --------------------------------------------------------- */

/* A member that does not run: the root fills its ring, and waits. */
static void test_full_window(void **state)
{
	world_init(&w, ODD, 4, MCAST_PIPELINE, BLOCK);
	assert_true(world_run(&w, all_up, 10 * SECOND));
	w.m[2].stopped = true;
	for (unsigned i = 0; i < 20; i++)
		world_send(&w, 100 + i);
	assert_false(world_run(&w, never, SECOND / 2));
	assert_int_equal(w.m[0].eng.slots.next, w.slots);
	assert_int_equal(w.m[0].eng.done, w.slots);
	assert_int_equal(w.m[1].eng.done, w.slots);
	assert_int_equal(w.m[0].eng.over, 0);
	w.m[2].stopped = false;
	until_all_have();
	assert_int_equal(w.m[2].eng.stats.small, 20);
	world_fini(&w);
}

/* The same with a member that keeps a message in its application. */
static void test_kept(void **state)
{
	world_init(&w, ODD, 3, MCAST_CHAIN, BLOCK);
	w.stream_odds = w.later_odds = 100;
	for (unsigned i = 0; i < 12; i++)
		world_send(&w, 64);
	until_all_have();
	assert_int_equal(w.m[2].eng.stats.small, 12);
	world_fini(&w);
}

/* --- order among others ------------------------------------------------- */

/* A large message comes along the chain before the small one ahead of it, which
 * the last member's link holds up: it waits for it. */
static void test_large_overtakes(void **state)
{
	for (unsigned blocks = 1; blocks < 4; blocks++) {
		world_init(&w, ODD, 4, MCAST_CHAIN, BLOCK);
		w.stream_odds = 0;
		assert_true(world_run(&w, all_up, 10 * SECOND));
		w.links[0][3].held = true;
		world_send(&w, 50);
		world_send(&w, 60);
		world_send(&w, blocks * BLOCK);
		assert_false(world_run(&w, never, SECOND / 2));
		assert_int_equal(w.m[3].eng.done, 0);
		assert_int_equal(w.m[3].eng.n_arrivals, 1);
		assert_int_equal(w.m[3].eng.arrivals[0].rec.msg, 2);
		assert_false(w.m[3].seen[2].begun);
		assert_false(mcast_eng_has_work(&w.m[3].eng));
		w.links[0][3].held = false;
		until_all_have();
		world_fini(&w);
	}
}

/* A small one comes before the large one ahead of it: it stays in its slot. */
static void test_small_overtakes(void **state)
{
	world_init(&w, ODD, 4, MCAST_CHAIN, BLOCK);
	w.stream_odds = 0;
	assert_true(world_run(&w, all_up, 10 * SECOND));
	w.links[2][3].held = true;
	world_send(&w, 6 * BLOCK);
	world_send(&w, 60);
	assert_false(world_run(&w, never, SECOND / 2));
	assert_int_equal(w.m[3].eng.slots.next, 1);
	assert_int_equal(w.m[3].eng.slots.taken, 0);
	assert_int_equal(w.m[3].eng.done, 0);
	/* Others are waited for: this member looks whether they are there. */
	assert_true(mcast_eng_waits(&w.m[3].eng));
	w.links[2][3].held = false;
	until_all_have();
	world_fini(&w);
}

/* --- what a root must not say ------------------------------------------- */

struct said {
	struct mcast_rec rec;
	uint32_t imm, byte_len;
};

static struct said right_said(const struct mcast_eng *e, uint32_t size)
{
	struct said s = {
		.rec = {.type = MCAST_SMALL,
			.number = (uint32_t)e->slots.next,
			.msg = e->done + e->slots.next - e->slots.taken,
			.size = size},
		.byte_len = (uint32_t)sizeof(s.rec) + size};

	s.imm = mcast_imm_value(&s.rec);
	return s;
}

static void hear(struct mcast_eng *e, uint32_t rank, const struct said *s)
{
	uint8_t *slot = e->slots.mem.addr +
			e->slots.next % e->slots.count * e->slots.stride;

	memcpy(slot, &s->rec, sizeof(s->rec));
	mcast_slot_in(e, mcast_nb_find(e, rank), s->imm, s->byte_len, w.now);
}

static struct mcast_eng *fresh(void)
{
	world_init(&w, ODD, 3, MCAST_CHAIN, BLOCK);
	assert_true(world_run(&w, all_up, 10 * SECOND));
	return &w.m[2].eng;
}

static void refused(struct mcast_eng *e, uint32_t rank, const struct said *s)
{
	hear(e, rank, s);
	assert_int_equal(e->over, -SKEIN_EPEER);
	assert_int_equal(e->over_rank, rank);
	assert_true(w.links[2][rank].down);
	world_fini(&w);
}

static void test_garbage(void **state)
{
	for (unsigned what = 0; what < 9; what++) {
		struct mcast_eng *e = fresh();
		struct said s = right_said(e, 20);
		uint32_t from = 0;

		switch (what) {
		case 0:
			s.rec.number++;
			break;
		case 1:
			s.rec.size = 21;
			break;
		case 2:
			s.byte_len++;
			break;
		case 3:
			s = right_said(e, WORLD_SMALL + 1);
			break;
		case 4:
			s.rec.type = MCAST_BEGIN;
			break;
		case 5:
			s.rec.zero[1] = 1;
			break;
		case 6:
			from = 1;
			break;
		case 7:
			e->nbs[0].owe |= MCAST_OWE_RING; /* not told yet */
			break;
		case 8: /* the same message again */
			hear(e, 0, &s);
			assert_int_equal(e->over, 0);
			s.rec.number++;
			break;
		}
		refused(e, from, &s);
	}
}

static void test_more_than_the_ring(void **state)
{
	struct mcast_eng *e = fresh();
	struct said s;

	for (unsigned i = 0; i < w.slots; i++) {
		s = right_said(e, 20);
		hear(e, 0, &s);
		assert_int_equal(e->over, 0);
	}
	s = right_said(e, 20);
	refused(e, 0, &s);
}

/* One that this member has had along the tree. */
static void test_in_two_ways(void **state)
{
	struct mcast_eng *e = fresh();
	struct said s;

	world_send(&w, 2 * BLOCK);
	until_all_have();
	s = right_said(e, 20);
	s.rec.msg = 0;
	refused(e, 0, &s);
}

/* What is resumed goes by no slot. */
static void test_what_is_resumed(void **state)
{
	struct mcast_eng *e = &w.m[2].eng;
	struct said s;

	world_init(&w, ODD, 4, MCAST_PIPELINE, BLOCK);
	for (uint32_t i = 0; i < w.n; i++)
		world_part(&w, i, SKEIN_MCAST_MEMORY, NULL, 0, NULL);
	e->nbs[0].owe = 0;
	e->nbs[0].hello_in = true;
	s = right_said(e, 20);
	refused(e, 0, &s);
}

static void test_wrong_bytes(void **state)
{
	struct mcast_eng *e = fresh();
	struct said s = right_said(e, 20);

	s.rec.sum = 1;
	hear(e, 0, &s);
	mcast_eng_poll(e, w.now);
	assert_int_equal(e->over, -EBADMSG);
	assert_int_equal(e->over_rank, 0);
	assert_int_equal(e->stats.bad_blocks, 1);
	assert_false(w.m[2].seen[0].begun);
	world_fini(&w);
}

/* What is under way when a group fails is nobody's fault. */
static void test_behind_a_failure(void **state)
{
	struct mcast_eng *e = fresh();
	struct said s = right_said(e, 20);

	mcast_eng_fail(e, 1, -ENOSPC, 2);
	for (unsigned i = 0; i < 2; i++) {
		hear(e, 0, &s);
		s.rec.number++;
		s.rec.msg++;
	}
	assert_false(w.links[2][0].down);
	world_fini(&w);
}

static bool receivers_ended(struct world *world)
{
	for (uint32_t i = 1; i < world->n; i++)
		if (!world->m[i].eng.ended)
			return false;
	return true;
}

static bool root_ended(struct world *world)
{
	return world->m[0].eng.ended;
}

/* A failure does not end the root's messages while its device may read the
 * slots: done() lets the application free the memory. */
static void test_ends_behind_its_writes(void **state)
{
	world_init(&w, ODD, 4, MCAST_PIPELINE, BLOCK);
	assert_true(world_run(&w, all_up, 10 * SECOND));
	w.late_hold = true;
	world_send(&w, 100);
	world_run(&w, never, SECOND / 10);
	assert_int_equal(w.m[0].n_late, 3);
	mcast_eng_fail(&w.m[2].eng, 2, -ENOSPC, 2);
	assert_true(world_run(&w, receivers_ended, 60 * SECOND));
	world_run(&w, never, 2 * SECOND);
	assert_false(w.m[0].eng.ended);
	w.late_hold = false;
	assert_true(world_run(&w, root_ended, 60 * SECOND));
	world_fini(&w);
}

/* RING: once, of the right length, to the root. */
static void test_ring(void **state)
{
	struct mcast_rec rec;

	for (unsigned what = 0; what < 4; what++) {
		struct mcast_eng *e = fresh(), *root = &w.m[0].eng;
		uint32_t nb = mcast_nb_find(root, 2);

		rec = (struct mcast_rec){0};
		mcast_slot_fill_ring(e, &rec);
		root->nbs[nb].has_ring = what == 0;
		rec.len += what == 1;
		if (what == 2) {
			root = &w.m[1].eng;
			nb = mcast_nb_find(root, 2);
		}
		mcast_slot_ring(root, &root->nbs[nb], &rec);
		assert_int_equal(root->over, what == 3 ? 0 : -SKEIN_EPEER);
		world_fini(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_straight_to_all),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_digest),
		cmocka_unit_test(test_full_window),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_large_overtakes),
		cmocka_unit_test(test_small_overtakes),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_more_than_the_ring),
		cmocka_unit_test(test_in_two_ways),
		cmocka_unit_test(test_what_is_resumed),
		cmocka_unit_test(test_wrong_bytes),
		cmocka_unit_test(test_behind_a_failure),
		cmocka_unit_test(test_ends_behind_its_writes),
		cmocka_unit_test(test_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
