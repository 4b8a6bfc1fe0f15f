/* SPDX-License-Identifier: MIT */
/*
 * alloc.c - malloc() and its family: a block that is large or aligned to pages
 * comes from the window, so that peers can map it when it is registered. All
 * other blocks come from libc.
 *
 * libc is reached by its own names (__libc_malloc), never by dlsym(): the
 * first malloc() of a process comes before any constructor, from the loader
 * itself, with its lock held. A small allocation costs two compares and a
 * jump, a small free() one load more.
 */
#include "bind/verbs/lookup.h"
#include "bind/verbs/state.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* Where libc itself would turn to mmap(). */
#define LARGE (128ul << 10)

#define likely(x) __builtin_expect(!!(x), 1)
#define EXPORT __attribute__((visibility("default")))

void *__libc_malloc(size_t len);
void *__libc_calloc(size_t n, size_t len);
void *__libc_realloc(void *p, size_t len);
void *__libc_memalign(size_t align, size_t len);
void __libc_free(void *p);

static void *take(size_t len, size_t align, bool zero)
{
	if (!vb.back_heap)
		return NULL;
	return window_alloc(&vb.window, len, align, WINDOW_HEAP, zero);
}

EXPORT void *malloc(size_t len)
{
	void *p;

	if (likely(len < LARGE))
		return __libc_malloc(len);
	p = take(len, 1, false);
	return p ? p : __libc_malloc(len);
}

EXPORT void free(void *p)
{
	int saved;

	if (likely(!window_has(&vb.window, p))) {
		__libc_free(p);
		return;
	}
	saved = errno; /* as libc keeps it */
	window_free(&vb.window, p);
	errno = saved;
}

EXPORT void *calloc(size_t n, size_t len)
{
	size_t all;
	void *p;

	if (__builtin_mul_overflow(n, len, &all) || likely(all < LARGE))
		return __libc_calloc(n, len);
	p = take(all, 1, true);
	return p ? p : __libc_calloc(n, len);
}

static void *move(void *old, size_t old_len, size_t len)
{
	void *p = malloc(len);

	if (!p)
		return NULL;
	memcpy(p, old, old_len < len ? old_len : len);
	free(old);
	return p;
}

EXPORT void *realloc(void *old, size_t len)
{
	size_t old_len;

	if (likely(!window_has(&vb.window, old))) {
		/* libc moves its own large blocks by mremap(), without a copy.
		 * So a block that grows stays with the allocator that it came
		 * from. */
		if (old || likely(len < LARGE))
			return __libc_realloc(old, len);
		return malloc(len);
	}
	if (!len) {
		free(old);
		return NULL;
	}
	old_len = window_usable(&vb.window, old);
	/* In place unless most of it would be left unused. */
	if (len <= old_len && (len >= old_len / 2 || old_len == WINDOW_UNIT))
		return old;
	return move(old, old_len, len);
}

static void *aligned(size_t align, size_t len)
{
	void *p = NULL;

	if (len && (align >= WINDOW_PAGE || len >= LARGE))
		p = take(len, align, false);
	return p ? p : __libc_memalign(align, len);
}

static bool power_of_two(size_t n)
{
	return n && !(n & (n - 1));
}

EXPORT void *memalign(size_t align, size_t len)
{
	if (!power_of_two(align))
		return __libc_memalign(align, len);
	return aligned(align, len);
}

EXPORT void *aligned_alloc(size_t align, size_t len)
{
	return memalign(align, len);
}

EXPORT int posix_memalign(void **out, size_t align, size_t len)
{
	int saved = errno;
	void *p;

	if (!power_of_two(align) || align % sizeof(void *))
		return EINVAL;
	p = aligned(align, len);
	errno = saved;
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

EXPORT void *valloc(size_t len)
{
	return aligned(WINDOW_PAGE, len);
}

EXPORT void *pvalloc(size_t len)
{
	if (len > SIZE_MAX - WINDOW_PAGE) {
		errno = ENOMEM;
		return NULL;
	}
	len = (len + WINDOW_PAGE - 1) & ~(WINDOW_PAGE - 1);
	return aligned(WINDOW_PAGE, len ? len : WINDOW_PAGE);
}

EXPORT size_t malloc_usable_size(void *p)
{
	size_t (*next)(void *);

	if (window_has(&vb.window, p))
		return window_usable(&vb.window, p);
	/* libc has no __libc name for it, so dlsym() finds it; nobody calls it
	 * before main() */
	*(void **)&next = lookup_dlsym(RTLD_NEXT, "malloc_usable_size");
	return next ? next(p) : 0;
}
