/* SPDX-License-Identifier: MIT */
/*
 * test_netns.c - a device whose interface lives in another network namespace
 * is visible, its GIDs look like any others, and it is not taken.
 */
#include "dev/dev.h"
#include "env/env.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_elsewhere(void **state)
{
	const char *spec = getenv("SKEIN_TEST_DEVICE");
	struct skein_env *env;
	struct dev *dev = NULL;
	char err[256] = "";
	int index;

	if (!spec || strncmp(spec, "verbs:", 6) != 0)
		skip();
	assert_int_equal(env_real_new(&env), 0);
	if (dev_open(env, spec, -1, err, sizeof(err), &dev))
		fail_msg("%s", err);
	index = dev->gid.index;
	assert_string_equal(dev->name, spec + 6);
	assert_true(dev->gid.type == DEV_GID_ROCE_V2);
	assert_true(dev->gid.netdev[0]);
	dev_close(dev);

	dev = NULL;
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	assert_int_equal(dev_open(env, spec, -1, err, sizeof(err), &dev),
			 -ENODATA);
	assert_null(dev);
	print_message("%s\n", err);
	assert_non_null(strstr(err, "another network namespace"));

	/* A caller that names an index gets it, and a line in the log. */
	if (dev_open(env, spec, index, err, sizeof(err), &dev))
		fail_msg("%s", err);
	assert_non_null(strstr(dev->gid.why, "not of this netns"));
	dev_close(dev);
	env_real_free(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
