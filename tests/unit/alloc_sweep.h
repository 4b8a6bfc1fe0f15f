/* SPDX-License-Identifier: MIT */
/*
 * alloc_sweep.h - fails the n-th allocation of an operation, for every n.
 *
 * attempt() does the whole operation once; when it succeeds it undoes it and
 * returns 0; when it fails it must leave nothing behind (run the test under
 * ASan) and return -ENOMEM. One thread at a time allocates.
 */
#ifndef SKEIN_TESTS_ALLOC_SWEEP_H
#define SKEIN_TESTS_ALLOC_SWEEP_H

#include <errno.h>

#include "env/env.h"
#include "unit/cm.h"

struct alloc_sweep {
	int left; /* allocations that succeed before one fails */
	bool hit;
};

static inline bool alloc_sweep_fails(void *arg)
{
	struct alloc_sweep *s = arg;

	if (s->left-- != 0)
		return false;
	s->hit = true;
	return true;
}

/* Returns how many allocations the operation makes. */
static inline int alloc_sweep(struct skein_env *env,
			      int (*attempt)(struct skein_env *env, void *arg),
			      void *arg)
{
	struct alloc_sweep s = {0};
	int n, rc;

	for (n = 0; n < 10000; n++) {
		s = (struct alloc_sweep){.left = n};
		env->alloc_arg = &s;
		env->alloc_fails = alloc_sweep_fails;
		rc = attempt(env, arg);
		env->alloc_fails = NULL;
		assert_int_equal(rc, s.hit ? -ENOMEM : 0);
		if (!s.hit)
			return n;
	}
	fail_msg("the operation never runs out of allocations");
	return -1;
}

#endif
