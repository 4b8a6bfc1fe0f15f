/* SPDX-License-Identifier: MIT */
/*
 * ctl.c - the control link: JSON objects, one a line, over a stream socket.
 */
#include "perf/ctl.h"

#include "perf/perf.h"
#include "perf/ticks.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	LINE_MAX_BYTES = 16 << 20,
	CHUNK = 16 << 10,
	CONNECT_TIMEOUT_MS = 5000,
	FIRST_WORD_MS = 10000,
};

struct perf_ctl {
	int fd;
	char *buf;
	size_t len;
	size_t room;
};

struct perf_ctl *ctl_new(int fd)
{
	struct perf_ctl *c = calloc(1, sizeof(*c));

	if (!c) {
		close(fd);
		return NULL;
	}
	c->fd = fd;
	return c;
}

void ctl_free(struct perf_ctl *c)
{
	if (!c)
		return;
	close(c->fd);
	free(c->buf);
	free(c);
}

/* Milliseconds until the deadline, rounded up. */
static int ms_left(uint64_t deadline)
{
	uint64_t now = clock_ns();

	if (now >= deadline)
		return 0;
	return (int)((deadline - now + 999999) / 1000000);
}

/* The events that came, or a negative errno. */
static int wait_events(int fd, short events, uint64_t deadline)
{
	for (;;) {
		struct pollfd pfd = {.fd = fd, .events = events};
		int n = poll(&pfd, 1, ms_left(deadline));

		if (n > 0)
			return pfd.revents;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static int wait_fd(int fd, short events, uint64_t deadline)
{
	int rc = wait_events(fd, events, deadline);

	return rc < 0 ? rc : 0;
}

static int read_more(struct perf_ctl *c, uint64_t deadline)
{
	ssize_t n;
	int rc;

	if (c->len + CHUNK > c->room) {
		size_t room = c->room ? 2 * c->room : (size_t)2 * CHUNK;
		char *buf;

		if (room > 2u * LINE_MAX_BYTES)
			return -EPROTO;
		buf = realloc(c->buf, room);
		if (!buf)
			return -ENOMEM;
		c->buf = buf;
		c->room = room;
	}
	rc = wait_fd(c->fd, POLLIN, deadline);
	if (rc)
		return rc;
	n = recv(c->fd, c->buf + c->len, CHUNK, 0);
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -ECONNRESET;
	c->len += (size_t)n;
	return 0;
}

/* Both ends may send at once, and more than the socket holds: what comes
 * meanwhile is kept for ctl_recv(). Fails when nothing moves for a while. */
static int wait_to_send(struct perf_ctl *c)
{
	uint64_t deadline = clock_ns() + PERF_PATIENCE_NS;
	int events = wait_events(c->fd, POLLIN | POLLOUT, deadline);

	if (events < 0 || events & POLLOUT)
		return events < 0 ? events : 0;
	return c->len > LINE_MAX_BYTES ? -EPROTO : read_more(c, deadline);
}

static int send_all(struct perf_ctl *c, const char *s, size_t len)
{
	while (len) {
		ssize_t n = send(c->fd, s, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int rc = 0;

		if (n >= 0) {
			s += n;
			len -= (size_t)n;
		} else if (errno == EAGAIN) {
			rc = wait_to_send(c);
		} else if (errno != EINTR) {
			rc = -errno;
		}
		if (rc)
			return rc;
	}
	return 0;
}

int ctl_send(struct perf_ctl *c, json_t *obj)
{
	char *s;
	int rc;

	if (!obj)
		return -ENOMEM;
	s = json_dumps(obj, JSON_COMPACT);
	json_decref(obj);
	if (!s)
		return -ENOMEM;
	rc = send_all(c, s, strlen(s));
	if (!rc)
		rc = send_all(c, "\n", 1);
	free(s);
	return rc;
}

int ctl_recv(struct perf_ctl *c, uint64_t timeout_ns, json_t **obj)
{
	uint64_t deadline = clock_ns() + timeout_ns;
	json_t *j;
	char *nl;
	int rc;

	while (!(nl = c->len ? memchr(c->buf, '\n', c->len) : NULL)) {
		if (c->len > LINE_MAX_BYTES)
			return -EPROTO;
		rc = read_more(c, deadline);
		if (rc)
			return rc;
	}
	j = json_loadb(c->buf, (size_t)(nl - c->buf), 0, NULL);
	c->len -= (size_t)(nl + 1 - c->buf);
	memmove(c->buf, nl + 1, c->len);
	if (!json_is_object(j)) {
		json_decref(j);
		return -EPROTO;
	}
	*obj = j;
	return 0;
}

bool ctl_pending(struct perf_ctl *c)
{
	struct pollfd pfd = {.fd = c->fd, .events = POLLIN};

	return c->len || poll(&pfd, 1, 0) > 0;
}

static int resolve(const char *host, uint32_t port, int flags, char *why,
		   size_t why_len, struct addrinfo **list)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = flags | AI_NUMERICSERV,
	};
	char service[16];
	int rc;

	snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, list);
	if (!rc)
		return 0;
	if (host)
		snprintf(why, why_len,
			 "cannot find host %s: check the name, or give an "
			 "address (%s)",
			 host, gai_strerror(rc));
	else
		snprintf(why, why_len, "cannot find an address: %s",
			 gai_strerror(rc));
	return -EADDRNOTAVAIL;
}

static int connect_one(const struct addrinfo *a, int *fd)
{
	int s, rc = 0, one = 1, err = 0;
	socklen_t len = sizeof(err);

	s = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
		   a->ai_protocol);
	if (s < 0)
		return -errno;
	if (connect(s, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) {
		rc = -errno;
		goto err_close;
	}
	rc = wait_fd(s, POLLOUT, clock_ns() + CONNECT_TIMEOUT_MS * 1000000ull);
	if (!rc && getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len))
		rc = -errno;
	if (!rc)
		rc = -err;
	if (rc)
		goto err_close;
	fcntl(s, F_SETFL, 0);
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*fd = s;
	return 0;
err_close:
	close(s);
	return rc;
}

static const char *remedy(int rc)
{
	switch (rc) {
	case -ECONNREFUSED:
		return ": start one there with the same command, without HOST "
		       "(for clients of other hosts with --insecure)";
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ETIMEDOUT:
		return ": check the address, that the host is up, and that no "
		       "firewall closes the port";
	default:
		return "";
	}
}

int ctl_connect(const char *host, uint32_t port, char *why, size_t why_len,
		int *fd)
{
	struct addrinfo *list;
	int rc;

	rc = resolve(host, port, 0, why, why_len, &list);
	if (rc)
		return rc;
	rc = -EADDRNOTAVAIL;
	for (struct addrinfo *a = list; a; a = a->ai_next) {
		rc = connect_one(a, fd);
		if (!rc)
			break;
	}
	freeaddrinfo(list);
	if (rc)
		snprintf(why, why_len,
			 "cannot reach a server at %s port %u: %s%s", host,
			 port, strerror(-rc), remedy(rc));
	return rc;
}

/* IPv4's loopback alone, or one socket for both families where the system has
 * IPv6. */
static int listen_on(uint32_t port, bool loopback, int *fd)
{
	struct sockaddr_in6 a6 = {
		.sin6_family = AF_INET6,
		.sin6_addr = in6addr_any,
		.sin6_port = htons((uint16_t)port),
	};
	struct sockaddr_in a4 = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
	};
	int one = 1, zero = 0, rc, s = -1;
	bool v6 = !loopback;

	if (loopback)
		a4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0) {
		v6 = false;
		s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
	if (s < 0)
		return -errno;
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (v6) {
		setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
		rc = bind(s, (struct sockaddr *)&a6, sizeof(a6));
	} else {
		rc = bind(s, (struct sockaddr *)&a4, sizeof(a4));
	}
	if (rc || listen(s, 1)) {
		rc = -errno;
		close(s);
		return rc;
	}
	*fd = s;
	return 0;
}

/* The port has the same place in the addresses of both families. */
static uint32_t port_of(int s)
{
	struct sockaddr_in6 at = {0};
	socklen_t len = sizeof(at);

	if (getsockname(s, (struct sockaddr *)&at, &len))
		return 0;
	return ntohs(at.sin6_port);
}

uint32_t ctl_port(const struct perf_ctl *c)
{
	return port_of(c->fd);
}

/* A client speaks first, and at once: with an object. */
static bool is_perf(int s)
{
	char first = 0;

	return !wait_fd(s, POLLIN, clock_ns() + FIRST_WORD_MS * 1000000ull) &&
	       recv(s, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first == '{';
}

/* Other programs try ports, too: they do not end the wait. */
static int accept_perf(int s, uint64_t deadline, int *fd)
{
	for (;;) {
		int c, rc = wait_fd(s, POLLIN, deadline);

		if (rc)
			return rc;
		c = accept4(s, NULL, NULL, SOCK_CLOEXEC);
		if (c < 0)
			return -errno;
		if (is_perf(c)) {
			*fd = c;
			return 0;
		}
		close(c);
		fprintf(stderr, "skein perf: what connected is no skein perf: "
				"still waiting for a client\n");
	}
}

int ctl_accept_one(uint32_t port, bool loopback, uint64_t timeout_ns, char *why,
		   size_t why_len, int *fd)
{
	int s = -1, c = -1, rc, one = 1;

	rc = listen_on(port, loopback, &s);
	if (rc) {
		snprintf(why, why_len, "cannot listen on port %u: %s%s", port,
			 strerror(-rc),
			 rc == -EADDRINUSE ? ": give -p another one, or 0 for "
					     "any free one"
					   : "");
		return rc;
	}
	port = port_of(s);
	fprintf(stderr, "skein perf: waiting for a client%s on port %u\n",
		loopback ? " of this host (others: --insecure)" : "", port);
	rc = accept_perf(s, clock_ns() + timeout_ns, &c);
	close(s);
	if (rc) {
		snprintf(why, why_len, "no client came to port %u: %s", port,
			 strerror(-rc));
		return rc;
	}
	setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*fd = c;
	return 0;
}
