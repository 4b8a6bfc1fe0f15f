/* SPDX-License-Identifier: MIT */
/*
 * many_sock.c - the same over sockets, to compare with: blocking TCP by a thread
 * a client, a Unix socket between two processes, and the floor: fork, exec, a
 * Unix socket connected, one byte there and back. See many.h.
 */
#include "many.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static bool whole(int fd, void *buf, size_t len)
{
	return recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len;
}

static void *echo_thread(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char buf[MANY_LEN];

	while (whole(fd, buf, sizeof(buf)) &&
	       send(fd, buf, sizeof(buf), MSG_NOSIGNAL) == sizeof(buf))
		;
	close(fd);
	return NULL;
}

static void echo_start(int fd)
{
	pthread_t thread;
	int rc = -pthread_create(&thread, NULL, echo_thread,
				 (void *)(intptr_t)fd);

	if (rc)
		many_die("thread", rc);
	pthread_detach(thread);
}

static void *accept_thread(void *arg)
{
	int one = 1, listener = (int)(intptr_t)arg;

	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		echo_start(fd);
	}
	return NULL;
}

/* A port of loopback that listens. */
static int listening(struct sockaddr_in *at)
{
	socklen_t len = sizeof(*at);
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*at = (struct sockaddr_in){.sin_family = AF_INET};
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (s < 0 || bind(s, (struct sockaddr *)at, len) || listen(s, 1024) ||
	    getsockname(s, (struct sockaddr *)at, &len))
		many_die("serving", -errno);
	return s;
}

/* tcp-serve: as serve. */
int many_tcp_serve(int argc, char **argv)
{
	struct sockaddr_in at;
	int s = listening(&at);
	pthread_t thread;

	if (pthread_create(&thread, NULL, accept_thread, (void *)(intptr_t)s))
		many_die("serving", -errno);
	printf("addr=127.0.0.1:%u\n", ntohs(at.sin_port));
	fflush(stdout);
	many_await_eof();
	printf("switches=%ld\n", many_switches());
	fflush(stdout);
	_Exit(0);
}

struct taking {
	int listener;
	size_t len;
};

static void *take_thread(void *arg)
{
	static char buf[PASS_MAX];
	struct taking *t = arg;

	for (;;) {
		int fd = accept(t->listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (whole(fd, buf, t->len))
			send(fd, buf, MANY_LEN, MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

/* tcp-take LEN: takes LEN bytes of each connection, one after the other, and
 * answers with MANY_LEN. */
int many_tcp_take(int argc, char **argv)
{
	struct sockaddr_in at;
	struct taking t = {listening(&at), many_number(argv[1])};
	pthread_t thread;

	(void)argc;
	if (t.len > PASS_MAX || pthread_create(&thread, NULL, take_thread, &t))
		many_die("serving", -EINVAL);
	printf("addr=127.0.0.1:%u\n", ntohs(at.sin_port));
	fflush(stdout);
	many_await_eof();
	_Exit(0);
}

static void sock_calls(int fd, unsigned long count, uint64_t ms)
{
	struct many_lat lat = {0};
	char buf[MANY_LEN] = {1};
	long switches = many_switches();
	uint64_t now = many_now_ns(), begun = now, end = now + ms * 1000000u;

	for (unsigned long i = 0; count ? i < count : now < end; i++) {
		uint64_t t0 = now;

		if (send(fd, buf, sizeof(buf), MSG_NOSIGNAL) != sizeof(buf) ||
		    !whole(fd, buf, sizeof(buf)))
			many_die("call", -errno);
		now = many_now_ns();
		many_lat_add(&lat, now - t0);
	}
	printf("ns=%llu switches=%ld", (unsigned long long)(now - begun),
	       many_switches() - switches);
	many_lat_print(&lat);
	putchar('\n');
}

static int connected(const char *addr)
{
	const char *colon = strrchr(addr, ':');
	struct sockaddr_in to = {.sin_family = AF_INET};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)many_number(colon ? colon + 1 : ""));
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)))
		many_die("connection", -errno);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* tcp-pass ADDR LEN COUNT: a connection, LEN bytes, the answer, the end; so
 * COUNT times. */
int many_tcp_pass(int argc, char **argv)
{
	unsigned long count = many_number(argv[3]);
	size_t len = many_number(argv[2]);
	static char buf[PASS_MAX] = {1};
	struct many_lat lat = {0};

	(void)argc;
	if (len > PASS_MAX)
		many_die("length", -EINVAL);
	for (unsigned long i = 0; i < count; i++) {
		uint64_t t0 = many_now_ns();
		int fd = connected(argv[1]);

		if (send(fd, buf, len, MSG_NOSIGNAL) != (ssize_t)len ||
		    !whole(fd, buf, MANY_LEN))
			many_die("pass", -errno);
		many_lat_add(&lat, many_now_ns() - t0);
		close(fd);
	}
	many_lat_print(&lat);
	putchar('\n');
	return 0;
}

/* tcp-calls ADDR COUNT MS: as calls. */
int many_tcp_calls(int argc, char **argv)
{
	int fd = connected(argv[1]);
	sock_calls(fd, many_number(argv[2]), many_number(argv[3]));
	return 0;
}

/* unix-calls COUNT: a socket pair, the other end in a process of its own. */
int many_unix_calls(int argc, char **argv)
{
	unsigned long count = many_number(argv[1]);
	int fd[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		many_die("socketpair", -errno);
	pid = fork();
	if (pid < 0)
		many_die("fork", -errno);
	if (!pid) {
		close(fd[0]);
		echo_thread((void *)(intptr_t)fd[1]);
		_exit(0);
	}
	close(fd[1]);
	sock_calls(fd[0], count, 0);
	close(fd[0]);
	waitpid(pid, NULL, 0);
	return 0;
}

static socklen_t unix_addr(struct sockaddr_un *un, const char *name)
{
	int n;

	*un = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* in the abstract name space */
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

/* floor-child NAME: connects, and has one byte go there and back. */
int many_floor_child(int argc, char **argv)
{
	struct sockaddr_un un;
	socklen_t len = unix_addr(&un, argv[1]);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&un, len) ||
	    send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || !whole(fd, &byte, 1))
		many_die("floor", -errno);
	/* the clock stops with the byte's way back */
	return send(fd, &byte, 1, MSG_NOSIGNAL) == 1 ? 0 : 1;
}

/* floor N: so many times, one after the other. */
int many_floor(int argc, char **argv)
{
	unsigned long n = many_number(argv[1]);
	struct many_lat lat = {0};
	struct sockaddr_un un;
	char name[64], byte;
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len;

	snprintf(name, sizeof(name), "skein-bench-floor-%d", (int)getpid());
	len = unix_addr(&un, name);
	if (s < 0 || bind(s, (struct sockaddr *)&un, len) || listen(s, 8))
		many_die("floor", -errno);
	for (unsigned long i = 0; i < n; i++) {
		uint64_t begun = many_now_ns();
		pid_t pid = fork();
		int fd;

		if (!pid) {
			execl("/proc/self/exe", "many", "floor-child", name,
			      (char *)NULL);
			_exit(127);
		}
		fd = accept(s, NULL, NULL);
		if (pid < 0 || fd < 0 || !whole(fd, &byte, 1) ||
		    send(fd, &byte, 1, MSG_NOSIGNAL) != 1 ||
		    !whole(fd, &byte, 1))
			many_die("floor", -errno);
		many_lat_add(&lat, many_now_ns() - begun);
		close(fd);
		waitpid(pid, NULL, 0);
	}
	printf("n=%lu", n);
	many_lat_print(&lat);
	putchar('\n');
	return 0;
}
