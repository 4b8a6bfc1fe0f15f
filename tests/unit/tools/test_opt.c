/* SPDX-License-Identifier: MIT */
/*
 * test_opt.c - options by a table: amounts, bounds, choices, operands, errors.
 */
#include "opt.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const colours[] = {"red", "green", NULL};

struct vals {
	bool flag;
	uint32_t num;
	uint64_t size;
	uint64_t count;
	uint64_t ns;
	double f;
	const char *str;
	uint32_t colour;
};

/* Parses a command line made of words; stderr and stdout go to a file so that
 * the test's own output stays clean, and the text can be looked at. */
static enum opt_verdict parse(struct vals *v, const char *line, int *first,
			      char *said, size_t said_len)
{
	const struct opt opts[] = {
		{'f', "flag", OPT_FLAG, &v->flag, .help = "a flag"},
		{'n', "num", OPT_U32, &v->num, "N", "a number", 1, 10},
		{'s', "size", OPT_SIZE, &v->size, "SIZE", "a size"},
		{0, "count", OPT_COUNT, &v->count, "N", "a count"},
		{'D', "duration", OPT_NS, &v->ns, "T", "a time", 1000000,
		 3600000000000},
		{0, "ratio", OPT_F64, &v->f, "X", "a ratio"},
		{'d', "device", OPT_STR, &v->str, "NAME", "a name"},
		{0, "colour", OPT_CHOICE, &v->colour, "C", "a colour",
		 .choices = colours},
		{0},
	};
	const struct opt_usage u = {"skein x", "[options]", "About.", opts};
	char buf[256], *argv[32], *save = NULL;
	enum opt_verdict verdict;
	int argc = 0, out, err;
	FILE *f = tmpfile();

	assert_non_null(f);
	snprintf(buf, sizeof(buf), "%s", line);
	for (char *w = strtok_r(buf, " ", &save); w;
	     w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	fflush(stdout);
	out = dup(1);
	err = dup(2);
	dup2(fileno(f), 1);
	dup2(fileno(f), 2);
	verdict = opt_parse(&u, argc, argv, first);
	fflush(stdout);
	dup2(out, 1);
	dup2(err, 2);
	close(out);
	close(err);
	rewind(f);
	said[fread(said, 1, said_len - 1, f)] = 0;
	fclose(f);
	return verdict;
}

static void test_times(void **state)
{
	uint64_t v = 99;

	assert_int_equal(opt_ns("2", &v), 0);
	assert_int_equal(v, 2000000000);
	assert_int_equal(opt_ns("1.5s", &v), 0);
	assert_int_equal(v, 1500000000);
	assert_int_equal(opt_ns("50ms", &v), 0);
	assert_int_equal(v, 50000000);
	assert_int_equal(opt_ns("3us", &v), 0);
	assert_int_equal(v, 3000);
	assert_int_equal(opt_ns("0.5", &v), 0);
	assert_int_equal(v, 500000000);
	assert_int_equal(opt_ns("7ns", &v), 0);
	assert_int_equal(v, 7);
	assert_int_equal(opt_ns("2min", &v), 0);
	assert_int_equal(v, 120000000000);
	v = 7;
	assert_int_equal(opt_ns("7h", &v), -EINVAL);
	assert_int_equal(opt_ns("", &v), -EINVAL);
	assert_int_equal(opt_ns("-1", &v), -EINVAL);
	assert_int_equal(v, 7);
}

static void test_all_kinds(void **state)
{
	struct vals v = {.num = 3};
	char said[2048];
	int first;

	assert_int_equal(parse(&v,
			       "x op -f -n 7 --size=4K host -D50ms --ratio 0.5 "
			       "--count 2K --device soft --colour green",
			       &first, said, sizeof(said)),
			 OPT_RUN);
	assert_true(v.flag);
	assert_int_equal(v.num, 7);
	assert_int_equal(v.size, 4096);
	assert_int_equal(v.count, 2048);
	assert_int_equal(v.ns, 50000000);
	assert_true(v.f == 0.5);
	assert_int_equal(v.colour, 1);
	assert_int_equal(first, 14); /* two operands come last */
	assert_string_equal(said, "");
}

static void check_bad(const char *line, const char *wants)
{
	struct vals v = {.num = 3, .size = 8, .str = "s"};
	char said[2048], *nl;
	int first = -1;

	assert_int_equal(parse(&v, line, &first, said, sizeof(said)), OPT_BAD);
	assert_int_equal(first, -1);
	if (!strstr(said, wants))
		fail_msg("\"%s\" does not say \"%s\"", said, wants);
	nl = strchr(said, '\n');
	assert_non_null(nl);
	assert_string_equal(nl, "\n"); /* one line */
	assert_int_equal(v.num, 3);
	assert_int_equal(v.size, 8);
}

static void test_errors(void **state)
{
	check_bad("x -n 11", "--num cannot be \"11\": from 1 to 10");
	check_bad("x -n 0", "from 1 to 10");
	check_bad("x -n many", "a whole number");
	check_bad("x -n", "wants an argument");
	check_bad("x --size 4Q", "K, M or G");
	check_bad("x --size 99999999999G", "too large");
	check_bad("x -D soon", "a time as");
	check_bad("x -D 0", "from 1.00 ms to");
	check_bad("x --count -5", "a whole number");
	check_bad("x --ratio big", "a number");
	check_bad("x --colour blue", "one of red, green");
	check_bad("x --nonsense", "--nonsense is no option here");
	check_bad("x -q", "-q is no option here");
}

static void test_help(void **state)
{
	struct vals v = {.num = 3, .size = 8, .ns = 1000000000, .str = "soft"};
	char said[2048];
	int first;

	assert_int_equal(parse(&v, "x --help", &first, said, sizeof(said)),
			 OPT_HELP);
	assert_non_null(strstr(said, "usage: skein x [options]"));
	assert_non_null(strstr(said, "-n, --num=N"));
	assert_non_null(strstr(said, "(default 3)"));
	assert_non_null(strstr(said, "(default 1s)"));
	assert_non_null(strstr(said, "(default soft)"));
	assert_non_null(strstr(said, "[red, green] (default red)"));
	assert_non_null(strstr(said, "-h, --help"));
	assert_non_null(strstr(said, "(default 8)"));

	v.size = 64u << 20;
	v.ns = 50000;
	assert_int_equal(parse(&v, "x --help", &first, said, sizeof(said)),
			 OPT_HELP);
	assert_non_null(strstr(said, "(default 64M)"));
	assert_non_null(strstr(said, "(default 50us)"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_all_kinds),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
