/* SPDX-License-Identifier: MIT */
/*
 * reach.c - see reach.h. The kernel is asked by calls that do nothing else:
 * rt_sigprocmask() with no valid `how` has read its set, rt_sigpending() writes as
 * many bytes as it is told. A page that was found is remembered: a program uses
 * the same buffers again. One that it unmaps later is still taken for good.
 */
#include "bind/socket/reach.h"

#include "bind/socket/state.h"

#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGE 4096u
#define MASK_LEN 8u /* the kernel's set of signals */

static bool ask(uintptr_t at, bool writes)
{
	const real_syscall_t call = REAL(syscall);
	int err = errno;
	bool reached;

	errno = 0;
	if (writes)
		call(SYS_rt_sigpending, (long)at, 1, 0, 0, 0, 0);
	else
		call(SYS_rt_sigprocmask, -1, (long)(at & ~7ul), 0, MASK_LEN, 0,
		     0);
	reached = errno != EFAULT;
	errno = err;
	return reached;
}

static bool page_reached(uintptr_t at, bool writes)
{
	uint64_t page = at / PAGE + 1; /* an empty row knows none */
	_Atomic uint64_t *row = &st.reached[page % REACHED];
	uint64_t known = atomic_load_explicit(row, memory_order_relaxed);

	if (known >> 1 == page && (!writes || known & 1))
		return true;
	if (at < PAGE || !ask(at, writes)) /* NULL is no set to the kernel */
		return false;
	atomic_store_explicit(row, page << 1 | writes, memory_order_relaxed);
	return true;
}

static size_t reach(uintptr_t at, size_t len, bool writes)
{
	size_t got = 0, step;

	for (; got < len; got += step) {
		step = PAGE - (at + got) % PAGE;
		if (!page_reached(at + got, writes))
			return got;
		step = step < len - got ? step : len - got;
	}
	return got;
}

size_t reach_read(const void *p, size_t len)
{
	return reach((uintptr_t)p, len, false);
}

size_t reach_write(void *p, size_t len)
{
	return reach((uintptr_t)p, len, true);
}

static bool all(size_t got, size_t len)
{
	if (got < len)
		errno = EFAULT;
	return got == len;
}

bool reach_reads(const void *p, size_t len)
{
	return all(reach_read(p, len), len);
}

bool reach_writes(void *p, size_t len)
{
	return all(reach_write(p, len), len);
}

bool reach_iov(const struct iovec *iov, int n)
{
	if (n >= 0 && n <= IOV_MAX)
		return reach_reads(iov, (size_t)n * sizeof(*iov));
	errno = EINVAL;
	return false;
}
