/* SPDX-License-Identifier: MIT */
/*
 * test_polls.c - which connections a round looks at, by an injected clock and
 * modules that are made up.
 */
#include "unit/cm.h"

#include "base/prng.h"
#include "conn/polls.h"
#include "env/env.h"

#define N 40u

/* A connection: all that polls.c sees of it. */
struct fake {
	struct polls_entry e;
	uint64_t word;
	enum conn_quiet may, group;
	unsigned asked;
};

static struct fake fakes[N];
static struct polls polls;
static struct skein_env *env;

static int fake_poll(struct skein_conn *conn, void *state, uint64_t now_ns)
{
	return 0;
}

static enum conn_quiet fake_rest(struct skein_conn *conn, void *state,
				 struct conn_word *word)
{
	struct fake *f = state;

	f->asked++;
	*word = (struct conn_word){&f->word, 1};
	return f->may;
}

static const struct conn_module module = {.poll = fake_poll, .rest = fake_rest};

static void add(unsigned i, uint64_t now_ns)
{
	fakes[i].e = (struct polls_entry){.poll = fake_poll,
					  .state = &fakes[i],
					  .module = &module,
					  .moved_ns = now_ns};
	fakes[i].group = CONN_ACTIVE;
	assert_int_equal(polls_add(&polls, env, &fakes[i].e), 0);
}

static enum conn_quiet group_of(const struct fake *f)
{
	assert_in_range(f->e.at, 1, polls.n);
	assert_ptr_equal(polls.e[f->e.at - 1]->state, f);
	if (f->e.at <= polls.active)
		return CONN_ACTIVE;
	return f->e.at <= polls.swept ? CONN_SWEPT : CONN_NOTIFIED;
}

static int setup(void **state)
{
	memset(fakes, 0, sizeof(fakes));
	for (unsigned i = 0; i < N; i++)
		add(i, 0);
	return 0;
}

static int teardown(void **state)
{
	polls_fini(&polls, env);
	return 0;
}

/* Silent ones alone leave, each at its time; who may not is asked again. */
static void test_silence(void **state)
{
	for (unsigned i = 0; i < N; i++)
		fakes[i].may = i % 3;
	polls.e[7]->moved_ns = 1;
	polls_rest(&polls, POLLS_SILENT_NS - 1);
	assert_int_equal(polls.active, N);
	polls_rest(&polls, POLLS_SILENT_NS);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(group_of(&fakes[i]), i == 7 ? 0 : i % 3);
	fakes[6].may = CONN_NOTIFIED;
	polls_rest(&polls, POLLS_SILENT_NS + 1);
	assert_int_equal(group_of(&fakes[7]), 1);
	assert_int_equal(group_of(&fakes[6]), CONN_NOTIFIED);
	assert_int_equal(fakes[6].asked, 2);
	assert_int_equal(fakes[8].asked, 1);
}

/* Wherever the sweep stands, each is looked at in one lap, and one that has
 * something is active from then on, with a silence of its own. */
static void test_sweep(void **state)
{
	for (unsigned i = 0; i < N; i++)
		fakes[i].may = CONN_SWEPT;
	polls_rest(&polls, POLLS_SILENT_NS);
	assert_int_equal(polls.active, 0);
	for (unsigned place = 0; place < N; place++) {
		unsigned found = 0, turns = 0;
		struct fake *f = polls.e[place]->state;

		polls.next = place + 1;
		f->word = 1;
		while (!found) {
			assert_in_range(++turns, 1, N / POLLS_SWEEP);
			found = polls_sweep(&polls, POLLS_SWEEP,
					    POLLS_SILENT_NS + 5);
		}
		assert_int_equal(found, 1);
		assert_int_equal(group_of(f), CONN_ACTIVE);
		assert_int_equal(polls.active, 1);
		f->word = 0;
		polls_rest(&polls, 2 * POLLS_SILENT_NS + 4);
		assert_int_equal(polls.active, 1);
		polls_rest(&polls, 2 * POLLS_SILENT_NS + 5);
		assert_int_equal(polls.active, 0);
	}
	/* all at once, and more looks than there are */
	for (unsigned i = 0; i < N; i++)
		fakes[i].word = 1;
	assert_int_equal(polls_sweep(&polls, N + 1, 0), N);
	assert_int_equal(polls_sweep(&polls, N, 0), 0);
}

/* Random steps, against what each entry says of itself. */
static void test_groups(void **state)
{
	struct prng rnd;
	bool there[N];

	prng_init(&rnd, 1);
	memset(there, 1, sizeof(there));
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)prng_below(&rnd, N), n = 0;
		unsigned counts[3] = {0};

		if (!there[i])
			add(i, 0);
		else if (prng_below(&rnd, 4))
			polls_move(&polls, &fakes[i].e,
				   fakes[i].group = (enum conn_quiet)prng_below(
					   &rnd, 3));
		else
			polls_del(&polls, &fakes[i].e);
		there[i] = fakes[i].e.at != 0;
		for (i = 0; i < N; i++) {
			if (!there[i])
				continue;
			assert_int_equal(group_of(&fakes[i]), fakes[i].group);
			counts[fakes[i].group]++;
			n++;
		}
		assert_int_equal(n, polls.n);
		assert_int_equal(counts[CONN_ACTIVE], polls.active);
		assert_int_equal(counts[CONN_SWEPT],
				 polls.swept - polls.active);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sweep, setup, teardown),
		cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
	};
	int rc;

	if (env_real_new(&env))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
