/* SPDX-License-Identifier: MIT */
/*
 * fuzz_cp_targets.c - lists of targets. What is taken is a list again, of the
 * same targets, when each is written by itself.
 */
#include "base/assert.h"
#include "cp/sender/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct cp_target *one)
{
	struct cp_targets t = {0};
	struct cp_err err;
	char text[CP_HOST_MAX + 16];
	int n = snprintf(text, sizeof(text), "%s:%u", one->host,
			 one->port ? one->port : 1);

	skein_assert(n > 0 && (size_t)n < sizeof(text));
	skein_assert(!cp_targets_add(&t, text, false, &err));
	skein_assert(t.n == 1 && !strcmp(t.v[0].host, one->host));
	cp_targets_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cp_targets t = {0};
	struct cp_err err;
	char *text = strndup((const char *)data, size);

	if (!text)
		return 0;
	if (!cp_targets_add(&t, text, false, &err))
		cp_targets_check(&t, size & 1, &err);
	/* all of a large range read alike */
	for (size_t i = 0; i < t.n && i < 8; i++)
		again(&t.v[i]);
	cp_targets_fini(&t);
	free(text);
	return 0;
}
