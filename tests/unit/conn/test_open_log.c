/* SPDX-License-Identifier: MIT */
/*
 * test_open_log.c - skein_ctx_open() that fails says why, in one line of the
 * log at level ERROR: for each attribute and setting that makes no sense, and
 * for each allocation that fails.
 */
#include "unit/alloc_sweep.h"
#include "unit/cm.h"
#include "sandbox.h"

#include "conn/ctx.h"

#include <skein/skein.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct said {
	unsigned errors;
	char line[512]; /* the last */
};

static void note(void *arg, enum skein_log_level level, const char *line)
{
	struct said *said = arg;

	if (level != SKEIN_LOG_ERROR)
		return;
	said->errors++;
	snprintf(said->line, sizeof(said->line), "%s", line);
}

static void note_env(void *arg, enum env_log_level level, const char *line)
{
	note(arg, (enum skein_log_level)level, line);
}

static struct skein_ctx_attr attr_of(struct said *said)
{
	return (struct skein_ctx_attr){.size = sizeof(struct skein_ctx_attr),
				       .device = "soft",
				       .log = note,
				       .log_arg = said};
}

static void check(const struct skein_ctx_attr *attr, struct said *said, int rc,
		  const char *word)
{
	struct skein_ctx *ctx = NULL;

	memset(said, 0, sizeof(*said));
	assert_int_equal(skein_ctx_open(attr, &ctx), rc);
	assert_null(ctx);
	if (said->errors != 1)
		fail_msg("%u lines for \"%s\": %s", said->errors, word,
			 said->line);
	if (!strstr(said->line, word))
		fail_msg("\"%s\" does not say \"%s\"", said->line, word);
}

static void test_attributes(void **state)
{
	struct said said;
	struct skein_ctx_attr attr = attr_of(&said);

	attr.device = "nosuch";
	check(&attr, &said, -EINVAL, "\"nosuch\"");
	attr = attr_of(&said);
	attr.key = "k";
	check(&attr, &said, -EINVAL, "a key has 1 to 4096 bytes");
	attr.key_len = 4097;
	check(&attr, &said, -EINVAL, "a key has 1 to 4096 bytes");
	attr = attr_of(&said);
	attr.wait = (enum skein_wait)99;
	check(&attr, &said, -EINVAL, "SKEIN_WAIT");
	attr = attr_of(&said);
	attr.path.mtu = 77;
	check(&attr, &said, -ERANGE, "77");
}

static void test_settings(void **state)
{
	static const char *const wrong[] = {
		"SKEIN_WAIT",	  "SKEIN_LOG",	    "SKEIN_HUGEPAGES",
		"SKEIN_PATH_MTU", "SKEIN_RPC_RING", "SKEIN_QP_INTERVAL",
		"SKEIN_DEVICE",
	};
	struct said said;
	struct skein_ctx_attr attr = attr_of(&said);

	attr.device = NULL;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char *old = getenv(wrong[i]);

		old = old ? strdup(old) : NULL;
		setenv(wrong[i], "nosuch", 1);
		check(&attr, &said, -EINVAL, i == 6 ? "\"nosuch\"" : wrong[i]);
		if (old)
			setenv(wrong[i], old, 1);
		else
			unsetenv(wrong[i]);
		free(old);
	}
}

static void check_size(const struct skein_ctx_attr *attr, const char *words)
{
	struct skein_env *env;
	struct skein_ctx *ctx;
	struct said said = {0};

	assert_int_equal(env_real_new(&env), 0);
	env->log = note_env;
	env->log_arg = &said;
	assert_int_equal(ctx_open_env(env, attr, &ctx), -EINVAL);
	assert_int_equal(said.errors, 1);
	assert_non_null(strstr(said.line, words));
	env_real_free(env);
}

/* What a later library's program may set; and a size that was forgotten. */
static void test_size(void **state)
{
	struct {
		struct skein_ctx_attr attr;
		uint64_t more;
	} big = {.attr = {.size = sizeof(big)}, .more = 1};
	struct skein_ctx_attr zeroed = {0};

	check_size(&big.attr, "is not 0");
	check_size(&zeroed, "set .size = sizeof(attr)");
}

static int attempt(struct skein_env *env, void *arg)
{
	struct said *said = arg;
	struct skein_ctx_attr attr = attr_of(said);
	struct skein_ctx *ctx;
	int rc;

	attr.key = "secret";
	attr.key_len = 6;
	/* the environment's log, until the context has set the attribute's */
	memset(said, 0, sizeof(*said));
	env->log = note_env;
	env->log_arg = said;
	rc = ctx_open_env(env, &attr, &ctx);
	if (!rc)
		skein_ctx_close(ctx);
	else if (!said->errors)
		fail_msg("an allocation failed, and nothing said so");
	return rc;
}

static void test_no_memory(void **state)
{
	struct said said = {0};
	struct skein_env *env;

	assert_int_equal(env_real_new(&env), 0);
	assert_true(alloc_sweep(env, attempt, &said) > 5);
	env_real_free(env);
}

/* No page more: not even the environment can be made, whose log it would be. */
static void refuse_pages(void)
{
	static const int calls[] = {SYS_mmap};

	if (sandbox_enter(calls, 1, ENOMEM))
		_exit(99);
}

static void test_no_environment(void **state)
{
	struct said said = {0};
	struct skein_ctx_attr attr = attr_of(&said);
	struct skein_ctx *ctx;
	pid_t pid = fork();
	int status;

	if (!pid) {
		refuse_pages();
		if (skein_ctx_open(&attr, &ctx) != -ENOMEM)
			_exit(1);
		_exit(said.errors == 1 &&
				      strstr(said.line, "cannot open a context")
			      ? 0
			      : 2);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
