/* SPDX-License-Identifier: MIT */
/*
 * clients.c - what no stock load generator does to a redis server on this host,
 * for bars.py:
 *
 *	clients open PORT CONNS RATE SECONDS	PINGs at a fixed rate, whether or not
 *						the one before is answered
 *	clients idle PORT CONNS			eight PINGs on each connection, then
 *						none until stdin ends
 *	clients accept PORT CONNS		one connection after the other: from
 *						connect() to the first answer
 *
 * Prints one JSON object; idle prints it when the connections are quiet.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PING "PING\r\n"
#define PONG 7 /* bytes of an answer */
#define IDLE_PINGS 8
#define S 1000000000ull

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * S + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "clients: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int dial(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons((uint16_t)port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void ask(int fd)
{
	if (write(fd, PING, sizeof(PING) - 1) != sizeof(PING) - 1)
		die("write");
}

static void answered(int fd)
{
	char buf[PONG];

	for (ssize_t at = 0, n; at < PONG; at += n) {
		n = read(fd, buf + at, (size_t)(PONG - at));
		if (n <= 0)
			die("read");
	}
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void print_times(uint64_t *t, size_t n)
{
	struct rusage own;

	getrusage(RUSAGE_SELF, &own);
	qsort(t, n, sizeof(*t), by_value);
	printf("{\"answers\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f, "
	       "\"cpu_s\": %.4f}\n",
	       n, (double)t[n / 2] / 1e3, (double)t[n - 1 - n / 100] / 1e3,
	       (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
		       (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) /
			       1e6);
}

struct client {
	int fd;
	unsigned taken; /* bytes of answers */
	uint64_t first; /* of its requests that is not answered */
};

/* Request k leaves at begun + k * gap, on connection k % conns, so its time
 * begins then, whenever we come to it. */
static void open_loop(int port, unsigned conns, unsigned rate, unsigned seconds)
{
	uint64_t n = (uint64_t)rate * seconds, gap = S / rate, k = 0, got = 0;
	struct client *c = calloc(conns, sizeof(*c));
	uint64_t *times = calloc(n, sizeof(*times));
	struct epoll_event ev[64];
	int set = epoll_create1(EPOLL_CLOEXEC), i, m;
	uint64_t begun;

	if (!c || !times || set < 0)
		die("memory");
	for (unsigned j = 0; j < conns; j++) {
		struct epoll_event e = {.events = EPOLLIN, .data.u32 = j};

		c[j].fd = dial(port);
		if (epoll_ctl(set, EPOLL_CTL_ADD, c[j].fd, &e))
			die("epoll_ctl");
	}
	begun = now_ns();
	while (got < n) {
		uint64_t now = now_ns(), due = begun + k * gap;
		struct timespec wait = {0};

		for (; k < n && due <= now; k++, due += gap)
			ask(c[k % conns].fd);
		if (k == n)
			wait.tv_sec = 1;
		else
			wait.tv_nsec = (long)(due - now);
		m = epoll_pwait2(set, ev, 64, &wait, NULL);
		if (m < 0)
			die("epoll_pwait2");
		now = now_ns();
		for (i = 0; i < m; i++) {
			struct client *one = &c[ev[i].data.u32];
			char buf[PONG * 64];
			ssize_t len = read(one->fd, buf, sizeof(buf));

			if (len <= 0)
				die("read");
			one->taken += (unsigned)len;
			for (; one->taken >= PONG; one->taken -= PONG) {
				uint64_t id =
					one->first++ * conns + ev[i].data.u32;

				times[got++] = now - (begun + id * gap);
			}
		}
	}
	print_times(times, n);
}

static void idle(int port, unsigned conns)
{
	int *fd = calloc(conns, sizeof(*fd));
	char c;

	if (!fd)
		die("memory");
	for (unsigned i = 0; i < conns; i++)
		fd[i] = dial(port);
	for (int k = 0; k < IDLE_PINGS; k++)
		for (unsigned i = 0; i < conns; i++) {
			ask(fd[i]);
			answered(fd[i]);
		}
	printf("{\"conns\": %u}\n", conns);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
}

static void accepts(int port, unsigned conns)
{
	uint64_t *times = calloc(conns, sizeof(*times)), begun;

	if (!times)
		die("memory");
	for (unsigned i = 0; i < conns; i++) {
		int fd;

		begun = now_ns();
		fd = dial(port);
		ask(fd);
		answered(fd);
		times[i] = now_ns() - begun;
		close(fd);
	}
	print_times(times, conns);
}

int main(int argc, char **argv)
{
	unsigned n[4] = {0};

	for (int i = 2; i < argc && i < 6; i++)
		n[i - 2] = (unsigned)atoi(argv[i]);
	if (argc == 6 && !strcmp(argv[1], "open") && n[1] && n[2] && n[3])
		open_loop((int)n[0], n[1], n[2], n[3]);
	else if (argc == 4 && !strcmp(argv[1], "idle") && n[1])
		idle((int)n[0], n[1]);
	else if (argc == 4 && !strcmp(argv[1], "accept") && n[1])
		accepts((int)n[0], n[1]);
	else {
		fprintf(stderr,
			"usage: clients open PORT CONNS RATE SECONDS | idle "
			"PORT CONNS | accept PORT CONNS\n");
		return 2;
	}
	return 0;
}
