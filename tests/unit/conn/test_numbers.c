/* SPDX-License-Identifier: MIT */
/*
 * test_numbers.c - the connections of a link by their numbers, against an array.
 */
#include "unit/cm.h"

#include "base/prng.h"
#include "conn/peer/numbers.h"
#include "env/env.h"

#define N 4096u

static struct numbers_entry entries[UINT16_MAX + 1];
static bool there[UINT16_MAX + 1];
static struct skein_env *env;

static bool no_memory(void *arg)
{
	return true;
}

static void add(struct numbers *t, unsigned number)
{
	entries[number].number = (uint16_t)number;
	numbers_add(t, env, &entries[number]);
	there[number] = true;
}

static void del(struct numbers *t, unsigned number)
{
	numbers_del(t, &entries[number]);
	there[number] = false;
}

static void check(struct numbers *t, unsigned number)
{
	assert_ptr_equal(numbers_find(t, (uint16_t)number),
			 there[number] ? &entries[number] : NULL);
}

static void check_all(struct numbers *t)
{
	for (unsigned i = 0; i <= UINT16_MAX; i++)
		check(t, i);
}

/* Entries come and go in any order. */
static void random_walk(struct numbers *t, uint64_t seed)
{
	struct prng prng;
	unsigned i;

	prng_init(&prng, seed);
	for (unsigned k = 0; k < 20000; k++) {
		i = (unsigned)prng_below(&prng, 2 * N);
		if (there[i])
			del(t, i);
		else if (t->n < N)
			add(t, i);
		check(t, i);
		check(t, (i + 1) % (2 * N));
	}
	check_all(t);
	for (i = 0; i < 2 * N; i++)
		if (there[i])
			del(t, i);
	assert_int_equal(t->n, 0);
	check_all(t);
}

static void test_walk(void **state)
{
	struct numbers t = {0};

	for (uint64_t seed = 1; seed <= 4; seed++)
		random_walk(&t, seed);
	numbers_fini(&t, env);
}

/* Nothing is lost without memory, from the first entry on or later. */
static void test_no_memory(void **state)
{
	struct numbers t = {0};

	env->alloc_fails = no_memory;
	random_walk(&t, 5);
	assert_null(t.heads);
	env->alloc_fails = NULL;
	for (unsigned i = 0; i < 40; i++)
		add(&t, i);
	assert_non_null(t.heads);
	env->alloc_fails = no_memory;
	for (unsigned i = 40; i < 400; i++)
		add(&t, i);
	check_all(&t);
	env->alloc_fails = NULL;
	for (unsigned i = 0; i < 400; i++)
		del(&t, i);
	check_all(&t);
	numbers_fini(&t, env);
}

/* Numbers that follow one another, as a client gives them, have a place each:
 * a look is one step. */
static void test_one_step(void **state)
{
	struct numbers t = {0};
	unsigned i;

	for (i = 60000; i < 60000 + N; i++) {
		add(&t, i);
		assert_in_range(t.mask + 1, t.n, 2 * t.n > 8 ? 2 * t.n : 8);
	}
	for (i = 0; i <= t.mask; i++)
		assert_true(!t.heads[i] || !t.heads[i]->next);
	check_all(&t);
	for (i = 60000; i < 60000 + N; i++)
		del(&t, i);
	numbers_fini(&t, env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_one_step),
	};
	int rc;

	if (env_real_new(&env))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	env_real_free(env);
	return rc;
}
