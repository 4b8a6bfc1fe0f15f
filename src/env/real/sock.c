/* SPDX-License-Identifier: MIT */
/*
 * sock.c - TCP sockets behind env.h: nonblocking, close-on-exec, without
 * Nagle's delay, and never raising SIGPIPE.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "env/real/real.h"

static socklen_t addr_len(const struct sockaddr_storage *addr)
{
	switch (addr->ss_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return sizeof(*addr);
	}
}

static int resolve_error(int eai)
{
	switch (eai) {
	case EAI_AGAIN:
		return -EAGAIN;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return -errno;
	case EAI_SERVICE:
	case EAI_BADFLAGS:
		return -EINVAL;
	default:
		return -EADDRNOTAVAIL;
	}
}

/* glibc would cut a port above 65535 to 16 bits. */
static bool port_is_absurd(const char *port)
{
	char *end;
	unsigned long v = strtoul(port, &end, 10);

	return port[0] == '-' || (end != port && !*end && v > 65535);
}

static bool has_ipv6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* One wildcard is enough: [::] also takes IPv4 peers. */
static int resolve_wildcard(const char *port, struct addrinfo **list)
{
	struct addrinfo hints = {
		.ai_family = has_ipv6() ? AF_INET6 : AF_INET,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE,
	};

	return getaddrinfo(NULL, port, &hints, list);
}

static int resolve_host(const char *host, const char *port,
			struct addrinfo **list)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};

	/* Without /etc/hosts the resolver would ask a name server, which does
	 * not know the name. */
	if (host && !strcasecmp(host, "localhost"))
		host = NULL;
	return getaddrinfo(host, port, &hints, list);
}

int real_resolve(struct skein_env *env, const char *host, const char *port,
		 bool passive, struct sockaddr_storage *addrs, int max, int *n)
{
	struct addrinfo *list, *ai;
	int rc, count = 0;

	(void)env;
	if (port_is_absurd(port))
		return -EINVAL;
	if (host && !*host)
		host = NULL;
	if (!host && passive)
		rc = resolve_wildcard(port, &list);
	else
		rc = resolve_host(host, port, &list);
	if (rc)
		return resolve_error(rc);
	for (ai = list; ai && count < max; ai = ai->ai_next) {
		if (ai->ai_addrlen > sizeof(addrs[count]))
			continue;
		memset(&addrs[count], 0, sizeof(addrs[count]));
		memcpy(&addrs[count++], ai->ai_addr, ai->ai_addrlen);
	}
	freeaddrinfo(list);
	if (!count)
		return -EADDRNOTAVAIL;
	*n = count;
	return 0;
}

static int sock_open(int family)
{
	int one = 1;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	/* Fails on a socket that is not TCP; such a socket has no delay either. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

int real_sock_listen(struct skein_env *env, const struct sockaddr_storage *addr,
		     int backlog, int *fd)
{
	int one = 1, zero = 0, rc, s = sock_open(addr->ss_family);

	(void)env;
	if (s < 0)
		return s;
	if (setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		goto err_close;
	if (addr->ss_family == AF_INET6 &&
	    setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero)))
		goto err_close;
	if (bind(s, (const struct sockaddr *)addr, addr_len(addr)))
		goto err_close;
	if (listen(s, backlog))
		goto err_close;
	*fd = s;
	return 0;

err_close:
	rc = -errno;
	close(s);
	return rc;
}

int real_sock_connect(struct skein_env *env,
		      const struct sockaddr_storage *addr, int *fd)
{
	int rc, s = sock_open(addr->ss_family);

	(void)env;
	if (s < 0)
		return s;
	/* Interrupted: the connect goes on in the background, as with
	 * EINPROGRESS. */
	if (connect(s, (const struct sockaddr *)addr, addr_len(addr)) &&
	    errno != EINPROGRESS && errno != EINTR) {
		rc = -errno;
		close(s);
		return rc;
	}
	*fd = s;
	return 0;
}

int real_sock_error(struct skein_env *env, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	struct sockaddr_storage peer;
	socklen_t len = sizeof(int);
	int err = 0;

	(void)env;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	if (err)
		return -err;
	if (poll(&p, 1, 0) == 0)
		return -EINPROGRESS;
	/* The error was read before; the socket is still dead. */
	len = sizeof(peer);
	if (getpeername(fd, (struct sockaddr *)&peer, &len))
		return -errno;
	return 0;
}

int real_sock_accept(struct skein_env *env, int fd,
		     struct sockaddr_storage *peer, int *conn_fd)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int one = 1, s;

	(void)env;
	do {
		memset(&addr, 0, sizeof(addr));
		len = sizeof(addr);
		s = accept4(fd, (struct sockaddr *)&addr, &len,
			    SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (s < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (s < 0)
		return -errno;
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (peer)
		*peer = addr;
	*conn_fd = s;
	return 0;
}

int real_sock_name(struct skein_env *env, int fd,
		   struct sockaddr_storage *local)
{
	struct sockaddr_storage addr = {0};
	socklen_t len = sizeof(addr);

	(void)env;
	if (getsockname(fd, (struct sockaddr *)&addr, &len))
		return -errno;
	*local = addr;
	return 0;
}

ssize_t real_sock_send(struct skein_env *env, int fd, const void *buf,
		       size_t len)
{
	ssize_t n;

	(void)env;
	do
		n = send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t real_sock_recv(struct skein_env *env, int fd, void *buf, size_t len)
{
	ssize_t n;

	(void)env;
	do
		n = recv(fd, buf, len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

void real_sock_close(struct skein_env *env, int fd)
{
	(void)env;
	if (fd >= 0)
		close(fd);
}
