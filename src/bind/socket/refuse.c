/* SPDX-License-Identifier: MIT */
/*
 * refuse.c - calls that are not carried. On a connection that is on TCP they do
 * what they always did, and it stays there; one that is on a stream goes back to
 * TCP first, or the call fails: wrong or missing bytes would be worse.
 */
#include "bind/socket/export.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

EXPORT(ssize_t, splice, int in, off64_t *in_off, int out, off64_t *out_off,
       size_t n, unsigned flags)
{
	if (sock_keep(in, "splice") || sock_keep(out, "splice"))
		return -1;
	return REAL(splice)(in, in_off, out, out_off, n, flags);
}

EXPORT(int, sendmmsg, int fd, struct mmsghdr *msgs, unsigned n, int flags)
{
	if (sock_keep(fd, "sendmmsg"))
		return -1;
	return REAL(sendmmsg)(fd, msgs, n, flags);
}

EXPORT(int, recvmmsg, int fd, struct mmsghdr *msgs, unsigned n, int flags,
       struct timespec *timeout)
{
	if (sock_keep(fd, "recvmmsg"))
		return -1;
	return REAL(recvmmsg)(fd, msgs, n, flags, timeout);
}

#define VECTOR(name)                                                  \
	EXPORT(ssize_t, name, int fd, const struct iovec *iov, int n, \
	       off_t off, int flags)                                  \
	{                                                             \
		if (sock_keep(fd, #name))                             \
			return -1;                                    \
		return REAL(name)(fd, iov, n, off, flags);            \
	}

VECTOR(preadv2)
VECTOR(pwritev2)
VECTOR(preadv64v2)
VECTOR(pwritev64v2)

/* The C library's streams read and write past any preload. */
EXPORT(FILE *, fdopen, int fd, const char *mode)
{
	if (sock_keep(fd, "fdopen"))
		return NULL;
	return REAL(fdopen)(fd, mode);
}

/* They close the number past us. */
static void stream_ends(FILE *file)
{
	int err = errno, fd = file ? fileno(file) : -1;

	errno = err;
	if (fd >= 0)
		calls_forget(fd);
}

EXPORT(int, fclose, FILE *file)
{
	stream_ends(file);
	return REAL(fclose)(file);
}

EXPORT(FILE *, freopen, const char *path, const char *mode, FILE *file)
{
	stream_ends(file);
	return REAL(freopen)(path, mode, file);
}

EXPORT(FILE *, freopen64, const char *path, const char *mode, FILE *file)
{
	stream_ends(file);
	return REAL(freopen64)(path, mode, file);
}

EXPORT(int, vdprintf, int fd, const char *fmt, va_list ap)
{
	if (sock_keep(fd, "dprintf"))
		return -1;
	return REAL(vdprintf)(fd, fmt, ap);
}

EXPORT(int, dprintf, int fd, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = call_vdprintf(fd, fmt, ap);
	va_end(ap);
	return n;
}

EXPORT(int, __vdprintf_chk, int fd, int flag, const char *fmt, va_list ap)
{
	if (sock_keep(fd, "dprintf"))
		return -1;
	return REAL(__vdprintf_chk)(fd, flag, fmt, ap);
}

EXPORT(int, __dprintf_chk, int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = call___vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return n;
}

/* --- the way around us --------------------------------------------------- */

/* Calls that move bytes of the descriptor that is their first argument. */
static bool is_io(long number)
{
	switch (number) {
	case SYS_read:
	case SYS_write:
	case SYS_readv:
	case SYS_writev:
	case SYS_recvfrom:
	case SYS_sendto:
	case SYS_recvmsg:
	case SYS_sendmsg:
	case SYS_recvmmsg:
	case SYS_sendmmsg:
	case SYS_preadv2:
	case SYS_pwritev2:
	case SYS_sendfile:
	case SYS_splice:
	case SYS_shutdown:
		return true;
	}
	return false;
}

EXPORT(long, syscall, long number, long a, long b, long c, long d, long e,
       long f)
{
	const long args[] = {a, b, c, d, e, f};
	long rc;

	if (atomic_load(&st.on)) {
		if (number == SYS_exit_group)
			state_end();
		/* An io_uring reads and writes unseen. */
		if (number == SYS_io_uring_setup)
			atomic_store(&st.no_more,
				     "the process has an io_uring");
		sandbox_syscall(number, args);
		if (calls_numbers(number, a, b, c, &rc) ||
		    exec_clones(number, args, &rc))
			return rc;
		if (is_io(number) && sock_keep((int)a, "syscall()"))
			return -1;
	}
	return REAL(syscall)(number, a, b, c, d, e, f);
}
