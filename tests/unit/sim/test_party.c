/* SPDX-License-Identifier: MIT */
/*
 * What judges every scenario with kills: it names a party that waits for ever,
 * it sees what is left, and it accepts an orderly end.
 */
#include "unit/cm.h"
#include "sim/party.h"

#include <stdlib.h>
#include <string.h>

static enum {
	RIGHT,
	LEAKS,
	WAITS,
	DEADLOCK,
	TOUCHES,
} plan;

static struct env_mutex locks[2];

static void take_both(struct actor *a, int first)
{
	struct skein_env *env = actor_env(a);

	env_mutex_lock(env, &locks[first]);
	sim_sleep(a->party->w, PARTY_MS);
	env_mutex_lock(env, &locks[!first]);
}

static void helper(void *arg)
{
	take_both(arg, 1);
}

static void server(void *arg)
{
	struct actor *a = arg;

	while (!a->party->over)
		sim_sleep(a->party->w, PARTY_MS);
	a->ended = true;
}

static void client(void *arg)
{
	struct actor *a = arg;
	struct skein_env *env = actor_env(a);
	unsigned char *block = env_alloc(env, 77);

	while (!actor_over(a))
		sim_sleep(a->party->w, PARTY_MS);
	a->got_through = true;
	if (plan == WAITS)
		sim_sleep(a->party->w, 10 * PARTY_LIMIT_NS);
	if (plan == DEADLOCK) {
		env_mutex_init(env, &locks[0]);
		env_mutex_init(env, &locks[1]);
		sim_spawn(a->proc, "helper", helper, a);
		take_both(a, 0);
	}
	if (plan == LEAKS)
		block = NULL;
	env_free(env, block);
	if (plan == TOUCHES) {
		block[5] = 1;
		for (unsigned i = 0; i < 100; i++)
			env_free(env, env_alloc(env, 4096));
	}
	a->ended = true;
}

static void nothing(struct actor *a)
{
}

static void play(int p, struct report *rep)
{
	static const struct party_ops ops = {.server = server,
					     .client = client,
					     .born = nothing,
					     .killed = nothing,
					     .stop = nothing};
	struct scenario_conf conf = {.seed = 1};
	struct actor actors[1 + PARTY_CLIENTS_MAX];
	struct party party;

	plan = p;
	for (;; conf.seed++) {
		memset(rep, 0, sizeof(*rep));
		memset(actors, 0, sizeof(actors));
		assert_int_equal(party_init(&party, &ops, &conf, rep, actors,
					    sizeof(actors[0])),
				 0);
		if (party.n_clients == 1)
			break;
		party_fini(&party);
	}
	party_play(&party);
	party_judge(&party);
	party_fini(&party);
}

static void test_judge(void **state)
{
	static const struct {
		int plan;
		const char *says[2];
	} cases[] = {
		{RIGHT, {"", ""}},
		{LEAKS, {"client 1 left 77 bytes, 0 descriptors", ""}},
		{WAITS, {"client1: thread main sleeps, waits for time", ""}},
		{DEADLOCK,
		 {"thread main sleeps, waits for a lock",
		  "thread helper sleeps, waits for a lock"}},
		{TOUCHES, {"77 bytes were written to after they were", ""}},
	};
	struct report rep;

	for (unsigned i = 0; i < 5; i++) {
		play(cases[i].plan, &rep);
		assert_int_equal(rep.ok, cases[i].plan == RIGHT);
		for (unsigned k = 0; k < 2; k++)
			if (!strstr(rep.why, cases[i].says[k]))
				fail_msg("\"%s\" does not say \"%s\"", rep.why,
					 cases[i].says[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_judge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
