/* SPDX-License-Identifier: MIT */
/*
 * memfile.c - see memfile.h. The kernel sends SIGXFSZ to the thread that asks:
 * it is blocked meanwhile, and taken back.
 */
#include "env/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

struct held {
	sigset_t old;
	bool pending; /* one that the program had blocked stays */
};

static void only_xfsz(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGXFSZ);
}

static void hold(struct held *h)
{
	sigset_t set;

	only_xfsz(&set);
	pthread_sigmask(SIG_BLOCK, &set, &h->old);
	h->pending = !sigpending(&set) && sigismember(&set, SIGXFSZ) > 0;
}

static void release(const struct held *h, int rc)
{
	const struct timespec now = {0};
	sigset_t set;

	only_xfsz(&set);
	if (rc == -EFBIG && !h->pending)
		while (sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &h->old, NULL);
}

int memfile_alloc(int fd, uint64_t off, uint64_t len)
{
	struct held h;
	int rc;

	hold(&h);
	do
		rc = fallocate(fd, 0, (off_t)off, (off_t)len) ? -errno : 0;
	while (rc == -EINTR);
	release(&h, rc);
	return rc;
}

int memfile_resize(int fd, uint64_t len)
{
	struct held h;
	int rc;

	hold(&h);
	do
		rc = ftruncate(fd, (off_t)len) ? -errno : 0;
	while (rc == -EINTR);
	release(&h, rc);
	return rc;
}
