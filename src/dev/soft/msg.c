/* SPDX-License-Identifier: MIT */
/*
 * msg.c - one datagram with descriptors, out and in. Everything received is
 * checked for its size here, and for its meaning by the caller.
 */
#include "dev/soft/msg.h"

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
	/* NOLINTNEXTLINE(performance-no-int-to-ptr): sendmsg() is not const */
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

int msg_recv(int fd, struct msg_buf *b, int *fds, int *nfds)
{
	struct iovec iov = {.iov_base = b, .iov_len = sizeof(*b)};
	union cbuf c;
	struct msghdr h = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = c.bytes,
			   .msg_controllen = sizeof(c)};
	ssize_t n;
	int err = 0;

	*nfds = 0;
	do
		n = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;
	take_fds(&h, fds, nfds);
	if (h.msg_flags & MSG_CTRUNC)
		err = -EMFILE;
	else if (n < (ssize_t)sizeof(b->m) || b->m.magic != MSG_MAGIC ||
		 (h.msg_flags & MSG_TRUNC))
		err = -EBADMSG;
	if (!err)
		return (int)(n - (ssize_t)sizeof(b->m));
	while (*nfds)
		close(fds[--*nfds]);
	return err;
}
