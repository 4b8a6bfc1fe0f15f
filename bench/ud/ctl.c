/* SPDX-License-Identifier: MIT */
/*
 * ctl.c - see ctl.h.
 */
#include "ctl.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what)
{
	fprintf(stderr, "ud_rpc: %s: %s\n", what, strerror(errno));
	return -1;
}

int ud_ctl_listen(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons(*port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	socklen_t len = sizeof(at);

	if (fd < 0)
		return fail("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (struct sockaddr *)&at, len) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&at, &len)) {
		fail("cannot listen");
		close(fd);
		return -1;
	}
	*port = ntohs(at.sin_port);
	return fd;
}

int ud_ctl_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	return fd < 0 ? fail("accept") : fd;
}

int ud_ctl_connect(const char *host, uint16_t port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *a;
	char service[8];
	int fd = -1, rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc) {
		fprintf(stderr, "ud_rpc: %s: %s\n", host, gai_strerror(rc));
		return -1;
	}
	for (a = found; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
			rc = errno;
			close(fd);
			fd = -1;
			errno = rc;
		}
	}
	freeaddrinfo(found);
	if (fd < 0)
		fprintf(stderr, "ud_rpc: cannot reach %s, port %u: %s\n", host,
			port, strerror(errno));
	return fd;
}

bool ud_ctl_send(int fd, const void *buf, size_t len)
{
	const char *at = buf;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = send(fd, at, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return false;
	}
	return true;
}

bool ud_ctl_recv(int fd, void *buf, size_t len)
{
	char *at = buf;
	ssize_t n;

	for (; len; at += n, len -= (size_t)n) {
		n = recv(fd, at, len, 0);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n <= 0)
			return false;
	}
	return true;
}

bool ud_ctl_gone(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}
