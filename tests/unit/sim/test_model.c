/* SPDX-License-Identifier: MIT */
/*
 * NIC models: the files that the library carries, and what a file may not say.
 */
#include "dev/sim/model.h"
#include "unit/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of a model that is whole: the installed file. */
static char *whole(void)
{
	FILE *f = fopen(SKEIN_MODELS "/connectx4.conf", "r");
	char *text = calloc(1, 65536);

	assert_non_null(f);
	assert_non_null(text);
	assert_true(fread(text, 1, 65535, f) > 1000);
	fclose(f);
	return text;
}

static void test_builtin(void **state)
{
	struct nic_model m;
	const char *name;
	unsigned n = 0;

	for (; (name = nic_model_name(n)); n++) {
		assert_int_equal(nic_model_find(name, &m), 0);
		assert_true(m.units > 0 && m.link_gbps > 0);
	}
	assert_int_equal(n, 5);
	m.units = 77;
	assert_int_equal(nic_model_find("connectx9", &m), -ENOENT);
	assert_int_equal(m.units, 77);
}

static void test_file(void **state)
{
	struct nic_model a, b;
	char *text = whole(), err[160] = "";

	memset(&a, 0xff, sizeof(a));
	assert_int_equal(nic_model_parse(text, &a, err, sizeof(err)), 0);
	assert_int_equal(nic_model_find("connectx4", &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	free(text);
}

static void refused(const char *text, const char *why)
{
	struct nic_model m = {.units = 77};
	char err[160] = "";

	assert_int_equal(nic_model_parse(text, &m, err, sizeof(err)), -EINVAL);
	if (!strstr(err, why))
		fail_msg("\"%s\" does not say \"%s\"", err, why);
	assert_int_equal(m.units, 77);
}

static void test_refused(void **state)
{
	char *text = whole(), *more, *at, longline[400];

	refused("", "missing");
	refused("nonsense\n", "line 1");
	refused("# a comment\n\nno_such = 3\n", "line 3: no_such");
	refused("tx = fast\n", "line 1");
	refused("tx = -1\n", "line 1");
	refused("tx = 1000000001\n", "line 1");
	refused("units = 0\n", "line 1");
	refused("units = 65\n", "line 1");
	refused("cut = 0", "line 1");
	memset(longline, 'x', sizeof(longline));
	longline[sizeof(longline) - 1] = '\0';
	refused(longline, "line 1: too long");
	/* one too many, one too few */
	more = malloc(strlen(text) + 32);
	assert_non_null(more);
	strcpy(more, text);
	strcat(more, "TX = 3\n");
	refused(more, "twice");
	strcpy(more, text);
	at = strstr(more, "\ncut =");
	assert_non_null(at);
	at[1] = '#';
	refused(more, "cut is missing");
	free(more);
	free(text);
}

static void test_set(void **state)
{
	struct nic_model m;
	char err[160] = "";

	assert_int_equal(nic_model_find("connectx5", &m), 0);
	assert_int_equal(
		nic_model_set(&m, "ctx_entries", "600", err, sizeof(err)), 0);
	assert_int_equal(m.ctx_entries, 600);
	assert_int_equal(nic_model_set(&m, "ctx_entries", "0", err,
				       sizeof(err)),
			 -ERANGE);
	assert_int_equal(m.ctx_entries, 600);
	assert_int_equal(nic_model_set(&m, "ctx", "1", err, sizeof(err)),
			 -ENOENT);
	assert_non_null(strstr(err, "ctx"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_builtin),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
