/* SPDX-License-Identifier: MIT */
/*
 * state.h - what this library knows in a process.
 *
 * An interposer has no context to keep its state in: malloc() and
 * ibv_get_device_list() bring none. So there is one struct, in one file
 * (state.c), and nothing else that is mutable.
 *
 * Thread rule: `window` and `shm` have locks of their own; `lock` protects
 * `opens`; any thread fills `real`, all with the same values.
 */
#ifndef SKEIN_BIND_VERBS_STATE_H
#define SKEIN_BIND_VERBS_STATE_H

#include "bind/verbs/real.h"
#include "bind/verbs/shm.h"
#include "bind/verbs/window.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct dev;
struct skein_env;

/* One ibv_open_device() of ours. */
struct vb_open {
	struct vb_open *next;
	struct skein_env *env;
	struct dev *dev;
};

/* The functions behind those of numbers.c. */
struct vb_numbers {
	int (*close)(int fd);
	int (*dup2)(int fd, int to);
	int (*dup3)(int fd, int to, int flags);
	int (*close_range)(unsigned first, unsigned last, int flags);
	void (*closefrom)(int first);
	long (*syscall)(long number, long a, long b, long c, long d, long e,
			long f);
};

struct vb_state {
	struct window window; /* first: free() reads it each time */
	struct vb_shm shm;
	/* From SKEIN_VERBS_BACK: which kinds of memory come from the window. */
	bool back_heap, back_map, back_shm;
	bool infiniband; /* link.h */
	pthread_mutex_t lock;
	struct vb_open *opens;
	struct ibv_device device;      /* what stock programs are shown */
	_Atomic(void *) library;       /* libibverbs, or NULL */
	_Atomic(void *) dlsym, dlvsym; /* the C library's: lookup.c */
	_Atomic(void *) real[VB_REAL_COUNT];
	struct vb_numbers next;
};

extern struct vb_state vb;

/* Does the object belong to our device? Every object of one of our contexts
 * points to our device. */
static inline bool vb_ours(const struct ibv_context *ctx)
{
	return ctx->device == &vb.device;
}

/* The device behind one of our contexts. Never NULL while it is open. */
struct dev *vb_dev(struct ibv_context *ctx);

/* In a forked child: the parent's descriptors are the program's to close. */
void vb_numbers_fork(void);

/* Sets errno to -rc and returns it as libibverbs does: a positive errno. */
int vb_errno(int rc);

#endif
