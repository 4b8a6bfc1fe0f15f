/* SPDX-License-Identifier: MIT */
/*
 * Virtual time: order, ties, moving, cancelling, and that a seed repeats.
 */
#include "cm_sim.h"

#define N 5000

struct tick {
	struct sim_event ev;
	struct run *run;
	unsigned i;
};

struct run {
	struct sim_world *w;
	struct prng r;
	struct tick ticks[N];
	unsigned seen[N], n;
	uint64_t last;
	bool again;
};

static void tick(struct sim_event *ev)
{
	struct tick *t = container_of(ev, struct tick, ev);
	struct run *run = t->run;

	assert_true(sim_now(run->w) >= run->last);
	assert_int_equal(sim_now(run->w), ev->at);
	run->last = sim_now(run->w);
	run->seen[run->n++] = t->i;
	sim_note(run->w, t->i, 0);
	if (run->again && prng_below(&run->r, 4)) {
		unsigned k = (unsigned)prng_below(&run->r, N);

		run->n = 0;
		sim_at(run->w, &run->ticks[k].ev,
		       sim_now(run->w) + prng_below(&run->r, 50));
	}
}

static struct run *run_new(uint64_t seed)
{
	struct sim_conf conf = {.seed = seed};
	struct run *run = calloc(1, sizeof(*run));

	assert_non_null(run);
	assert_int_equal(sim_world_new(&conf, &run->w), 0);
	sim_prng(run->w, 1, &run->r);
	for (unsigned i = 0; i < N; i++) {
		run->ticks[i].ev.fn = tick;
		run->ticks[i].run = run;
		run->ticks[i].i = i;
	}
	return run;
}

static void run_free(struct run *run)
{
	sim_world_free(run->w);
	free(run);
}

static void test_ties(void **state)
{
	struct run *run = run_new(1);

	for (unsigned i = 0; i < N; i++)
		sim_at(run->w, &run->ticks[i].ev, 7);
	assert_int_equal(sim_run(run->w, ENV_NEVER), SIM_END_QUIET);
	assert_int_equal(run->n, N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(run->seen[i], i);
	run_free(run);
}

static void test_move_cancel(void **state)
{
	struct run *run = run_new(2);
	bool off[N] = {false};
	unsigned left = N;

	for (unsigned i = 0; i < N; i++)
		sim_at(run->w, &run->ticks[i].ev, prng_below(&run->r, 100));
	for (unsigned i = 0; i < N; i++) {
		unsigned k = (unsigned)prng_below(&run->r, N);

		if (prng_below(&run->r, 2)) {
			sim_at(run->w, &run->ticks[k].ev,
			       prng_below(&run->r, 200));
			left += off[k];
			off[k] = false;
		} else {
			sim_cancel(run->w, &run->ticks[k].ev);
			left -= !off[k];
			off[k] = true;
		}
	}
	assert_int_equal(sim_run(run->w, 99), SIM_END_TIME);
	assert_int_equal(sim_now(run->w), 99);
	assert_int_equal(sim_run(run->w, ENV_NEVER), SIM_END_QUIET);
	assert_int_equal(run->n, left);
	for (unsigned i = 0; i < run->n; i++)
		assert_false(off[run->seen[i]]);
	run_free(run);
}

static uint64_t hash_of(uint64_t seed)
{
	struct run *run = run_new(seed);
	uint64_t hash;

	run->again = true;
	for (unsigned i = 0; i < N; i++)
		sim_at(run->w, &run->ticks[i].ev, prng_below(&run->r, 100));
	sim_run(run->w, 5000);
	hash = sim_hash(run->w);
	run_free(run);
	return hash;
}

static void test_repeats(void **state)
{
	for (uint64_t seed = 1; seed < 20; seed++) {
		assert_int_equal(hash_of(seed), hash_of(seed));
		assert_int_not_equal(hash_of(seed), hash_of(seed + 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ties),
		cmocka_unit_test(test_move_cancel),
		cmocka_unit_test(test_repeats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
