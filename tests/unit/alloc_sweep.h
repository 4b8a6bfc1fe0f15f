/* SPDX-License-Identifier: MIT */
/*
 * alloc_sweep.h - fails the n-th allocation of an operation, for every n.
 *
 * attempt() does the whole operation once; when it succeeds it undoes it and
 * returns 0; when it fails it must leave nothing behind (run the test under
 * ASan) and return -ENOMEM.
 *
 * alloc_sweep() is for operations of which every allocation counts, made by
 * one thread at a time. Where several threads allocate, or a failure may be
 * made good, a test walks with alloc_sweep_begin() and alloc_sweep_end().
 */
#ifndef SKEIN_TESTS_ALLOC_SWEEP_H
#define SKEIN_TESTS_ALLOC_SWEEP_H

#include <errno.h>
#include <stdatomic.h>

#include "env/env.h"
#include "unit/cm.h"

#define ALLOC_SWEEP_MAX 10000

struct alloc_sweep {
	atomic_int left; /* allocations that succeed before one fails */
	atomic_bool hit;
};

static inline bool alloc_sweep_fails(void *arg)
{
	struct alloc_sweep *s = arg;

	if (atomic_fetch_sub(&s->left, 1) != 0)
		return false;
	atomic_store(&s->hit, true);
	return true;
}

/* Hung into env once, before its threads start; fails nothing yet. */
static inline void alloc_sweep_init(struct alloc_sweep *s,
				    struct skein_env *env)
{
	atomic_init(&s->left, -1);
	atomic_init(&s->hit, false);
	env->alloc_arg = s;
	env->alloc_fails = alloc_sweep_fails;
}

/* From here on allocation n, counted from 0, fails; by any thread. */
static inline void alloc_sweep_begin(struct alloc_sweep *s, int n)
{
	atomic_store(&s->hit, false);
	atomic_store(&s->left, n);
}

/* None fails any more. Did one? */
static inline bool alloc_sweep_end(struct alloc_sweep *s)
{
	atomic_store(&s->left, -1);
	return atomic_load(&s->hit);
}

/* Returns how many allocations the operation makes. */
static inline int alloc_sweep(struct skein_env *env,
			      int (*attempt)(struct skein_env *env, void *arg),
			      void *arg)
{
	struct alloc_sweep s;
	int n, rc;
	bool hit;

	alloc_sweep_init(&s, env);
	for (n = 0; n < ALLOC_SWEEP_MAX; n++) {
		alloc_sweep_begin(&s, n);
		rc = attempt(env, arg);
		hit = alloc_sweep_end(&s);
		assert_int_equal(rc, hit ? -ENOMEM : 0);
		if (!hit)
			break;
	}
	env->alloc_fails = NULL;
	if (n == ALLOC_SWEEP_MAX)
		fail_msg("the operation never runs out of allocations");
	return n;
}

#endif
