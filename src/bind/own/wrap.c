/* SPDX-License-Identifier: MIT */
/*
 * wrap.c - every function by which code of a preloaded library opens or closes
 * a descriptor. The linker leads this library's own calls here (--wrap, of
 * meson.build), those of the device too: no caller knows of it. The program's
 * calls do not come here.
 */
#include "bind/own/own.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* The call NAME of this library comes to wrap_NAME(); real_NAME() is the one
 * that it meant. */
#define WRAP(result, name, ...)                                   \
	result real_##name(__VA_ARGS__) __asm__("__real_" #name); \
	result wrap_##name(__VA_ARGS__) __asm__("__wrap_" #name)  \
		__attribute__((visibility("hidden"), used));      \
	result wrap_##name(__VA_ARGS__)

#define OPENS(name, params, args)                  \
	WRAP(int, name, params)                    \
	{                                          \
		return own_keep(real_##name args); \
	}
#define P(...) __VA_ARGS__

OPENS(socket, P(int domain, int type, int protocol), (domain, type, protocol))
OPENS(accept4, P(int fd, struct sockaddr *addr, socklen_t *len, int flags),
      (fd, addr, len, flags))
OPENS(eventfd, P(unsigned count, int flags), (count, flags))
OPENS(epoll_create1, P(int flags), (flags))
OPENS(timerfd_create, P(int clock, int flags), (clock, flags))
OPENS(memfd_create, P(const char *name, unsigned flags), (name, flags))
OPENS(open, P(const char *path, int flags, mode_t mode), (path, flags, mode))
OPENS(mkostemp, P(char *path, int flags), (path, flags))
OPENS(mkostemp64, P(char *path, int flags), (path, flags))
OPENS(open64, P(const char *path, int flags, mode_t mode), (path, flags, mode))

#define FCNTL(name)                                                \
	WRAP(int, name, int fd, int cmd, long arg)                 \
	{                                                          \
		int rc = real_##name(fd, cmd, arg);                \
                                                                   \
		return cmd == F_DUPFD_CLOEXEC ? own_keep(rc) : rc; \
	}

FCNTL(fcntl)
FCNTL(fcntl64)

WRAP(int, pipe2, int fds[2], int flags)
{
	int rc = real_pipe2(fds, flags);

	if (rc)
		return rc;
	fds[0] = own_keep(fds[0]);
	fds[1] = own_keep(fds[1]);
	return 0;
}

/* Descriptors come along (SCM_RIGHTS). */
WRAP(ssize_t, recvmsg, int fd, struct msghdr *msg, int flags)
{
	ssize_t n = real_recvmsg(fd, msg, flags);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(msg);

	for (; c; c = CMSG_NXTHDR(msg, c)) {
		unsigned char *at = CMSG_DATA(c);
		size_t left = c->cmsg_len - CMSG_LEN(0);
		int one;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (; left >= sizeof(one); left -= sizeof(one)) {
			memcpy(&one, at, sizeof(one));
			one = own_keep(one);
			memcpy(at, &one, sizeof(one));
			at += sizeof(one);
		}
	}
	return n;
}

WRAP(long, syscall, long number, long a, long b, long c, long d, long e, long f)
{
	long rc = real_syscall(number, a, b, c, d, e, f);

	return number == SYS_pidfd_open ? own_keep((int)rc) : rc;
}

/* For reading: the C library's own open() would come by none of these. */
static FILE *open_file(const char *path)
{
	int fd = wrap_open(path, O_RDONLY | O_CLOEXEC, 0);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f && fd >= 0) {
		own_drop(fd);
		close(fd);
	}
	return f;
}

#define OPENS_FILE(name)                                       \
	WRAP(FILE *, name, const char *path, const char *mode) \
	{                                                      \
		return *mode == 'r' && !strchr(mode, '+')      \
			       ? open_file(path)               \
			       : real_##name(path, mode);      \
	}

OPENS_FILE(fopen)
OPENS_FILE(fopen64)

WRAP(int, fclose, FILE *f)
{
	own_drop(fileno(f));
	return real_fclose(f);
}

WRAP(int, close, int fd)
{
	own_drop(fd);
	return real_close(fd);
}
