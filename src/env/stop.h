/* SPDX-License-Identifier: MIT */
/*
 * stop.h - a flag that a signal handler may raise at any time, and a descriptor
 * that wakes sleeping threads when it is raised. The flag knows nothing of the
 * threads that look at it, so raising it is safe whatever has become of them.
 *
 * Thread rule: between init and fini, any thread and any signal handler may
 * call env_stop_set() and env_stop_is_set().
 */
#ifndef SKEIN_ENV_STOP_H
#define SKEIN_ENV_STOP_H

#include <stdatomic.h>
#include <stdbool.h>

struct env_stop {
	atomic_bool set;
	int fd; /* readable when set */
};

/* 0 or a negative errno: out of descriptors. */
int env_stop_init(struct env_stop *stop);
void env_stop_fini(struct env_stop *stop);
void env_stop_set(struct env_stop *stop);

static inline bool env_stop_is_set(const struct env_stop *stop)
{
	/* Relaxed: the flag publishes nothing but itself. */
	return atomic_load_explicit(&stop->set, memory_order_relaxed);
}

#endif
