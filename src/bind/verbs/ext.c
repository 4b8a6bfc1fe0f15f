/* SPDX-License-Identifier: MIT */
/*
 * ext.c - extensions: what newer versions of libibverbs export and our device
 * does not have. libibverbs would look into our object for a provider's
 * functions, which are not there. For an object of ours each of them answers
 * EOPNOTSUPP; for any other it goes to libibverbs.
 *
 * They are known by name alone: the headers that this is built with may be older
 * than the function, or newer. Each takes at most six arguments, whole words or
 * less, the object first; what is not used is passed on as it is.
 */
#include "bind/verbs/state.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

typedef uintptr_t (*any_fn)(void *object, uintptr_t b, uintptr_t c, uintptr_t d,
			    uintptr_t e, uintptr_t f);

/* The context of an object: itself, or the first field of a pd or qp. */
static struct ibv_context *context_of(void *object, bool is_context)
{
	return is_context ? object : *(struct ibv_context **)object;
}

/* As functions of libibverbs do: an int is the errno, a pointer NULL. */
static uintptr_t refuse(bool is_int)
{
	errno = EOPNOTSUPP;
	return is_int ? EOPNOTSUPP : 0;
}

#define REFUSED(fn, version, is_context, is_int)                               \
	EXPORT uintptr_t refused_##fn(void *object, uintptr_t b, uintptr_t c,  \
				      uintptr_t d, uintptr_t e,                \
				      uintptr_t f) __asm__(#fn);               \
	uintptr_t refused_##fn(void *object, uintptr_t b, uintptr_t c,         \
			       uintptr_t d, uintptr_t e, uintptr_t f)          \
	{                                                                      \
		if (!vb_ours(context_of(object, is_context)))                  \
			return ((any_fn)vb_real_get(VB_##fn))(object, b, c, d, \
							      e, f);           \
		return refuse(is_int);                                         \
	}

VB_REFUSED_LIST(REFUSED)
