/* SPDX-License-Identifier: MIT */
/*
 * hand.c - see hand.h.
 */
#include "dev/soft/link/hand.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t block_name(uint32_t block, struct sockaddr_un *un)
{
	int n;

	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
		     "skein0.tcp.%03x", block);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

/* A message of a hello, and room for a descriptor. */
struct message {
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} info;
	struct iovec iov;
	struct msghdr h;
};

static void message_init(struct message *m, uint8_t hello[FRAME_HELLO])
{
	memset(m, 0, sizeof(*m));
	m->iov = (struct iovec){hello, FRAME_HELLO};
	m->h.msg_iov = &m->iov;
	m->h.msg_iovlen = 1;
	m->h.msg_control = m->info.room;
	m->h.msg_controllen = sizeof(m->info.room);
}

static int local_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);

	return fd < 0 ? -errno : fd;
}

bool hand_is_ours(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	       cred.uid == geteuid();
}

int hand_listen(uint32_t block, int backlog)
{
	struct sockaddr_un un;
	socklen_t len = block_name(block, &un);
	int fd = local_socket(), err;

	if (fd < 0)
		return fd;
	if (!bind(fd, (struct sockaddr *)&un, len) && !listen(fd, backlog))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

bool hand_over(int conn, uint8_t hello[FRAME_HELLO], uint32_t block)
{
	struct sockaddr_un un;
	socklen_t len = block_name(block, &un);
	struct message m;
	bool sent;
	int fd = local_socket();

	if (fd < 0)
		return false;
	message_init(&m, hello);
	m.info.head.cmsg_level = SOL_SOCKET;
	m.info.head.cmsg_type = SCM_RIGHTS;
	m.info.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&m.info.head), &conn, sizeof(int));
	sent = !connect(fd, (struct sockaddr *)&un, len) && hand_is_ours(fd) &&
	       sendmsg(fd, &m.h, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
	close(fd);
	return sent;
}

int hand_receive(int from, uint8_t hello[FRAME_HELLO])
{
	struct message m;
	struct cmsghdr *c;
	ssize_t n;
	int fd = -1;

	message_init(&m, hello);
	n = recvmsg(from, &m.h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return -EAGAIN;
	c = n < 0 ? NULL : CMSG_FIRSTHDR(&m.h);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	if (fd >= 0 && n != (ssize_t)FRAME_HELLO) {
		close(fd);
		fd = -1;
	}
	return fd < 0 ? -EBADMSG : fd;
}
