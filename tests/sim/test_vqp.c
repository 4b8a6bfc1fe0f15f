/* SPDX-License-Identifier: MIT */
/*
 * The checker of the scenario "vqp" is tested: each mistake that is planted in
 * the engine has to be found. The seeds without a mistake are
 * tests/sim/meson.build's.
 */
#include "unit/cm.h"

#include "sim/vqp/vqp.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEEDS 400u

/* from: a seed from which on it is found soon. */
static const struct {
	const char *name;
	enum vqp_plant plant;
	unsigned from;
} plants[] = {
	{"a", VQP_PLANT_A, 1},
	{"b", VQP_PLANT_B, 1},
	{"c", VQP_PLANT_C, 1},
	{"d", VQP_PLANT_D, 1},
	{"e", VQP_PLANT_E, 1},
	{"f", VQP_PLANT_F, 35},
	{"g", VQP_PLANT_G, 70},
	{"g2", VQP_PLANT_G2, 16},
	{"ranges and rights", VQP_PLANT_REGION, 1},
	{"the lease's end", VQP_PLANT_LEASE, 222},
	{"the peer's word", VQP_PLANT_RC_EARLY, 1},
	{"the drain", VQP_PLANT_RC_DRAIN, 165},
	{"one in use", VQP_PLANT_RC_IN_USE, 12},
	{"close", VQP_PLANT_CLOSE, 8},
	{"credit is asked for", VQP_PLANT_ASK, 80},
	{"there is none any more", VQP_PLANT_ASK_DEAF, 340},
	{"the end is told", VQP_PLANT_END, 1},
	{"nobody asks", VQP_PLANT_LIFE, 1},
	{"a dead one's end is told", VQP_PLANT_END_DIED, 1},
	{"no probe", VQP_PLANT_RC_PROBE, 200},
	{"a probe without an end", VQP_PLANT_RC_PROBED, 200},
	{"a node's sum", VQP_PLANT_NO_SUM, 205},
	{"a region's sum", VQP_PLANT_REGION_NO_SUM, 1},
	{"the lease's margin", VQP_PLANT_LEASE_MARGIN, 235},
};

/* In a child: it may end in an assertion. 0: no seed finds it. */
static unsigned found_at(unsigned i)
{
	struct scenario_conf conf = {.faults = true};
	unsigned seed = 0;
	int status, p[2];
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (!pid) {
		freopen("/dev/null", "w", stderr);
		signal(SIGABRT, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		for (seed = plants[i].from; seed <= SEEDS; seed++) {
			struct report rep = {0};

			conf.seed = seed;
			alarm(60);
			if (write(p[1], &seed, sizeof(seed)) < 0 ||
			    vqp_play(&conf, plants[i].plant, &rep))
				_exit(1);
			if (rep.ok)
				continue;
			print_message("%s\n", rep.why);
			_exit(1);
		}
		_exit(0);
	}
	close(p[1]);
	while (read(p[0], &seed, sizeof(seed)) > 0)
		;
	close(p[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : seed;
}

static void test_plants(void **state)
{
	unsigned i, at, missed = 0;

	for (i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
		at = found_at(i);
		print_message("%s: seed %u\n", plants[i].name, at);
		missed += !at;
	}
	assert_int_equal(missed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
