/* SPDX-License-Identifier: MIT */
/*
 * window.h - the memory that the interposer hands out instead of libc's: one
 * reserved range of addresses, backed by one sealed memfd, byte for byte.
 *
 * An address's offset in the file is its distance from the window's start, so
 * nothing has to be looked up to register it, and free() tells its own from
 * libc's by one compare. Space is given out in units of 64 KiB; the pages
 * behind it come when they are touched, or when they are registered.
 *
 * Invariants: a free unit is mapped, shared, readable and writable, or above
 * `top`; a unit that is free and not dirty reads as zero. The file never
 * shrinks; it is as large as the window.
 *
 * Thread rule: all functions but window_fork_*() may be called by any thread;
 * none allocates. docs/design/verbs.md.
 */
#ifndef SKEIN_BIND_VERBS_WINDOW_H
#define SKEIN_BIND_VERBS_WINDOW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WINDOW_UNIT 65536ul
#define WINDOW_PAGE 4096ul
#define WINDOW_SPAN_MAX (1ul << 38)
#define WINDOW_SPAN_MIN (1ul << 30)
#define WINDOW_ALIGN_MAX (1ul << 30)
/* How much freed memory is kept for the next caller: no program notices so
 * little. */
#define WINDOW_DIRTY_MAX (64ul << 20)

enum window_kind {
	WINDOW_FREE,  /* reads as zero */
	WINDOW_DIRTY, /* free, with an old owner's bytes */
	WINDOW_HEAP,  /* malloc() and its family */
	WINDOW_MAP,   /* mmap(): may be unmapped page by page */
	WINDOW_LOST,  /* could not be restored: never used again */
};

struct window_unit {
	uint32_t run;  /* first unit of a HEAP allocation: its units */
	uint16_t live; /* MAP: one bit a page */
	uint8_t kind;  /* enum window_kind */
};

struct window {
	/* Zero until the window is there, then constant. */
	_Atomic uintptr_t base;
	size_t span;
	pthread_mutex_t lock;
	bool off; /* could not be made, or is not wanted */
	int fd;
	dev_t dev; /* of the file: the number of a closed descriptor may come */
	ino_t ino; /* to mean another file */
	size_t top;   /* bytes mapped */
	size_t dirty; /* bytes */
	size_t used;  /* units */
	struct window_unit *units;
	/* fork(): the child closes it when it has its copy */
	int pipe[2];
};

#define WINDOW_INIT                                                    \
	{                                                              \
		.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .pipe = { \
			-1,                                            \
			-1                                             \
		}                                                      \
	}

static inline bool window_has(const struct window *w, const void *p)
{
	/* acquire: pairs with the release that ends window_make(); span is
	 * there when base is */
	uintptr_t base = atomic_load_explicit(&w->base, memory_order_acquire);

	return base && (uintptr_t)p - base < w->span;
}

/* Memory of len bytes (not 0), aligned to align (a power of two, at least a
 * unit is given), zeroed when asked for: or NULL, when the caller must get it
 * elsewhere. Makes the window at the first call. */
void *window_alloc(struct window *w, size_t len, size_t align,
		   enum window_kind kind, bool zero);
/* HEAP only. A pointer that was never given out ends the process, as libc's
 * free() does. */
void window_free(struct window *w, void *p);
size_t window_usable(struct window *w, const void *p);
/* MAP only: whole pages. */
void window_unmap(struct window *w, void *addr, size_t len);
/* Whole pages of the window: they read as zero again. 0 or a negative errno. */
int window_clean(struct window *w, void *addr, size_t len);
/* The file behind addr..addr+len, all of it backed by pages from now on. -ENOENT
 * when that is not (or no longer) the window's own mapping, -ENOMEM. */
int window_file(struct window *w, const void *addr, size_t len, int *fd,
		uint64_t *off);

/*
 * fork(): the window is shared memory, but a child must have a copy of it. The
 * child makes a file of its own, fills it, and maps it in place of the parent's
 * file. The parent waits until that is done, so the copy shows the moment of
 * the fork. The thread that forks calls these in this order.
 */
void window_fork_prepare(struct window *w);
void window_fork_parent(struct window *w);
void window_fork_child(struct window *w);

#endif
