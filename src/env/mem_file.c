/* SPDX-License-Identifier: MIT */
/*
 * mem_file.c - see mem_file.h. The kernel sends SIGXFSZ to the thread that asks:
 * it is blocked meanwhile, and taken back.
 */
#include "env/mem_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static void only_xfsz(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGXFSZ);
}

/* Is one pending already, which the program had blocked? It stays. */
static bool hold(sigset_t *old)
{
	sigset_t set;

	only_xfsz(&set);
	pthread_sigmask(SIG_BLOCK, &set, old);
	return !sigpending(&set) && sigismember(&set, SIGXFSZ) > 0;
}

static void release(const sigset_t *old, bool pending, int rc)
{
	const struct timespec now = {0};
	sigset_t set;

	only_xfsz(&set);
	if (rc == -EFBIG && !pending)
		while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, old, NULL);
}

int mem_file_alloc(int fd, uint64_t off, uint64_t len)
{
	sigset_t old;
	bool pending = hold(&old);
	int rc;

	do
		rc = fallocate(fd, 0, (off_t)off, (off_t)len) ? -errno : 0;
	while (rc == -EINTR);
	release(&old, pending, rc);
	return rc;
}

int mem_file_resize(int fd, uint64_t len)
{
	sigset_t old;
	bool pending = hold(&old);
	int rc;

	do
		rc = ftruncate(fd, (off_t)len) ? -errno : 0;
	while (rc == -EINTR);
	release(&old, pending, rc);
	return rc;
}
