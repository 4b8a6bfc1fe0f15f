/* SPDX-License-Identifier: MIT */
/*
 * `skein sim fuzz` with runs that fail and with runs in which the process dies:
 * it stops, and prints the command that shows the failure again.
 */
#include "unit/cm.h"
#include "cmd.h"
#include "sim/scenario.h"
#include "sim_fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct plan {
	uint32_t bad_seed, fatal_seed, killed_seed;
};

static bool fake_run(void *arg, const struct scenario *s, uint32_t seed)
{
	const struct plan *p = arg;
	bool is_kv = !strcmp(s->name, "kv");

	if (is_kv && seed == p->killed_seed)
		raise(SIGKILL);
	if (is_kv && seed == p->fatal_seed)
		_exit(3);
	return !(is_kv && seed == p->bad_seed);
}

/* What sim_fuzz() prints. */
static int fuzz(struct plan *p, const char *seeds, char *text, size_t len)
{
	struct sim_fuzz f = {.seeds = seeds,
			     .options = " --no-faults",
			     .run = fake_run,
			     .arg = p};
	FILE *tmp = tmpfile();
	int out = dup(1), rc;
	size_t n;

	assert_non_null(tmp);
	fflush(stdout);
	dup2(fileno(tmp), 1);
	rc = sim_fuzz(&f);
	fflush(stdout);
	dup2(out, 1);
	close(out);
	rewind(tmp);
	n = fread(text, 1, len - 1, tmp);
	text[n] = '\0';
	fclose(tmp);
	return rc;
}

static unsigned fuzzable(void)
{
	const struct scenario *s;
	unsigned n = 0;

	for (unsigned i = 0; (s = scenario_at(i)); i++)
		n += s->fuzz;
	return n;
}

static void test_well(void **state)
{
	struct plan p = {0};
	char text[400], want[60];

	assert_int_equal(fuzz(&p, "5..104", text, sizeof(text)), CMD_OK);
	snprintf(want, sizeof(want), "%u runs, no failure", 100 * fuzzable());
	assert_non_null(strstr(text, want));
	assert_int_equal(fuzz(&p, "9..4", text, sizeof(text)), CMD_USAGE);
}

static void test_failure(void **state)
{
	struct plan p = {.bad_seed = 60};
	char text[400];

	assert_int_equal(fuzz(&p, "5..1000000", text, sizeof(text)),
			 CMD_FAILED);
	assert_non_null(strstr(text, "skein sim kv --seed 60 --no-faults"));
}

static void test_death(void **state)
{
	struct plan p = {.fatal_seed = 60};
	char text[400];

	assert_int_equal(fuzz(&p, "5..300", text, sizeof(text)), CMD_FAILED);
	assert_non_null(strstr(text, "skein sim kv --seed 60 --no-faults"));
}

/* The worker's end, not a finding of the run's. */
static void test_killed(void **state)
{
	struct plan p = {.killed_seed = 60};
	char text[400];

	assert_int_equal(fuzz(&p, "5..104", text, sizeof(text)), CMD_FAILED);
	if (!strstr(text,
		    "a worker was ended by signal 9 while it ran seed 60"))
		fail_msg("%s", text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_well),
		cmocka_unit_test(test_failure),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_death),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
