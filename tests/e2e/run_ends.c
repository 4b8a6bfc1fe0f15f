/* SPDX-License-Identifier: MIT */
/* run_ends.c - see run_ends.h. */
#include "run_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct conn all[CONNS];
struct turn t;
int ctl, set = -1;
bool server, in_storm, restarts;
uint64_t seed, own_state;

uint32_t next(uint64_t *state, uint32_t n)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33) % n;
}

/* This end's alone: nothing that is said may hang on it. */
uint32_t own(uint32_t n)
{
	return next(&own_state, n);
}

void say(const char *fmt, ...)
{
	char line[300];
	va_list ap;
	int n = snprintf(line, sizeof(line),
			 "%s %d: ", server ? "server" : "client", t.number);

	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	if (write(1, line, (size_t)n) != n)
		_exit(1);
}

void fail(const char *what)
{
	say("FAILED: %s: %s", what, strerror(errno));
	_exit(1);
}

void must(bool holds, const char *what)
{
	if (!holds)
		fail(what);
}

/* --- both ends step together ----------------------------------------------- */

void tell(void)
{
	uint8_t b = (uint8_t)t.number;
	ssize_t n;

	while ((n = send(ctl, &b, 1, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	must(n == 1, "a word to the other end");
}

void hear(void)
{
	uint8_t b;
	ssize_t n;

	while ((n = read(ctl, &b, 1)) < 0 && errno == EINTR)
		;
	must(n == 1 && b == (uint8_t)t.number, "a word of the other end");
}

void both(void)
{
	tell();
	hear();
}

/* --- bytes ---------------------------------------------------------------- */

uint8_t byte_at(bool of_server, size_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull ^ seed << 9 ^
		     (uint64_t)t.number << 3 ^ of_server;

	return (uint8_t)(x >> 29);
}

/* The call may have ended by a signal, and is made again. */
bool again(ssize_t n, bool waits)
{
	if (n >= 0 || errno != EINTR || !in_storm)
		return false;
	must(waits || !restarts, "EINTR in spite of SA_RESTART");
	return true;
}

ssize_t write_some(int fd, const uint8_t *buf, size_t n)
{
	struct iovec iov[2] = {{(void *)(uintptr_t)buf, n / 3},
			       {(void *)(uintptr_t)(buf + n / 3), n - n / 3}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	switch (own(4)) {
	case 0:
		return write(fd, buf, n);
	case 1:
		return writev(fd, iov, 2);
	case 2:
		return sendmsg(fd, &msg, MSG_NOSIGNAL);
	}
	return send(fd, buf, n, MSG_NOSIGNAL);
}

void put_from(int fd, size_t from, size_t size)
{
	uint8_t buf[8000];
	size_t at = from, n, i;
	ssize_t rc;

	while (at < from + size) {
		n = from + size - at < sizeof(buf) ? from + size - at
						   : sizeof(buf);
		for (i = 0; i < n; i++)
			buf[i] = byte_at(server, at + i);
		rc = write_some(fd, buf, n);
		if (again(rc, false))
			continue;
		must(rc > 0, "a write");
		at += (size_t)rc;
	}
}

void put(const struct conn *c, size_t size)
{
	put_from(c->fd, 0, size);
}

void join_set(struct conn *c)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = c->fd};

	if (!c->in_set)
		must(!epoll_ctl(set, EPOLL_CTL_ADD, c->fd, &ev),
		     "EPOLL_CTL_ADD");
	c->in_set = true;
}

void leave_set(struct conn *c)
{
	if (c->in_set)
		must(!epoll_ctl(set, EPOLL_CTL_DEL, c->fd, NULL),
		     "EPOLL_CTL_DEL");
	c->in_set = false;
}

/* Has the set an event of it? Another connection may have one of what comes
 * next. */
static int wait_in_set(const struct conn *c)
{
	struct epoll_event evs[CONNS];
	int i, k, n, found;

	do {
		n = epoll_wait(set, evs, CONNS, WAIT_MS);
		for (i = found = 0; i < n; i++) {
			found |= evs[i].data.fd == c->fd;
			for (k = 0; k < CONNS; k++)
				if (evs[i].data.fd == all[k].fd)
					break;
			must(k < CONNS || evs[i].data.fd == c->fd,
			     "an event of no connection");
		}
	} while (n > 0 && !found);
	return n > 0 ? 1 : n;
}

/* Until there is something to read, by a way of this end's. */
static void wait_in(struct conn *c)
{
	struct pollfd p = {c->fd, POLLIN, 0};
	struct timeval tv;
	fd_set r;
	int rc, way = (int)own(3);

	if (way == 2)
		join_set(c);
	do {
		tv = (struct timeval){WAIT_MS / 1000, 0};
		FD_ZERO(&r);
		FD_SET(c->fd, &r);
		rc = way == 0	? poll(&p, 1, WAIT_MS)
		     : way == 1 ? select(c->fd + 1, &r, NULL, NULL, &tv)
				: wait_in_set(c);
	} while (again(rc, true));
	must(rc == 1, way == 0 ? "poll" : way == 1 ? "select" : "epoll_wait");
}

ssize_t read_some(struct conn *c, uint8_t *buf, size_t n)
{
	struct iovec iov[2] = {{buf, n / 2}, {buf + n / 2, n - n / 2}};
	ssize_t rc;

	if (own(2))
		wait_in(c);
	switch (own(4)) {
	case 0:
		rc = read(c->fd, buf, n);
		break;
	case 1:
		rc = readv(c->fd, iov, 2);
		break;
	case 2:
		rc = recv(c->fd, buf, n, MSG_WAITALL);
		break;
	default:
		rc = recv(c->fd, buf, n, 0);
	}
	return rc;
}

void compare(const uint8_t *buf, size_t from, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (buf[i] != byte_at(!server, from + i)) {
			say("byte %zu is %u", from + i, buf[i]);
			fail("a byte");
		}
}

void take_from(struct conn *c, size_t from, size_t size)
{
	uint8_t buf[8000];
	size_t got = 0;
	ssize_t rc;

	while (got < size) {
		rc = read_some(c, buf,
			       size - got < sizeof(buf) ? size - got
							: sizeof(buf));
		if (again(rc, false))
			continue;
		if (rc <= 0)
			say("%zu of %zu bytes, then %zd", got, size, rc);
		must(rc > 0, "a read");
		compare(buf, from + got, (size_t)rc);
		got += (size_t)rc;
	}
}

void take(struct conn *c, size_t size)
{
	take_from(c, 0, size);
}

void pause_us(uint32_t us)
{
	struct timespec ts = {0, us * 1000};

	nanosleep(&ts, NULL);
}

/* Until so many bytes wait to be read. */
void until_there(const struct conn *c, size_t size)
{
	int n = -1, tries;

	for (tries = 0; tries < WAIT_MS && n != (int)size; tries++) {
		must(!ioctl(c->fd, FIONREAD, &n), "FIONREAD");
		if (n != (int)size)
			pause_us(1000);
	}
	must(n == (int)size, "bytes that wait");
}
