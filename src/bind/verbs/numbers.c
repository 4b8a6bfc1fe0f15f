/* SPDX-License-Identifier: MIT */
/*
 * numbers.c - the calls that end or replace a descriptor leave this library's
 * alone (own.h): for the program such a number is not open. Else the call goes to
 * what stands behind us: libc, or another library like this one.
 */
#include "bind/own/own.h"
#include "bind/verbs/state.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* A program's constructor may come first. */
__attribute__((constructor)) static void find(void)
{
	if (vb.next.close)
		return;
	vb.next.dup2 = (int (*)(int, int))next("dup2");
	vb.next.dup3 = (int (*)(int, int, int))next("dup3");
	vb.next.close_range =
		(int (*)(unsigned, unsigned, int))next("close_range");
	vb.next.closefrom = (void (*)(int))next("closefrom");
	vb.next.syscall = (long (*)(long, long, long, long, long, long,
				    long))next("syscall");
	vb.next.close = (int (*)(int))next("close");
}

void vb_numbers_fork(void)
{
	own_fork(-1);
}

static int refuse(int err)
{
	errno = err;
	return -1;
}

EXPORT int close(int fd)
{
	if (own_has(fd))
		return refuse(EBADF);
	find();
	return vb.next.close(fd);
}

EXPORT int dup2(int fd, int to)
{
	if (fd != to && own_has(to))
		return refuse(EBUSY);
	find();
	return vb.next.dup2(fd, to);
}

EXPORT int dup3(int fd, int to, int flags)
{
	if (fd != to && own_has(to))
		return refuse(EBUSY);
	find();
	return vb.next.dup3(fd, to, flags);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	find();
	if (!vb.next.close_range)
		return refuse(ENOSYS);
	/* CLOSE_RANGE_CLOEXEC (4) closes nothing now. */
	if ((flags & 4) || first > last)
		return vb.next.close_range(first, last, flags);
	return own_around(first, last, vb.next.close_range, flags);
}

/* The same by their numbers. Six arguments, as the C library takes them. */
EXPORT long by_number(long number, long a, long b, long c, long d, long e,
		      long f) __asm__("syscall");
EXPORT long by_number(long number, long a, long b, long c, long d, long e,
		      long f)
{
	if (number == SYS_close)
		return close((int)a);
	if (number == SYS_close_range)
		return close_range((unsigned)a, (unsigned)b, (int)c);
	if (number == SYS_dup3)
		return dup3((int)a, (int)b, (int)c);
#ifdef SYS_dup2
	if (number == SYS_dup2)
		return dup2((int)a, (int)b);
#endif
	find();
	return vb.next.syscall(number, a, b, c, d, e, f);
}

static int close_each(unsigned first, unsigned last, int unused)
{
	if (last == UINT_MAX && vb.next.closefrom)
		vb.next.closefrom((int)first);
	else if (!vb.next.close_range ||
		 vb.next.close_range(first, last, unused))
		for (; first <= last && first < (unsigned)sysconf(_SC_OPEN_MAX);
		     first++)
			vb.next.close((int)first);
	return 0;
}

EXPORT void closefrom(int first)
{
	find();
	own_around(first < 0 ? 0 : (unsigned)first, UINT_MAX, close_each, 0);
}
