/* SPDX-License-Identifier: MIT */
/*
 * addr.c - names to sockets; see addr.h.
 */
#include "kv/net/addr.h"

#include "base/hostport.h"
#include "kv/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int look_up(const char *addr, bool passive, struct addrinfo **list)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct hostport at;
	int rc = hostport_parse(addr, &at);

	if (rc)
		return rc;
	hints.ai_flags = passive ? AI_PASSIVE : 0;
	rc = getaddrinfo(at.host[0] ? at.host : NULL, at.port, &hints, list);
	return rc ? -EADDRNOTAVAIL : 0;
}

static int connect_one(const struct addrinfo *ai, uint64_t end_ns, int *fd)
{
	int s, err = 0, rc;
	socklen_t len = sizeof(err);
	struct pollfd p;

	s = socket(ai->ai_family,
		   ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return -errno;
	if (!connect(s, ai->ai_addr, ai->ai_addrlen))
		goto out;
	err = errno;
	if (err != EINPROGRESS)
		goto out;
	p = (struct pollfd){.fd = s, .events = POLLOUT};
	do {
		uint64_t now = kv_now_ns();
		uint64_t left = now < end_ns ? end_ns - now : 0;

		rc = poll(&p, 1, (int)(left / 1000000));
	} while (rc < 0 && errno == EINTR);
	err = ETIMEDOUT;
	if (rc > 0)
		getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len);
out:
	if (err)
		close(s);
	else
		*fd = s;
	return -err;
}

int kv_addr_connect(const char *addr, uint64_t timeout_ns, int *fd)
{
	struct addrinfo *list;
	uint64_t end = kv_now_ns() + timeout_ns;
	int rc = look_up(addr, false, &list);

	if (rc)
		return rc;
	for (struct addrinfo *ai = list; ai; ai = ai->ai_next) {
		rc = connect_one(ai, end, fd);
		if (!rc)
			break;
	}
	freeaddrinfo(list);
	return rc;
}

static int name_of(int fd, char text[KV_ADDR_MAX])
{
	struct sockaddr_storage sa = {0};
	socklen_t len = sizeof(sa);
	char host[64], port[8];

	if (getsockname(fd, (struct sockaddr *)&sa, &len))
		return -errno;
	if (getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return -EADDRNOTAVAIL;
	snprintf(text, KV_ADDR_MAX,
		 sa.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return 0;
}

int kv_addr_listen(const char *addr, int *fd, char text[KV_ADDR_MAX])
{
	struct addrinfo *ai;
	int one = 1, s, rc = look_up(addr, true, &ai);

	if (rc)
		return rc;
	s = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, 0);
	if (s < 0) {
		rc = -errno;
		goto err_list;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s, ai->ai_addr, ai->ai_addrlen) || listen(s, 128)) {
		rc = -errno;
		goto err_socket;
	}
	rc = name_of(s, text);
	if (rc)
		goto err_socket;
	freeaddrinfo(ai);
	*fd = s;
	return 0;

err_socket:
	close(s);
err_list:
	freeaddrinfo(ai);
	return rc;
}
