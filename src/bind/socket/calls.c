/* SPDX-License-Identifier: MIT */
/*
 * calls.c - the functions that programs call, by their own names: what is no
 * socket of ours, or on TCP, goes to the C library; what is on a stream, to
 * sock.c. Calls that are not carried are in refuse.c.
 */
#include "bind/own/own.h"
#include "bind/socket/export.h"
#include "bind/socket/reach.h"
#include "bind/socket/set.h"
#include "bind/socket/sock.h"
#include "bind/socket/wait.h"
#include "env/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- bytes --------------------------------------------------------------- */

/* The call by TCP, or by a stream; a socket may change between the looks. Bytes:
 * where those by TCP are counted. */
#define CARRY(s, bytes, by_tcp, by_stream)                  \
	do {                                                \
		ssize_t carried;                            \
                                                            \
		if (sock_begin(s))                          \
			return sock_done(s, by_tcp, bytes); \
		carried = by_stream;                        \
		if (carried != SOCK_RETRY)                  \
			return carried;                     \
	} while (1)

/* Not what the program reads once more, or what it had written. */
static _Atomic uint64_t *rx_bytes(const struct sock *s, int flags)
{
	return flags & (MSG_PEEK | MSG_ERRQUEUE) ? NULL : &sock_row(s)->rx_tcp;
}

static _Atomic uint64_t *tx_bytes(const struct sock *s)
{
	return &sock_row(s)->tx_tcp;
}

EXPORT(ssize_t, read, int fd, void *buf, size_t len)
{
	struct iovec iov = {buf, len};
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(read)(fd, buf, len);
	CARRY(s, rx_bytes(s, 0), REAL(read)(fd, buf, len),
	      sock_recv(fd, s, &iov, 1, 0, NULL));
}

EXPORT(ssize_t, write, int fd, const void *buf, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(write)(fd, buf, len);
	CARRY(s, tx_bytes(s), REAL(write)(fd, buf, len),
	      sock_send(fd, s, &iov, 1, 0));
}

EXPORT(ssize_t, readv, int fd, const struct iovec *iov, int n)
{
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(readv)(fd, iov, n);
	CARRY(s, rx_bytes(s, 0), REAL(readv)(fd, iov, n),
	      sock_recv(fd, s, iov, n, 0, NULL));
}

EXPORT(ssize_t, writev, int fd, const struct iovec *iov, int n)
{
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(writev)(fd, iov, n);
	CARRY(s, tx_bytes(s), REAL(writev)(fd, iov, n),
	      sock_send(fd, s, iov, n, 0));
}

EXPORT(ssize_t, recv, int fd, void *buf, size_t len, int flags)
{
	struct iovec iov = {buf, len};
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(recv)(fd, buf, len, flags);
	CARRY(s, rx_bytes(s, flags), REAL(recv)(fd, buf, len, flags),
	      sock_recv(fd, s, &iov, 1, flags, NULL));
}

EXPORT(ssize_t, send, int fd, const void *buf, size_t len, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(send)(fd, buf, len, flags);
	CARRY(s, tx_bytes(s), REAL(send)(fd, buf, len, flags),
	      sock_send(fd, s, &iov, 1, flags));
}

EXPORT(ssize_t, recvfrom, int fd, void *buf, size_t len, int flags,
       struct sockaddr *addr, socklen_t *addr_len)
{
	struct iovec iov = {buf, len};
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(recvfrom)(fd, buf, len, flags, addr, addr_len);
	/* TCP gives no address. */
	if (addr && addr_len) {
		if (!reach_writes(addr_len, sizeof(*addr_len)))
			return -1;
		*addr_len = 0;
	}
	CARRY(s, rx_bytes(s, flags),
	      REAL(recvfrom)(fd, buf, len, flags, addr, addr_len),
	      sock_recv(fd, s, &iov, 1, flags, NULL));
}

EXPORT(ssize_t, sendto, int fd, const void *buf, size_t len, int flags,
       const struct sockaddr *addr, socklen_t addr_len)
{
	struct iovec iov = {(void *)(uintptr_t)buf, len};
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(sendto)(fd, buf, len, flags, addr, addr_len);
	CARRY(s, tx_bytes(s), REAL(sendto)(fd, buf, len, flags, addr, addr_len),
	      sock_send(fd, s, &iov, 1, flags));
}

/* What TCP_INQ says travels as control data. */
static void tell_inq(struct msghdr *msg, int inq)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);

	if (!c || msg->msg_controllen < CMSG_LEN(sizeof(inq))) {
		msg->msg_controllen = 0;
		msg->msg_flags |= MSG_CTRUNC;
		return;
	}
	c->cmsg_level = SOL_TCP;
	c->cmsg_type = TCP_CM_INQ;
	c->cmsg_len = CMSG_LEN(sizeof(inq));
	memcpy(CMSG_DATA(c), &inq, sizeof(inq));
	msg->msg_controllen = CMSG_SPACE(sizeof(inq));
}

static ssize_t recv_by_stream(int fd, struct sock *s, struct msghdr *msg,
			      int flags)
{
	int inq = -1;
	ssize_t n;

	if (!reach_reads(msg, sizeof(*msg)))
		return -1;
	if (msg->msg_iovlen > IOV_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	/* Nothing that we write is ever reported there. */
	if (flags & MSG_ERRQUEUE)
		return REAL(recvmsg)(fd, msg, flags);
	n = sock_recv(fd, s, msg->msg_iov, (int)msg->msg_iovlen, flags, &inq);
	if (n >= 0) {
		msg->msg_namelen = 0;
		msg->msg_flags = 0;
		if (inq >= 0)
			tell_inq(msg, inq);
		else
			msg->msg_controllen = 0;
	}
	return n;
}

EXPORT(ssize_t, recvmsg, int fd, struct msghdr *msg, int flags)
{
	struct sock *s = sock_at(fd);

	if (!s)
		return REAL(recvmsg)(fd, msg, flags);
	CARRY(s, rx_bytes(s, flags), REAL(recvmsg)(fd, msg, flags),
	      recv_by_stream(fd, s, msg, flags));
}

/* Descriptors that travel: the process that takes them has no stream. */
static int rights(const struct msghdr *msg)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(msg); c;
	     c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)msg, c)) {
		const int *fds = (const void *)CMSG_DATA(c);
		size_t i, n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
		    c->cmsg_len < CMSG_LEN(0))
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++)
			if (sock_keep(fds[i], "passed by SCM_RIGHTS"))
				return -1;
	}
	return 0;
}

static ssize_t send_by_stream(int fd, struct sock *s, const struct msghdr *msg,
			      int flags)
{
	if (!reach_reads(msg, sizeof(*msg)))
		return -1;
	if (msg->msg_iovlen > IOV_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	if (msg->msg_controllen)
		return sock_refuse(fd, "sendmsg with control data")
			       ? -1
			       : SOCK_RETRY;
	return sock_send(fd, s, msg->msg_iov, (int)msg->msg_iovlen, flags);
}

EXPORT(ssize_t, sendmsg, int fd, const struct msghdr *msg, int flags)
{
	struct sock *s = sock_at(fd);

	if (!s) {
		if (atomic_load(&st.on) && reach_reads(msg, sizeof(*msg)) &&
		    reach_reads(msg->msg_control, msg->msg_controllen) &&
		    rights(msg))
			return -1;
		return REAL(sendmsg)(fd, msg, flags);
	}
	if (flags & MSG_ZEROCOPY && sock_keep(fd, "MSG_ZEROCOPY"))
		return -1;
	CARRY(s, tx_bytes(s), REAL(sendmsg)(fd, msg, flags),
	      send_by_stream(fd, s, msg, flags));
}

/* glibc's fortified names: the size of the buffer is checked first. */
EXPORT(ssize_t, __read_chk, int fd, void *buf, size_t len, size_t room)
{
	if (len > room)
		return REAL(__read_chk)(fd, buf, len, room);
	return call_read(fd, buf, len);
}

EXPORT(ssize_t, __recv_chk, int fd, void *buf, size_t len, size_t room,
       int flags)
{
	if (len > room)
		return REAL(__recv_chk)(fd, buf, len, room, flags);
	return call_recv(fd, buf, len, flags);
}

EXPORT(ssize_t, __recvfrom_chk, int fd, void *buf, size_t len, size_t room,
       int flags, struct sockaddr *addr, socklen_t *addr_len)
{
	if (len > room)
		return REAL(__recvfrom_chk)(fd, buf, len, room, flags, addr,
					    addr_len);
	return call_recvfrom(fd, buf, len, flags, addr, addr_len);
}

/* Through memory of ours: one copy more than the kernel's. At sendfile() no thread is
 * cancelled. */
static ssize_t file_by_stream(int fd, struct sock *s, int in, off64_t *off,
			      size_t n)
{
	ENV_HOLD_CANCEL();
	uint8_t buf[32768];
	size_t done = 0;
	ssize_t rc = 0;
	off64_t at;

	if (off && !reach_reads(off, sizeof(*off)))
		return -1;
	at = off ? *off : lseek64(in, 0, SEEK_CUR);

	while (done < n && at >= 0) {
		struct iovec iov = {buf, n - done};

		if (iov.iov_len > sizeof(buf))
			iov.iov_len = sizeof(buf);
		rc = pread64(in, buf, iov.iov_len, at);
		if (rc <= 0)
			break;
		iov.iov_len = (size_t)rc;
		rc = sock_send(fd, s, &iov, 1, 0);
		if (rc < 0)
			break;
		done += (size_t)rc;
		at += rc;
		if ((size_t)rc < iov.iov_len)
			break;
	}
	if (at < 0 || (!done && rc < 0)) {
		if (errno == ESPIPE)
			errno = EINVAL;
		return at < 0 ? -1 : rc;
	}
	if (off)
		*off = at;
	else
		lseek64(in, at, SEEK_SET);
	return (ssize_t)done;
}

EXPORT(ssize_t, sendfile64, int out, int in, off64_t *off, size_t n)
{
	struct sock *s = sock_at(out);

	if (sock_keep(in, "sendfile"))
		return -1;
	if (!s)
		return REAL(sendfile64)(out, in, off, n);
	CARRY(s, tx_bytes(s), REAL(sendfile64)(out, in, off, n),
	      file_by_stream(out, s, in, off, n));
}

/* The same where off_t has 64 bits. */
EXPORT(ssize_t, sendfile, int out, int in, off_t *off, size_t n)
{
	return call_sendfile64(out, in, off, n);
}

/* --- a socket's life ----------------------------------------------------- */

/* The first byte of this library, and the first one behind it: the linker's. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

/* Does code of this library call? Its own TCP sockets (soft's link) are never
 * tracked: a thread that uses them may hold st.lock. */
static bool is_own(const void *caller)
{
	return (const char *)caller >= __ehdr_start &&
	       (const char *)caller < _end;
}

EXPORT(int, connect, int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sock *s = sock_at(fd);
	bool ends = len >= sizeof(addr->sa_family) && reach_reads(addr, len) &&
		    addr->sa_family == AF_UNSPEC;
	int rc;

	if (s && ends)
		return sock_disconnect(fd, s, addr, len);
	rc = REAL(connect)(fd, addr, len);
	/* Of an inherited one nobody knows where it is: in a set, perhaps. */
	if (!rc && ends)
		sock_pin(fd, "it was inherited as another connection");
	if ((rc == 0 || errno == EINPROGRESS) && addr && len >= 2 &&
	    (addr->sa_family == AF_INET || addr->sa_family == AF_INET6) && !s &&
	    !is_own(__builtin_return_address(0)))
		sock_track(fd, false);
	return rc;
}

static int accepted(int fd, const void *caller)
{
	if (fd >= 0 && !is_own(caller))
		sock_track(fd, true);
	return fd;
}

EXPORT(int, accept, int fd, struct sockaddr *addr, socklen_t *len)
{
	return accepted(REAL(accept)(fd, addr, len),
			__builtin_return_address(0));
}

EXPORT(int, accept4, int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	return accepted(REAL(accept4)(fd, addr, len, flags),
			__builtin_return_address(0));
}

void calls_forget(int fd)
{
	int err = errno;

	if (sock_at(fd))
		sock_forget(fd);
	if (set_at(fd))
		set_forget(fd);
	errno = err;
}

EXPORT(int, close, int fd)
{
	/* For the program the number is not open. */
	if (own_has(fd)) {
		errno = EBADF;
		return -1;
	}
	calls_forget(fd);
	return REAL(close)(fd);
}

static void forget_range(unsigned first, unsigned last)
{
	unsigned fd;

	if (!atomic_load(&st.on))
		return;
	for (fd = first; fd <= last && fd < FD_MAX; fd++)
		calls_forget((int)fd);
}

static int close_some(unsigned first, unsigned last, int flags)
{
	return REAL(close_range)(first, last, flags);
}

EXPORT(int, close_range, unsigned first, unsigned last, int flags)
{
	/* CLOSE_RANGE_CLOEXEC (4) closes nothing now. */
	if ((flags & 4) || first > last)
		return REAL(close_range)(first, last, flags);
	forget_range(first, last);
	return own_around(first, last, close_some, flags);
}

static int close_each(unsigned first, unsigned last, int flags)
{
	/* An old kernel, or a sandbox, has no close_range(). */
	if (last == UINT_MAX)
		REAL(closefrom)((int)first);
	else if (REAL(close_range)(first, last, flags))
		for (; first <= last; first++)
			REAL(close)((int)first);
	return 0;
}

EXPORT(void, closefrom, int first)
{
	unsigned from = first < 0 ? 0 : (unsigned)first;

	forget_range(from, UINT_MAX);
	own_around(from, UINT_MAX, close_each, 0);
}

EXPORT(int, shutdown, int fd, int how)
{
	struct sock *s = sock_at(fd);
	int rc;

	if (!s)
		return REAL(shutdown)(fd, how);
	do {
		if (sock_begin(s)) {
			rc = REAL(shutdown)(fd, how);
			sock_end(s);
			return rc;
		}
		rc = sock_shutdown(fd, s, how);
	} while (rc == SOCK_RETRY);
	return rc;
}

/* A copy that is not carried: the socket is on TCP, and stays there. */
static int twice(int fd, const char *what)
{
	if (sock_keep(fd, what) || set_tie(fd, what))
		return -1;
	sock_pin(fd, what);
	return 0;
}

/* What dup() has made of fd; s is its socket. */
static int copied(struct sock *s, int fd, int copy, const char *what)
{
	int err = errno;

	if (!sock_copy_end(s, copy) && sock_keep(fd, what)) {
		err = errno;
		REAL(close)(copy);
		copy = -1;
	}
	errno = err;
	return copy;
}

EXPORT(int, dup, int fd)
{
	struct sock *s = sock_copy_begin(fd);

	if (s)
		return copied(s, fd, REAL(dup)(fd), "dup");
	return twice(fd, "dup") ? -1 : REAL(dup)(fd);
}

static bool is_open(int fd)
{
	int err = errno;
	bool open = REAL(fcntl)(fd, F_GETFD) >= 0;

	errno = err;
	return open;
}

/* The number `to` is to be a copy of fd. One of this library's cannot: its users
 * know it by its number. The kernel says the same of a number that another
 * thread is just opening. One that is open may be known to one of the C library's
 * streams. *s: as of sock_copy_begin(). */
static int becomes(int fd, int to, const char *what, struct sock **s)
{
	*s = NULL;
	if (fd == to || !is_open(fd))
		return 0;
	if (own_has(to)) {
		errno = EBUSY;
		return -1;
	}
	if (is_open(to)) {
		if (twice(fd, what))
			return -1;
		calls_forget(to);
		return 0;
	}
	calls_forget(to);
	*s = sock_copy_begin(fd);
	return *s ? 0 : twice(fd, what);
}

EXPORT(int, dup2, int fd, int to)
{
	struct sock *s;

	if (becomes(fd, to, "dup2", &s))
		return -1;
	to = REAL(dup2)(fd, to);
	return s ? copied(s, fd, to, "dup2") : to;
}

EXPORT(int, dup3, int fd, int to, int flags)
{
	struct sock *s = NULL;

	if (!(flags & ~O_CLOEXEC) && becomes(fd, to, "dup3", &s))
		return -1;
	to = REAL(dup3)(fd, to, flags);
	return s ? copied(s, fd, to, "dup3") : to;
}

/* Its flags or options are others now. */
static void changed(int fd)
{
	ENV_HOLD_CANCEL();
	struct sock *s = sock_at(fd);
	int err = errno;

	if (!s || atomic_load(&s->mode) != SOCK_ON)
		return;
	pthread_mutex_lock(&st.lock);
	sock_facts(s);
	pthread_mutex_unlock(&st.lock);
	errno = err;
}

static int control(real_fcntl_t real, int fd, int cmd, long arg)
{
	static const char copies[] = "fcntl(F_DUPFD)";
	bool copy = cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC;
	struct sock *s = copy ? sock_copy_begin(fd) : NULL;
	int rc;

	if (s)
		return copied(s, fd, real(fd, cmd, arg), copies);
	if (copy && twice(fd, copies))
		return -1;
	rc = real(fd, cmd, arg);
	if (cmd == F_SETFL)
		changed(fd);
	return rc;
}

bool calls_numbers(long number, long a, long b, long c, long *rc)
{
	if (number == SYS_close)
		*rc = call_close((int)a);
	else if (number == SYS_close_range)
		*rc = call_close_range((unsigned)a, (unsigned)b, (int)c);
	else if (number == SYS_dup)
		*rc = call_dup((int)a);
	else if (number == SYS_dup3)
		*rc = call_dup3((int)a, (int)b, (int)c);
	else if (number == SYS_fcntl)
		*rc = control(REAL(fcntl), (int)a, (int)b, c);
#ifdef SYS_dup2
	else if (number == SYS_dup2)
		*rc = call_dup2((int)a, (int)b);
#endif
	else if (number == SYS_connect)
		*rc = call_connect((int)a, (const struct sockaddr *)b,
				   (socklen_t)c);
	else
		return false;
	return true;
}

EXPORT(int, fcntl, int fd, int cmd, long arg)
{
	return control(REAL(fcntl), fd, cmd, arg);
}

EXPORT(int, fcntl64, int fd, int cmd, long arg)
{
	return control(REAL(fcntl64), fd, cmd, arg);
}

EXPORT(int, ioctl, int fd, unsigned long request, void *arg)
{
	ENV_HOLD_CANCEL();
	struct sock *s = sock_at(fd);
	bool on;
	int rc;

	if (s && request == FIONREAD) {
		pthread_mutex_lock(&st.lock);
		on = atomic_load(&s->mode) == SOCK_ON;
		rc = on && !reach_writes(arg, sizeof(int)) ? -1 : 0;
		if (on && !rc)
			*(int *)arg = sock_unread(s);
		pthread_mutex_unlock(&st.lock);
		if (on)
			return rc;
	}
	rc = REAL(ioctl)(fd, request, arg);
	if (request == FIONBIO)
		changed(fd);
	return rc;
}

EXPORT(int, setsockopt, int fd, int level, int name, const void *value,
       socklen_t len)
{
	enum {
		REPAIR = 19,
		ULP = 31
	};
	struct sock *s;
	int rc;

	/* Options that change what bytes mean, or bring them by other ways. */
	if (level == IPPROTO_TCP && (name == ULP || name == REPAIR) &&
	    sock_keep(fd, "a socket option"))
		return -1;
	rc = REAL(setsockopt)(fd, level, name, value, len);
	s = rc || level != SOL_SOCKET || name != SO_RCVLOWAT ? NULL
							     : sock_at(fd);
	if (s && sock_unfit(s) && sock_keep(fd, "SO_RCVLOWAT"))
		return -1;
	changed(fd);
	return rc;
}

EXPORT(int, getsockopt, int fd, int level, int name, void *value,
       socklen_t *len)
{
	struct sock *s = sock_at(fd);
	int rc = REAL(getsockopt)(fd, level, name, value, len);

	if (s && !rc && level == IPPROTO_TCP && name == TCP_INFO)
		sock_add_info(s, value, *len);
	return rc;
}

/* --- waiting ------------------------------------------------------------- */

EXPORT(int, epoll_ctl, int epfd, int op, int fd, struct epoll_event *ev)
{
	struct sock *s = sock_at(fd);

	if (!s) {
		if (set_at(fd) && set_tie(fd, "an epoll set inside another"))
			return -1;
		/* As connect(): a socket of this library's may be TCP's, and this
		 * thread may hold the lock. */
		if (op == EPOLL_CTL_ADD && !is_own(__builtin_return_address(0)))
			sock_pin(fd, "an epoll set had it before it was "
				     "connected");
		return REAL(epoll_ctl)(epfd, op, fd, ev);
	}
	return set_ctl(epfd, op, fd, s, ev);
}

#define NEVER INT64_MAX

/* What is left of a wait. */
static int64_t left_of(int64_t timeout_ns, uint64_t begun)
{
	int64_t left;

	if (timeout_ns == NEVER)
		return NEVER;
	left = timeout_ns - (int64_t)(state_now_ns() - begun);
	return left > 0 ? left : 0;
}

/* The kernel's wait, where the set has no sockets of ours; it may get some while
 * a thread sleeps there. */
#define BY_SET(epfd, events, max, timeout_ns, mask, by_kernel)                 \
	do {                                                                   \
		uint64_t begun;                                                \
		int n;                                                         \
                                                                               \
		if (max <= 0 || !atomic_load(&st.on))                          \
			return by_kernel;                                      \
		if (set_at(epfd))                                              \
			return set_wait(epfd, events, max, timeout_ns, mask);  \
		begun = state_now_ns();                                        \
		n = set_sift(epfd, events, max, by_kernel);                    \
		if (n != -EAGAIN)                                              \
			return n;                                              \
		return set_wait(epfd, events, max, left_of(timeout_ns, begun), \
				mask);                                         \
	} while (0)

static int64_t from_ms(int ms)
{
	return ms < 0 ? NEVER : ms * 1000000ll;
}

EXPORT(int, epoll_pwait, int epfd, struct epoll_event *events, int max,
       int timeout, const sigset_t *mask)
{
	BY_SET(epfd, events, max, from_ms(timeout), mask,
	       REAL(epoll_pwait)(epfd, events, max, timeout, mask));
}

EXPORT(int, epoll_wait, int epfd, struct epoll_event *events, int max,
       int timeout)
{
	BY_SET(epfd, events, max, from_ms(timeout), NULL,
	       REAL(epoll_wait)(epfd, events, max, timeout));
}

EXPORT(int, epoll_pwait2, int epfd, struct epoll_event *events, int max,
       const struct timespec *timeout, const sigset_t *mask)
{
	int64_t ns;

	if (!wait_time(timeout, &ns))
		return REAL(epoll_pwait2)(epfd, events, max, timeout, mask);
	BY_SET(epfd, events, max, ns, mask,
	       REAL(epoll_pwait2)(epfd, events, max, timeout, mask));
}
