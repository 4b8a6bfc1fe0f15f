/* SPDX-License-Identifier: MIT */
/* own.c - see own.h. */
#include "bind/own/own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define OWN_MAX 65536u
/* No higher than this begins: the kernel's table reaches up to the highest
 * number, and fork() copies it. Below select()'s 1024: programs poll some. */
#define FROM_MAX 768

/* The C library's other names of fcntl() and close(). A preloaded library stands
 * in front of the usual ones and of syscall(), and its own calls of them, under
 * a lock maybe, must not come back to it. */
int libc_fcntl(int fd, int cmd, ...) __asm__("__fcntl");
int libc_close(int fd) __asm__("__close");

static struct {
	_Atomic uint64_t words[OWN_MAX / 64]; /* a bit for each number */
	atomic_int from;		      /* 0: not known yet */
} own;

/* Low enough for the limit, high enough to be in nobody's way. Asked once: a
 * program may lower its limit later, or forbid the call. */
static int from(void)
{
	int n = atomic_load_explicit(&own.from, memory_order_relaxed);
	struct rlimit lim;

	if (n)
		return n;
	n = FROM_MAX;
	if (!getrlimit(RLIMIT_NOFILE, &lim) && lim.rlim_cur / 4 * 3 < FROM_MAX)
		n = (int)(lim.rlim_cur / 4 * 3);
	n = n ? n : 1;
	atomic_store_explicit(&own.from, n, memory_order_relaxed);
	return n;
}

static uint64_t bit(int fd)
{
	return 1ull << (fd % 64);
}

void own_init(void)
{
	int err = errno;

	close(eventfd(0, EFD_CLOEXEC)); /* wrap.c moves it up */
	errno = err;
}

int own_keep(int fd)
{
	int err = errno, high;

	if (fd < 0)
		return fd;
	if (fd < from()) {
		high = libc_fcntl(fd, F_DUPFD_CLOEXEC, from());
		if (high >= 0) {
			libc_close(fd);
			fd = high;
		}
	}
	if ((unsigned)fd < OWN_MAX)
		atomic_fetch_or(&own.words[fd / 64], bit(fd));
	errno = err;
	return fd;
}

void own_drop(int fd)
{
	if ((unsigned)fd < OWN_MAX)
		atomic_fetch_and(&own.words[fd / 64], ~bit(fd));
}

bool own_has(int fd)
{
	return (unsigned)fd < OWN_MAX &&
	       atomic_load_explicit(&own.words[fd / 64], memory_order_relaxed) &
		       bit(fd);
}

int own_next(unsigned at)
{
	uint64_t word;
	unsigned i;

	for (i = at / 64; at < OWN_MAX && i < OWN_MAX / 64; i++) {
		word = atomic_load_explicit(&own.words[i],
					    memory_order_relaxed);
		if (i == at / 64)
			word &= ~0ull << (at % 64);
		if (word)
			return (int)(i * 64) + __builtin_ctzll(word);
	}
	return -1;
}

void own_fork(int but)
{
	int fd;

	for (fd = own_next(0); fd >= 0; fd = own_next((unsigned)fd + 1))
		if (fd != but)
			own_drop(fd);
}

void own_close(int but)
{
	int fd;

	for (fd = own_next(0); fd >= 0; fd = own_next((unsigned)fd + 1)) {
		if (fd == but)
			continue;
		own_drop(fd);
		libc_close(fd);
	}
}

int own_around(unsigned first, unsigned last,
	       int (*real)(unsigned first, unsigned last, int arg), int arg)
{
	unsigned at = first;
	int fd, rc = 0;

	while ((fd = own_next(at)) >= 0 && (unsigned)fd <= last) {
		if ((unsigned)fd > at && real(at, (unsigned)fd - 1, arg))
			rc = -1;
		if ((unsigned)fd == last)
			return rc;
		at = (unsigned)fd + 1;
	}
	return real(at, last, arg) ? -1 : rc;
}
