/* SPDX-License-Identifier: MIT */
/*
 * copy.h - copies whose order a reader of the destination may rely on.
 */
#ifndef SKEIN_DEV_SOFT_COPY_H
#define SKEIN_DEV_SOFT_COPY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Copies in ascending order of the destination, without a last store apart:
 * a part of a longer operation. */
void soft_copy_body(void *dst, const void *src, size_t len);

/* The last up to 8 bytes, up to an aligned end: one store where they are one
 * aligned power of two. */
void soft_copy_tail(void *dst, const void *src, size_t len);

/* How many of len bytes at dst are the tail: the last aligned 8 bytes, or what
 * stands behind them. */
static inline size_t soft_copy_tail_len(uintptr_t dst, size_t len)
{
	size_t over = (dst + len) & 7;

	if (over == 0)
		over = 8;
	return len < over ? len : over;
}

/* A whole operation from one piece: ascending, the tail by a release. */
void soft_copy_all(void *dst, const void *src, size_t len);

/* Copies a long operation past the caches. Its bytes become visible in any
 * order; the tail is stored last, by a release. */
void soft_copy_stream(void *dst, const void *src, size_t len);

/* As soft_copy_all(), with the aligned word first: flags, heads, canaries; by far the
 * most. */
static inline void soft_copy(void *dst, const void *src, size_t len)
{
	uint64_t v;

	if (len != 8 || (uintptr_t)dst & 7) {
		soft_copy_all(dst, src, len);
		return;
	}
	memcpy(&v, src, 8);
	/* release: a thread that acquires this word also sees what earlier
	 * operations of this QP wrote */
	atomic_store_explicit((_Atomic uint64_t *)dst, v, memory_order_release);
}

#endif
