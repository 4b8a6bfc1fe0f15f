/* SPDX-License-Identifier: MIT */
/*
 * refuse.c - calls that are not carried. On a connection that is on TCP they do
 * what they always did, and it stays there; on one that is on a stream they fail
 * with EOPNOTSUPP and a line that says so: wrong or missing bytes would be worse.
 */
#include "bind/socket/export.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

EXPORT(ssize_t, sendfile, int out, int in, off_t *off, size_t n)
{
	if (sock_keep(out, "sendfile"))
		return -1;
	return REAL(sendfile)(out, in, off, n);
}

EXPORT(ssize_t, sendfile64, int out, int in, off64_t *off, size_t n)
{
	if (sock_keep(out, "sendfile"))
		return -1;
	return REAL(sendfile64)(out, in, off, n);
}

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

/* Options that change what bytes mean, or bring them by other ways. */
EXPORT(int, setsockopt, int fd, int level, int name, const void *value,
       socklen_t len)
{
	enum {
		ULP = 31,
		REPAIR = 19,
		INQ = 36,
		ZEROCOPY = 60
	};

	if (((level == IPPROTO_TCP &&
	      (name == ULP || name == REPAIR || name == INQ)) ||
	     (level == SOL_SOCKET && name == ZEROCOPY)) &&
	    sock_keep(fd, "a socket option"))
		return -1;
	return REAL(setsockopt)(fd, level, name, value, len);
}

/* --- waiting that is the kernel's ---------------------------------------- */

static int keep_all(const struct pollfd *fds, nfds_t n)
{
	nfds_t i;

	if (!atomic_load(&st.on))
		return 0;
	for (i = 0; i < n; i++) {
		if (sock_keep(fds[i].fd, "poll"))
			return -1;
		if (set_at(fds[i].fd) && set_tie(fds[i].fd, "poll"))
			return -1;
	}
	return 0;
}

EXPORT(int, poll, struct pollfd *fds, nfds_t n, int timeout)
{
	return keep_all(fds, n) ? -1 : REAL(poll)(fds, n, timeout);
}

EXPORT(int, __poll_chk, struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	return keep_all(fds, n) ? -1 : REAL(__poll_chk)(fds, n, timeout, room);
}

EXPORT(int, ppoll, struct pollfd *fds, nfds_t n, const struct timespec *timeout,
       const sigset_t *mask)
{
	return keep_all(fds, n) ? -1 : REAL(ppoll)(fds, n, timeout, mask);
}

EXPORT(int, __ppoll_chk, struct pollfd *fds, nfds_t n,
       const struct timespec *timeout, const sigset_t *mask, size_t room)
{
	return keep_all(fds, n)
		       ? -1
		       : REAL(__ppoll_chk)(fds, n, timeout, mask, room);
}

static bool in_set(const fd_set *set, int fd)
{
	/* Programs allocate larger ones than FD_SETSIZE. */
	const unsigned long *words = (const void *)set;
	const int bits = 8 * (int)sizeof(*words);

	return set && words[fd / bits] >> (fd % bits) & 1;
}

static int keep_sets(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	int fd;

	if (!atomic_load(&st.on))
		return 0;
	for (fd = 0; fd < n && fd < FD_MAX; fd++) {
		struct sock *s = sock_at(fd);

		if (!s && !set_at(fd))
			continue;
		if (!in_set(r, fd) && !in_set(w, fd) && !in_set(e, fd))
			continue;
		if (sock_keep(fd, "select") || set_tie(fd, "select"))
			return -1;
	}
	return 0;
}

EXPORT(int, select, int n, fd_set *r, fd_set *w, fd_set *e,
       struct timeval *timeout)
{
	return keep_sets(n, r, w, e) ? -1 : REAL(select)(n, r, w, e, timeout);
}

EXPORT(int, pselect, int n, fd_set *r, fd_set *w, fd_set *e,
       const struct timespec *timeout, const sigset_t *mask)
{
	return keep_sets(n, r, w, e) ? -1
				     : REAL(pselect)(n, r, w, e, timeout, mask);
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
	case SYS_dup:
	case SYS_shutdown:
		return true;
	}
	return false;
}

EXPORT(long, syscall, long number, long a, long b, long c, long d, long e,
       long f)
{
	if (atomic_load(&st.on)) {
		/* An io_uring reads and writes unseen. */
		if (number == SYS_io_uring_setup)
			atomic_store(&st.no_more, true);
		if (number == SYS_close)
			return close((int)a);
		if (is_io(number) && sock_keep((int)a, "syscall()"))
			return -1;
	}
	return REAL(syscall)(number, a, b, c, d, e, f);
}
