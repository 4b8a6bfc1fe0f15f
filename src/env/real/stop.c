/* SPDX-License-Identifier: MIT */
/*
 * stop.c - env_stop on an eventfd that is written once and never read, so
 * it wakes every thread that watches it.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "env/stop.h"

int env_stop_init(struct env_stop *stop)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	stop->fd = fd;
	atomic_init(&stop->set, false);
	return 0;
}

void env_stop_fini(struct env_stop *stop)
{
	close(stop->fd);
}

void env_stop_set(struct env_stop *stop)
{
	uint64_t one = 1;
	int err = errno; /* the caller may be a signal handler */
	ssize_t n;

	atomic_store_explicit(&stop->set, true, memory_order_relaxed);
	/* EAGAIN: the eventfd is full, hence readable */
	do
		n = write(stop->fd, &one, sizeof(one));
	while (n < 0 && errno == EINTR);
	errno = err;
}
