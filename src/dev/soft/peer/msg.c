/* SPDX-License-Identifier: MIT */
/*
 * msg.c - one datagram with descriptors, out and in. Everything received is
 * checked for its size here, and for its meaning by the caller.
 */
#include "dev/soft/peer/msg.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union cbuf {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * MSG_FDS)];
};

int msg_send(int fd, const struct msg *m, size_t len, const int *fds, int nfds)
{
	/* sendmsg() is not const */
	struct iovec iov = {.iov_base = (void *)(uintptr_t)m,
			    .iov_len = sizeof(*m) + len};
	union cbuf c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *cm;
	ssize_t n;

	if (nfds) {
		memset(&c, 0, sizeof(c));
		h.msg_control = c.bytes;
		h.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		cm = CMSG_FIRSTHDR(&h);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(cm), fds, sizeof(int) * (size_t)nfds);
	}
	do
		n = sendmsg(fd, &h, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void take_fds(struct msghdr *h, int *fds, int *nfds)
{
	struct cmsghdr *cm;
	int i, n;

	for (cm = CMSG_FIRSTHDR(h); cm; cm = CMSG_NXTHDR(h, cm)) {
		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (int)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (i = 0; i < n && *nfds < MSG_FDS; i++)
			memcpy(&fds[(*nfds)++],
			       CMSG_DATA(cm) + sizeof(int) * (size_t)i,
			       sizeof(int));
	}
}

/* One datagram of at most len bytes; its flags. */
static int take(int fd, void *buf, size_t len, int *flags, int *fds, int *nfds)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	union cbuf c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fds) {
		h.msg_control = c.bytes;
		h.msg_controllen = sizeof(c);
		*nfds = 0;
	}
	do
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC | *flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	if (fds)
		take_fds(&h, fds, nfds);
	*flags = h.msg_flags;
	return (int)n;
}

int msg_recv(int fd, struct msg_buf *b, int *fds, int *nfds)
{
	int n, flags = 0, err = 0;

	n = take(fd, b, sizeof(*b), &flags, fds, nfds);
	if (n < 0)
		return n;
	if (fds && flags & MSG_CTRUNC)
		err = -EMFILE;
	else if (n < (int)sizeof(b->m) || b->m.magic != MSG_MAGIC ||
		 flags & MSG_TRUNC)
		err = -EBADMSG;
	if (!err)
		return n - (int)sizeof(b->m);
	while (fds && *nfds)
		close(fds[--*nfds]);
	return err;
}

int msg_peek(int fd, struct msg *m, int *fds, int *nfds)
{
	int n, flags = MSG_PEEK;

	n = take(fd, m, sizeof(*m), &flags, fds, nfds);
	if (n < 0)
		return n;
	if (!(flags & MSG_CTRUNC))
		return n < (int)sizeof(*m) ? -EBADMSG : 0;
	while (*nfds)
		close(fds[--*nfds]);
	return -EMFILE;
}
