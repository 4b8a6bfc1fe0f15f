/* SPDX-License-Identifier: MIT */
/*
 * run_talk.c - a random program of socket calls, for test_run.py: it runs on
 * plain TCP and under `skein run`, and must say the same.
 *
 *	run_talk server SEED		prints its port
 *	run_talk client SEED PORT
 *
 * A few connections. Each end writes bytes that follow from the seed, the
 * connection and the offset, in pieces and by calls that it draws; reads what
 * comes, by calls that it draws, and compares each byte; changes its interest;
 * shuts its side down, and reads to the end. It waits as the seed says: by an
 * epoll set, level- or edge-triggered (with TCP_INQ, as gRPC reads), by poll(),
 * by select(), or in blocking calls of two threads a connection. At a byte that
 * the seed draws it makes a call that only the kernel can carry, forks a child
 * that goes on, or starts another program: a stream is handed back to TCP there;
 * or it closes numbers that are not its own. With RUN_TALK_PAUSES
 * it stands still for some milliseconds at random bytes. What it prints at the
 * end does not hang on time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNS 3
#define PIECE_MAX 90000

struct talk {
	int fd, number;
	uint64_t sent, to_send, got, pinged;
	uint64_t back_at; /* so many bytes are sent: by the kernel alone now */
	bool shut, ended, in_set;
	uint32_t events;
	/* edge-triggered: nothing there, or no room, until an edge says so */
	bool drained, full;
};

enum mode {
	BY_EPOLL,
	BY_EDGE,
	BY_POLL,
	BY_SELECT,
	BY_BLOCKING,
	MODES
};

static _Thread_local uint64_t state;
static enum mode mode;
static bool server, pauses;
static uint64_t seed;

static uint32_t draw(uint32_t n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(state >> 33) % n;
}

static void fail(const char *what, const struct talk *t)
{
	printf("FAILED: %s of connection %d, sent %llu of %llu, got %llu: %s\n",
	       what, t ? t->number : -1, t ? (unsigned long long)t->sent : 0,
	       t ? (unsigned long long)t->to_send : 0,
	       t ? (unsigned long long)t->got : 0, strerror(errno));
	fflush(stdout);
	_exit(1);
}

static uint8_t byte_at(bool of_server, int number, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15ull ^ seed << 8 ^
		     (uint64_t)number << 1 ^ of_server;

	return (uint8_t)(x >> 29);
}

static uint64_t amount(bool of_server, int number)
{
	uint64_t x = (seed * 77 + (uint64_t)number * 13 + of_server) *
		     0x9e3779b97f4a7c15ull;

	return x >> 60 ? (x >> 40) % 600000 : (x >> 40) % 50;
}

/* No stream goes back to TCP before its end: docs/run.md says what differs while
 * one does. */
static bool no_back(void)
{
	return seed % 3 == 0;
}

/* In two of three programs, some connections, each end for itself. */
static uint64_t back_at(int number)
{
	uint64_t x = (seed * 31 + (uint64_t)number * 7 + server) *
		     0xd6e8feb86659fd93ull;

	if (no_back() || x >> 62 == 0)
		return UINT64_MAX;
	return x >> 61 & 1 ? (x >> 40) % 1000 : (x >> 40) % 400000;
}

static uint32_t piece(void)
{
	switch (draw(4)) {
	case 0:
		return 1 + draw(PIECE_MAX);
	case 1:
		return 1 + draw(5000);
	default:
		return 1 + draw(80);
	}
}

static void set_events(int epfd, struct talk *t, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = t};
	int op = t->in_set ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	/* Now and then by taking it out and in again. */
	if (t->in_set && !draw(4)) {
		if (epoll_ctl(epfd, EPOLL_CTL_DEL, t->fd, NULL))
			fail("EPOLL_CTL_DEL", t);
		if (!epoll_ctl(epfd, EPOLL_CTL_MOD, t->fd, &ev) ||
		    errno != ENOENT)
			fail("EPOLL_CTL_MOD of none", t);
		op = EPOLL_CTL_ADD;
	} else if (t->in_set && !draw(8)) {
		if (!epoll_ctl(epfd, EPOLL_CTL_ADD, t->fd, &ev) ||
		    errno != EEXIST)
			fail("EPOLL_CTL_ADD twice", t);
	}
	if (epoll_ctl(epfd, op, t->fd, &ev))
		fail("epoll_ctl", t);
	t->in_set = true;
	t->events = events;
}

static void shut(struct talk *t)
{
	t->shut = true;
	if (shutdown(t->fd, SHUT_WR))
		fail("shutdown", t);
	if (send(t->fd, "x", 1, MSG_NOSIGNAL) != -1 || errno != EPIPE)
		fail("send after shutdown", t);
}

/* The socket goes to another descriptor table and back. */
static void pass(struct talk *t)
{
	int ends[2], got = -1;
	char byte = 0;
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {&byte, 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
		fail("socketpair", t);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &t->fd, sizeof(int));
	if (sendmsg(ends[0], &msg, 0) != 1 || recvmsg(ends[1], &msg, 0) != 1)
		fail("SCM_RIGHTS", t);
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	close(got);
	close(ends[0]);
	close(ends[1]);
}

/* A child writes the next bytes. */
static void by_child(struct talk *t)
{
	uint64_t left = t->to_send - t->sent;
	uint8_t buf[100];
	int status, i, n = left < sizeof(buf) ? (int)left : (int)sizeof(buf);
	pid_t child;

	for (i = 0; i < n; i++)
		buf[i] = byte_at(server, t->number, t->sent + (uint64_t)i);
	child = fork();
	if (!child) {
		ssize_t rc = write(t->fd, buf, (size_t)n);

		if (rc < 0 && errno != EAGAIN)
			_exit(255);
		_exit(rc > 0 ? (int)rc : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child ||
	    !WIFEXITED(status) || WEXITSTATUS(status) > n)
		fail("a child's write", t);
	t->sent += (uint64_t)WEXITSTATUS(status);
}

/* What no stream carries. */
static void by_kernel(struct talk *t)
{
	int fd;

	t->back_at = UINT64_MAX;
	switch (draw(5)) {
	case 0:
		fd = dup(t->fd);
		if (fd < 0 || close(fd))
			fail("dup", t);
		break;
	case 1:
		pass(t);
		break;
	case 2: /* it inherits all connections */
		if (system(":"))
			fail("system", t);
		break;
	case 3: /* none is ours */
		if (close_range(512, UINT_MAX, 0))
			fail("close_range", t);
		break;
	default:
		by_child(t);
	}
}

/* Long enough for a connection to be idle. */
static void pause_now(void)
{
	if (pauses && !draw(40))
		usleep(draw(2) ? 4000 : 25000);
}

static void write_some(struct talk *t)
{
	static _Thread_local uint8_t buf[PIECE_MAX];
	uint64_t left = t->to_send - t->sent;
	uint32_t n = piece(), i;
	struct iovec iov[3];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 3};
	ssize_t rc;

	pause_now();
	if (t->sent >= t->back_at) {
		by_kernel(t);
		left = t->to_send - t->sent;
	}
	if (n > left)
		n = (uint32_t)left;
	if (!n) {
		if (!t->shut)
			shut(t);
		return;
	}
	for (i = 0; i < n; i++)
		buf[i] = byte_at(server, t->number, t->sent + i);
	iov[0] = (struct iovec){buf, n / 3};
	iov[1] = (struct iovec){buf + n / 3, n / 2 - n / 3};
	iov[2] = (struct iovec){buf + n / 2, n - n / 2};
	switch (draw(5)) {
	case 0:
		rc = write(t->fd, buf, n);
		break;
	case 1:
		rc = send(t->fd, buf, n, MSG_NOSIGNAL);
		break;
	case 2:
		rc = writev(t->fd, iov, 3);
		break;
	case 3:
		rc = sendmsg(t->fd, &msg, MSG_DONTWAIT);
		break;
	default:
		rc = sendto(t->fd, buf, n, 0, NULL, 0);
		break;
	}
	if (rc > (ssize_t)n || !rc || (rc < 0 && errno != EAGAIN))
		fail("write", t);
	t->full = rc < (ssize_t)n;
	if (rc > 0)
		t->sent += (uint64_t)rc;
}

static void compare(struct talk *t, const uint8_t *buf, ssize_t n)
{
	ssize_t i;

	for (i = 0; i < n; i++) {
		if (buf[i] == byte_at(!server, t->number, t->got + (uint64_t)i))
			continue;
		printf("byte %llu is %u\n",
		       (unsigned long long)(t->got + (uint64_t)i), buf[i]);
		fail("a byte", t);
	}
}

static void read_some(struct talk *t)
{
	static _Thread_local uint8_t buf[PIECE_MAX];
	uint32_t n = piece();
	struct iovec iov[2] = {{buf, n / 4}, {buf + n / 4, n - n / 4}};
	char control[64];
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = 2,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	ssize_t rc;
	int there, inq = -1;

	if (!draw(6)) {
		if (ioctl(t->fd, FIONREAD, &there))
			fail("FIONREAD", t);
		rc = recv(t->fd, buf, n, MSG_PEEK);
		compare(t, buf, rc);
		if (no_back() && rc >= 0 && rc < there && (size_t)rc < n)
			fail("a peek that is short", t);
		if (ioctl(t->fd, FIONREAD, &there))
			fail("FIONREAD", t);
		if (no_back() && rc > 0 && !there)
			fail("FIONREAD after a peek", t);
	}
	switch (draw(6)) {
	case 0:
		rc = read(t->fd, buf, n);
		break;
	case 1:
		rc = recv(t->fd, buf, n, MSG_WAITALL);
		break;
	case 2:
		rc = recv(t->fd, buf, n, 0);
		break;
	case 3:
		rc = readv(t->fd, iov, 2);
		break;
	case 4:
		rc = recvmsg(t->fd, &msg,
			     mode == BY_BLOCKING ? 0 : MSG_DONTWAIT);
		c = rc >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
		if (rc >= 0 && (mode == BY_EDGE) != (c != NULL))
			fail("control data", t);
		if (c &&
		    (c->cmsg_level != SOL_TCP || c->cmsg_type != TCP_CM_INQ))
			fail("the type of control data", t);
		if (c)
			memcpy(&inq, CMSG_DATA(c), sizeof(inq));
		break;
	default:
		rc = recvfrom(t->fd, buf, n, 0, NULL, NULL);
		break;
	}
	if (rc > (ssize_t)n || (rc < 0 && errno != EAGAIN))
		fail("read", t);
	t->drained = rc < 0 || !inq;
	if (!rc) {
		t->ended = true;
		return;
	}
	compare(t, buf, rc);
	if (rc > 0)
		t->got += (uint64_t)rc;
}

/* A byte to and fro, as often as the seed says: calls enough for the meeting,
 * so that the promotion comes now in the middle of this and now of what follows. */
static void ping(struct talk *all)
{
	uint32_t i, n = (uint32_t)(seed * 997 % 3000);
	struct epoll_event ev;
	uint8_t byte;
	ssize_t rc;
	int k, epfd = epoll_create1(EPOLL_CLOEXEC);

	for (k = 0; k < CONNS; k++)
		set_events(epfd, &all[k], EPOLLIN);
	for (i = 0; i < n; i++) {
		struct talk *t = &all[i % CONNS];

		for (k = 0; k < 2; k++) {
			if (k != server) {
				if (!draw(8))
					pause_now();
				if (t->sent >= t->back_at)
					by_kernel(t);
				byte = byte_at(server, t->number, t->sent++);
				if (send(t->fd, &byte, 1, MSG_NOSIGNAL) != 1)
					fail("send of a byte", t);
				continue;
			}
			/* The other end may be further on, and write to
			 * another connection. */
			do {
				if (epoll_wait(epfd, &ev, 1, 20000) != 1)
					fail("epoll_wait for a byte", t);
				rc = recv(t->fd, &byte, 1, 0);
			} while (rc < 0 && errno == EAGAIN);
			if (rc != 1)
				fail("recv of a byte", t);
			compare(t, &byte, 1);
			t->got++;
		}
	}
	for (k = 0; k < CONNS; k++) {
		epoll_ctl(epfd, EPOLL_CTL_DEL, all[k].fd, NULL);
		all[k].in_set = false;
		all[k].to_send += all[k].sent;
		all[k].pinged = all[k].got;
	}
	close(epfd);
}

static bool done(const struct talk *t)
{
	return t->shut && t->ended;
}

static void talk(struct talk *all)
{
	static const int timeouts[] = {0, 1, 5, -1};
	struct epoll_event evs[CONNS];
	int epfd = epoll_create1(EPOLL_CLOEXEC), i, n, left = CONNS;

	for (i = 0; i < CONNS; i++)
		set_events(epfd, &all[i], EPOLLIN | EPOLLOUT);
	while (left) {
		n = epoll_wait(epfd, evs, 1 + (int)draw(CONNS),
			       timeouts[draw(4)]);
		if (n < 0)
			fail("epoll_wait", NULL);
		for (i = 0; i < n; i++) {
			struct talk *t = evs[i].data.ptr;
			uint32_t want = 0;

			if (evs[i].events & ~(t->events | EPOLLERR | EPOLLHUP))
				fail("an event that nobody asked for", t);
			if (evs[i].events & EPOLLOUT)
				write_some(t);
			if (evs[i].events & (EPOLLIN | EPOLLHUP))
				read_some(t);
			/* Sometimes what is not said to be ready. */
			if (!draw(10) && !t->ended)
				read_some(t);
			if (!draw(10) && !t->shut)
				write_some(t);
			want = (t->ended ? 0 : EPOLLIN) |
			       (t->shut ? 0 : EPOLLOUT);
			if (done(t)) {
				left--;
				epoll_ctl(epfd, EPOLL_CTL_DEL, t->fd, NULL);
				t->in_set = false;
			} else if (want != t->events || !draw(20)) {
				set_events(epfd, t, want);
			}
		}
	}
	close(epfd);
}

/* As gRPC has it: reads until there is nothing, by an error or by TCP_INQ, and
 * then waits for an edge. */
static void talk_edge(struct talk *all)
{
	struct epoll_event ev, evs[CONNS];
	int epfd = epoll_create1(EPOLL_CLOEXEC), on = 1, i, n, left = CONNS;
	bool busy = true;

	for (i = 0; i < CONNS; i++) {
		struct talk *t = &all[i];

		ev.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
		ev.data.ptr = t;
		t->drained = t->full = true;
		if (setsockopt(t->fd, IPPROTO_TCP, TCP_INQ, &on, sizeof(on)) ||
		    epoll_ctl(epfd, EPOLL_CTL_ADD, t->fd, &ev))
			fail("an edge-triggered set", t);
	}
	while (left) {
		n = epoll_wait(epfd, evs, 1 + (int)draw(CONNS),
			       busy ? 0 : 30000);
		if (n < 0 || (!n && !busy))
			fail("epoll_wait for an edge", &all[0]);
		for (i = 0; i < n; i++) {
			struct talk *t = evs[i].data.ptr;

			if (evs[i].events & ~EPOLLOUT)
				t->drained = false;
			if (evs[i].events & (EPOLLOUT | EPOLLHUP))
				t->full = false;
		}
		busy = false;
		left = 0;
		for (i = 0; i < CONNS; i++) {
			struct talk *t = &all[i];

			if (!t->drained && !t->ended && draw(3))
				read_some(t);
			if (!t->full && !t->shut && draw(3))
				write_some(t);
			busy |= (!t->drained && !t->ended) ||
				(!t->full && !t->shut);
			left += !done(t);
		}
	}
	close(epfd);
}

static int by_select(struct pollfd *fds, int n, int timeout)
{
	struct timeval tv = {timeout / 1000, timeout % 1000 * 1000};
	fd_set r, w;
	int i, rc;

	FD_ZERO(&r);
	FD_ZERO(&w);
	for (i = 0; i < n; i++) {
		if (fds[i].events & POLLIN)
			FD_SET(fds[i].fd, &r);
		if (fds[i].events & POLLOUT)
			FD_SET(fds[i].fd, &w);
	}
	rc = select(FD_SETSIZE, &r, &w, NULL, timeout < 0 ? NULL : &tv);
	for (i = 0; i < n && rc >= 0; i++)
		fds[i].revents =
			(short)((FD_ISSET(fds[i].fd, &r) ? POLLIN : 0) |
				(FD_ISSET(fds[i].fd, &w) ? POLLOUT : 0));
	return rc;
}

static void talk_poll(struct talk *all)
{
	static const int timeouts[] = {0, 1, 5, -1};
	struct pollfd fds[CONNS + 1];
	int bell[2], i, n, timeout;

	/* One more that is none of ours, and never ready. */
	if (pipe(bell))
		fail("pipe", NULL);
	for (;;) {
		struct talk *of[CONNS];

		for (i = n = 0; i < CONNS; i++) {
			if (done(&all[i]))
				continue;
			of[n] = &all[i];
			fds[n].fd = all[i].fd;
			fds[n].revents = 0;
			fds[n++].events = (short)((all[i].ended ? 0 : POLLIN) |
						  (all[i].shut ? 0 : POLLOUT));
		}
		if (!n)
			break;
		fds[n] = (struct pollfd){bell[0], POLLIN, 0};
		timeout = timeouts[draw(4)];
		if ((mode == BY_SELECT ? by_select(fds, n + 1, timeout)
				       : poll(fds, (nfds_t)n + 1, timeout)) < 0)
			fail("poll", NULL);
		if (fds[n].revents)
			fail("an event of an empty pipe", NULL);
		for (i = 0; i < n; i++) {
			if (fds[i].revents &
			    ~(fds[i].events | POLLERR | POLLHUP))
				fail("an event that nobody asked for", of[i]);
			if (fds[i].revents & POLLOUT)
				write_some(of[i]);
			if (fds[i].revents & (POLLIN | POLLHUP))
				read_some(of[i]);
		}
	}
	close(bell[0]);
	close(bell[1]);
}

static void *reader(void *arg)
{
	struct talk *t = arg;

	state = seed * 11 + (uint64_t)t->number;
	while (!t->ended)
		read_some(t);
	return NULL;
}

static void *writer(void *arg)
{
	struct talk *t = arg;

	state = seed * 13 + (uint64_t)t->number;
	while (!t->shut)
		write_some(t);
	return NULL;
}

static void talk_blocking(struct talk *all)
{
	pthread_t threads[2 * CONNS];
	int i;

	for (i = 0; i < CONNS; i++) {
		if (fcntl(all[i].fd, F_SETFL, 0))
			fail("a blocking socket", &all[i]);
		if (pthread_create(&threads[2 * i], NULL, reader, &all[i]) ||
		    pthread_create(&threads[2 * i + 1], NULL, writer, &all[i]))
			fail("a thread", &all[i]);
	}
	for (i = 0; i < 2 * CONNS; i++)
		pthread_join(threads[i], NULL);
}

static int meet(int argc, char **argv, struct talk *all)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	int i, fd, listener = -1;
	char number;

	if (server) {
		listener = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(listener, (void *)&sa, len) ||
		    listen(listener, CONNS) ||
		    getsockname(listener, (void *)&sa, &len))
			fail("listen", NULL);
		printf("port %d\n", ntohs(sa.sin_port));
		fflush(stdout);
	} else {
		sa.sin_port = htons((uint16_t)atoi(argv[3]));
	}
	for (i = 0; i < CONNS; i++) {
		number = (char)i;
		if (server) {
			fd = accept(listener, NULL, NULL);
			if (fd < 0 || read(fd, &number, 1) != 1)
				fail("accept", NULL);
		} else {
			fd = socket(AF_INET, SOCK_STREAM, 0);
			if (connect(fd, (void *)&sa, len) ||
			    write(fd, &number, 1) != 1)
				fail("connect", NULL);
		}
		if (fcntl(fd, F_SETFL, O_NONBLOCK))
			fail("O_NONBLOCK", NULL);
		all[(int)number] = (struct talk){
			.fd = fd,
			.number = number,
			.to_send = amount(server, number),
			.back_at = back_at(number),
		};
	}
	if (listener >= 0)
		close(listener);
	return 0;
}

/* A loaded machine, or a slow one, has more time. */
static unsigned scale(void)
{
	const char *text = getenv("SKEIN_TEST_TIME_SCALE");
	unsigned long n = text ? strtoul(text, NULL, 10) : 1;

	return n > 1 ? (unsigned)n : 1;
}

/* The runner takes a failure for one by time by these words. */
static void too_long(int sig)
{
	static const char said[] = "run_talk: timed out\n";

	signal(sig, SIG_DFL);
	if (write(2, said, sizeof(said) - 1) > 0)
		raise(sig);
}

int main(int argc, char **argv)
{
	struct talk all[CONNS];
	int i;

	if (argc < 3)
		return 2;
	server = !strcmp(argv[1], "server");
	seed = strtoull(argv[2], NULL, 10);
	pauses = getenv("RUN_TALK_PAUSES");
	state = seed * 2 + server;
	mode = (enum mode)((seed + server * (seed / MODES)) % MODES);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, too_long);
	alarm(90 * scale());
	meet(argc, argv, all);
	ping(all);
	switch (mode) {
	case BY_EDGE:
		talk_edge(all);
		break;
	case BY_POLL:
	case BY_SELECT:
		talk_poll(all);
		break;
	case BY_BLOCKING:
		talk_blocking(all);
		break;
	default:
		talk(all);
	}
	for (i = 0; i < CONNS; i++) {
		printf("%s %d: sent %llu, got %llu of %llu\n", argv[1], i,
		       (unsigned long long)all[i].sent,
		       (unsigned long long)all[i].got,
		       (unsigned long long)(all[i].pinged +
					    amount(!server, i)));
		close(all[i].fd);
	}
	return 0;
}
