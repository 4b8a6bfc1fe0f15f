/* SPDX-License-Identifier: MIT */
/*
 * alloc.h - where the store's memory comes from: tests put one here that fails
 * on demand.
 */
#ifndef KV_STORE_ALLOC_H
#define KV_STORE_ALLOC_H

#include <stddef.h>

struct kv_alloc {
	/* len bytes, not zeroed, aligned to align (a power of two), or NULL */
	void *(*get)(void *arg, size_t align, size_t len);
	void (*put)(void *arg, void *p);
	void *arg;
};

/* malloc and free. */
extern const struct kv_alloc kv_alloc_libc;

#endif
