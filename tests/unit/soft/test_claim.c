/* SPDX-License-Identifier: MIT */
/*
 * Claimed slots (claim.h) by themselves: order, old producers, a head that
 * lags, closing, sweeping; and many threads that abandon claims at random.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dev/soft/srq/claim.h"
#include "env/env.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 8

static struct skein_env *env;

struct bench {
	struct claim c;
	struct shm_claim *shm;
	uint32_t slots;
};

static void bench_open(struct bench *b, uint32_t slots)
{
	b->slots = slots;
	/* whole lines, as aligned_alloc() wants it */
	b->shm = aligned_alloc(SHM_LINE, claim_bytes(slots) + SHM_LINE -
						 claim_bytes(slots) % SHM_LINE);
	memset(b->shm, 0, claim_bytes(slots));
	assert_int_equal(claim_init(&b->c, env, b->shm, slots), 0);
}

static void bench_close(struct bench *b)
{
	claim_close(&b->c);
	claim_fini(&b->c, env);
	free(b->shm);
}

static uint32_t post(struct bench *b)
{
	uint32_t slot = 0;

	assert_int_equal(claim_slot_get(&b->c, &slot), 0);
	claim_post(&b->c, slot);
	return slot;
}

/* A claim by id; -ENOENT: nothing is posted. */
static int take(struct bench *b, uint32_t id, uint64_t *pos, uint32_t *slot)
{
	int err;

	for (;;) {
		*pos = claim_head(b->shm);
		err = claim_look(b->shm, b->slots, *pos, slot);
		if (err == -ENOENT)
			return err;
		if (!err && claim_take(b->shm, *pos, *slot, id))
			return 0;
	}
}

static enum claim_state state(struct bench *b, uint32_t slot)
{
	return claim_state(claim_word(&b->c, slot));
}

static void test_order(void **st)
{
	uint32_t posted[SLOTS], slot, i, lap;
	struct bench b;
	uint64_t pos, was = 0;

	(void)st;
	bench_open(&b, SLOTS);
	assert_int_equal(take(&b, 1, &pos, &slot), -ENOENT);
	for (lap = 0; lap < 5; lap++) {
		for (i = 0; i < SLOTS; i++)
			posted[i] = post(&b);
		assert_int_equal(claim_slot_get(&b.c, &slot), -ENOMEM);
		assert_int_equal(claim_posted(&b.c), SLOTS);
		for (i = 0; i < SLOTS; i++) {
			assert_int_equal(take(&b, 1 + i, &pos, &slot), 0);
			assert_int_equal(slot, posted[i]);
			assert_true(pos > was);
			was = pos;
			assert_int_equal(claim_id(claim_word(&b.c, slot)),
					 1 + i);
			claim_done(b.shm, pos, slot, 1 + i);
			assert_int_equal(state(&b, slot), CLAIM_DONE);
		}
		assert_int_equal(take(&b, 1, &pos, &slot), -ENOENT);
		/* given back in another order */
		for (i = 0; i < SLOTS; i++)
			claim_slot_put(&b.c, posted[(i * 3 + lap) % SLOTS]);
	}
	bench_close(&b);
}

/* The others go on past a claimant that does nothing, for ever. */
static void test_stopped(void **st)
{
	uint64_t pos, p;
	uint32_t stuck, slot, i;
	struct bench b;

	(void)st;
	bench_open(&b, SLOTS);
	for (i = 0; i < SLOTS; i++)
		post(&b);
	assert_int_equal(take(&b, 9, &pos, &stuck), 0);
	for (i = 0; i < 100 * SLOTS; i++) {
		assert_int_equal(take(&b, 1, &p, &slot), 0);
		assert_int_not_equal(slot, stuck);
		claim_done(b.shm, p, slot, 1);
		claim_slot_put(&b.c, slot);
		post(&b);
		assert_true(claim_busy(&b.c, pos + 1));
		assert_false(claim_busy(&b.c, pos));
	}
	/* and it may still complete */
	claim_done(b.shm, pos, stuck, 9);
	assert_int_equal(state(&b, stuck), CLAIM_DONE);
	assert_false(claim_busy(&b.c, UINT64_MAX));
	claim_slot_put(&b.c, stuck);
	bench_close(&b);
}

/* A claimant dies between its two CAS: the head lags by one slot, then by all
 * of them, and the owner posts over it. */
static void test_lag(void **st)
{
	uint64_t pos, p;
	uint32_t slot = 0, i, n;
	struct bench b;

	(void)st;
	bench_open(&b, 4);
	for (i = 0; i < 4; i++)
		post(&b);
	for (n = 0; n < 50; n++) {
		uint64_t was;

		pos = claim_head(b.shm);
		assert_int_equal(claim_look(b.shm, 4, pos, &slot), 0);
		was = claim_make(pos, 0, CLAIM_POSTED);
		/* the first half of claim_take() */
		assert_true(atomic_compare_exchange_strong(
			&b.shm->cell[slot].word, &was,
			claim_make(pos, 5, CLAIM_CLAIMED)));
		assert_int_equal(claim_head(b.shm), pos);
		if (n % 2) {
			/* nobody claims: the owner itself must move it */
			claim_done(b.shm, pos, slot, 5);
			claim_slot_put(&b.c, slot);
			post(&b);
			assert_true(claim_head(b.shm) > pos);
			continue;
		}
		assert_int_equal(take(&b, 6, &p, &i), 0);
		assert_int_equal(p, pos + 1);
		assert_true(claim_sweep(&b.c, 5, 0, &i));
		assert_int_equal(i, slot);
		claim_slot_put(&b.c, slot);
		post(&b);
		i = claim_order(&b.c, p);
		claim_done(b.shm, p, i, 6);
		claim_slot_put(&b.c, i);
		post(&b);
	}
	bench_close(&b);
}

/* A producer that looked before the slot, or the whole queue, went through
 * another life: it gets nothing. */
static void test_old_producer(void **st)
{
	uint32_t slot = 0, s2, i;
	struct bench b;
	uint64_t pos, p;

	(void)st;
	bench_open(&b, 2);
	post(&b);
	post(&b);
	pos = claim_head(b.shm);
	assert_int_equal(claim_look(b.shm, 2, pos, &slot), 0);
	for (i = 0; i < 7; i++) {
		assert_int_equal(take(&b, 1, &p, &s2), 0);
		claim_done(b.shm, p, s2, 1);
		claim_slot_put(&b.c, s2);
		post(&b);
		assert_false(claim_take(b.shm, pos, slot, 7));
		assert_int_equal(claim_look(b.shm, 2, pos, &s2), -EAGAIN);
	}
	pos = claim_head(b.shm);
	assert_int_equal(claim_look(b.shm, 2, pos, &slot), 0);
	claim_close(&b.c);
	assert_false(claim_take(b.shm, pos, slot, 7));
	/* the same area, another queue */
	claim_reset(&b.c);
	post(&b);
	post(&b);
	assert_false(claim_take(b.shm, pos, slot, 7));
	assert_true(claim_head(b.shm) > pos);
	assert_int_equal(take(&b, 1, &p, &s2), 0);
	claim_done(b.shm, p, s2, 1);
	assert_int_equal(take(&b, 1, &p, &s2), 0);
	/* it saw the old queue empty; the new one does not begin there */
	pos = claim_head(b.shm);
	assert_int_equal(claim_look(b.shm, 2, pos, &slot), -ENOENT);
	claim_close(&b.c);
	claim_reset(&b.c);
	post(&b);
	assert_int_equal(claim_look(b.shm, 2, pos, &slot), -EAGAIN);
	bench_close(&b);
}

static void test_close(void **st)
{
	uint32_t slot, s2, i, own = 0;
	struct bench b;
	uint64_t pos, p;

	(void)st;
	bench_open(&b, SLOTS);
	for (i = 0; i < SLOTS - 1; i++)
		post(&b);
	assert_int_equal(take(&b, 3, &pos, &slot), 0);
	claim_close(&b.c);
	assert_true(claim_busy(&b.c, UINT64_MAX));
	assert_int_equal(take(&b, 1, &p, &s2), -ENOENT);
	for (i = 0; i < SLOTS; i++)
		own += claim_id(claim_word(&b.c, i)) == CLAIM_OWNER;
	assert_int_equal(own, SLOTS - 2);
	/* its place was free, and is not used any more */
	claim_done(b.shm, pos, slot, 3);
	assert_false(claim_busy(&b.c, UINT64_MAX));
	bench_close(&b);
}

static void test_sweep(void **st)
{
	uint32_t slot, s2, i, n = 0;
	struct bench b;
	uint64_t pos, p;

	(void)st;
	bench_open(&b, SLOTS);
	for (i = 0; i < SLOTS; i++)
		post(&b);
	for (i = 0; i < 4; i++)
		assert_int_equal(take(&b, 3 + i % 2, &pos, &slot), 0);
	/* done before it died: that one counts */
	claim_done(b.shm, pos, slot, 4);
	for (i = 0; claim_sweep(&b.c, 4, i, &s2); i = s2 + 1) {
		assert_int_not_equal(s2, slot);
		n++;
	}
	assert_int_equal(n, 1);
	assert_int_equal(state(&b, slot), CLAIM_DONE);
	assert_false(claim_sweep(&b.c, 4, 0, &s2));
	assert_true(claim_sweep(&b.c, 3, 0, &s2));
	assert_int_equal(take(&b, 1, &p, &slot), 0);
	bench_close(&b);
}

/*
 * Threads: producers, some of whose claims are abandoned as if their process
 * had died there; the owner posts, reaps, sweeps. Every message arrives once,
 * whole, those of one producer in order.
 */
#define PRODUCERS 4
#define MESSAGES 20000
#define LIVES 64
#define STORM_SLOTS 16

/* A peer scribbles on the head: the owner goes on, and a lap later the head is
 * where producers can use it. */
static void test_scribbled_head(void **st)
{
	static const uint64_t heads[] = {0, 1000, 1ull << 40, UINT64_MAX};
	uint32_t slots[3 * SLOTS], i, k;
	struct bench b;
	uint64_t pos;

	for (i = 0; i < 4; i++) {
		bench_open(&b, SLOTS);
		for (k = 0; k < 3 * SLOTS; k++) {
			slots[k] = post(&b);
			if (k == SLOTS / 2)
				atomic_store(&b.shm->head, heads[i]);
			if (k >= SLOTS / 2)
				claim_slot_put(&b.c, slots[k - SLOTS / 2]);
		}
		pos = claim_tail(&b.c) - claim_head(b.shm);
		assert_true(pos <= SLOTS);
		/* once more before it closes */
		atomic_store(&b.shm->head, heads[i]);
		bench_close(&b);
	}
}

struct message {
	uint32_t from, seq, sum;
};

static struct storm {
	struct bench b;
	struct message m[STORM_SLOTS];
	_Atomic uint32_t dead[PRODUCERS * LIVES + 1]; /* by id */
	_Atomic uint32_t finished;
} storm;

static void *producer(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg, life = 0, seq = 0, slot;
	uint32_t id = 1 + me * LIVES, rnd = me + 1;
	struct bench *b = &storm.b;
	uint64_t pos;

	while (seq < MESSAGES) {
		if (take(b, id, &pos, &slot)) {
			sched_yield();
			continue;
		}
		rnd = rnd * 1103515245 + 12345;
		if (life < LIVES - 1 && (rnd >> 16) % 97 == 0) {
			/* dies here; half of it was written */
			storm.m[slot].from = 99;
			atomic_store(&storm.dead[id], 1);
			life++;
			id++;
			continue;
		}
		storm.m[slot] = (struct message){me, seq, me ^ seq ^ 0x5a};
		claim_done(b->shm, pos, slot, id);
		seq++;
	}
	atomic_fetch_add(&storm.finished, 1);
	return NULL;
}

static void storm_sweep(uint32_t *swept)
{
	uint32_t id, slot, i;

	for (id = 1; id <= PRODUCERS * LIVES; id++) {
		if (atomic_load(&storm.dead[id]) != 1)
			continue;
		atomic_store(&storm.dead[id], 2);
		for (i = 0; claim_sweep(&storm.b.c, id, i, &slot);
		     i = slot + 1) {
			claim_slot_put(&storm.b.c, slot);
			++*swept;
		}
	}
}

static void storm_reap(uint32_t next[PRODUCERS])
{
	uint64_t best = UINT64_MAX;
	uint32_t slot = 0, i;
	struct message *m;

	/* The oldest that is done, looked for again until nothing older is:
	 * what one producer did before is visible by then. */
	for (i = 0; i < STORM_SLOTS; i++) {
		uint64_t w = claim_word(&storm.b.c, i);

		if (claim_state(w) == CLAIM_DONE && claim_pos(w) < best) {
			best = claim_pos(w);
			slot = i;
			i = UINT32_MAX; /* from the beginning */
		}
	}
	if (best == UINT64_MAX) {
		sched_yield();
		return;
	}
	m = &storm.m[slot];
	assert_true(m->from < PRODUCERS);
	assert_int_equal(m->seq, next[m->from]);
	assert_int_equal(m->sum, m->from ^ m->seq ^ 0x5a);
	next[m->from]++;
	/* Not DONE any more: the scan above looks at all. */
	atomic_store(&storm.b.shm->cell[slot].word,
		     claim_make(best, 0, CLAIM_FREE));
	claim_slot_put(&storm.b.c, slot);
}

static void test_storm(void **st)
{
	uint32_t next[PRODUCERS] = {0}, swept = 0, slot, i, all = 0;
	pthread_t t[PRODUCERS];

	(void)st;
	bench_open(&storm.b, STORM_SLOTS);
	for (i = 0; i < PRODUCERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, producer,
						(void *)(uintptr_t)i),
				 0);
	while (all < PRODUCERS * MESSAGES) {
		while (!claim_slot_get(&storm.b.c, &slot)) {
			memset(&storm.m[slot], 0xee, sizeof(storm.m[slot]));
			claim_post(&storm.b.c, slot);
		}
		storm_sweep(&swept);
		storm_reap(next);
		for (all = i = 0; i < PRODUCERS; i++)
			all += next[i];
	}
	for (i = 0; i < PRODUCERS; i++)
		pthread_join(t[i], NULL);
	storm_sweep(&swept);
	print_message("  %u claims swept\n", swept);
	assert_true(swept > PRODUCERS);
	/* none is lost */
	claim_close(&storm.b.c);
	assert_false(claim_busy(&storm.b.c, UINT64_MAX));
	claim_fini(&storm.b.c, env);
	free(storm.b.shm);
}

static int up(void **state)
{
	(void)state;
	return env_real_new(&env);
}

static int down(void **state)
{
	(void)state;
	env_real_free(env);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_lag),
		cmocka_unit_test(test_old_producer),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_sweep),
		cmocka_unit_test(test_scribbled_head),
		cmocka_unit_test(test_storm),
	};

	return cmocka_run_group_tests(tests, up, down);
}
