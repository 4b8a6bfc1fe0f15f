/* SPDX-License-Identifier: MIT */
/* test_out.c - the library's log lines of a subcommand: each is said once. */
#include "unit/cm.h"

#include "out.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char said[1024];

/* stderr while these lines are logged. */
static void log_lines(struct out_log *log, const char *const *lines)
{
	FILE *f = tmpfile();
	int old = dup(STDERR_FILENO);
	size_t n;

	assert_non_null(f);
	assert_int_equal(dup2(fileno(f), STDERR_FILENO), STDERR_FILENO);
	for (; *lines; lines++)
		out_log_line(log, SKEIN_LOG_WARN, *lines);
	fflush(stderr);
	assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
	close(old);
	rewind(f);
	n = fread(said, 1, sizeof(said) - 1, f);
	said[n] = '\0';
	fclose(f);
}

static void test_once(void **state)
{
	const char *const lines[] = {"lost a", "lost b", "lost a", "lost a",
				     NULL};
	struct out_log log = {0};

	log_lines(&log, lines);
	assert_string_equal(said,
			    "skein: warning: lost a\nskein: warning: lost b\n");
}

/* Before it is open the reason is kept, afterwards the first error. */
static void test_reasons(void **state)
{
	struct out_log log = {0};

	out_log_line(&log, SKEIN_LOG_ERROR, "no device");
	out_log_line(&log, SKEIN_LOG_ERROR, "no memory");
	assert_string_equal(out_log_reason(&log, -ENOMEM), "no device");
	assert_string_equal(out_log_later(&log), "");
	out_log_opened(&log);
	out_log_line(&log, SKEIN_LOG_ERROR, "no descriptor");
	out_log_line(&log, SKEIN_LOG_ERROR, "no peer");
	assert_string_equal(out_log_later(&log), "no descriptor");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_reasons),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
