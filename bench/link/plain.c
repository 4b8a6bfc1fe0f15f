/* SPDX-License-Identifier: MIT */
/*
 * plain.c - what plain sockets do in the places of the link between hosts:
 *
 *	plain tcp-bw|tcp-ping|udp-ping|tcp-wait-ping|udp-wait-ping serve PORT
 *	plain ... ADDRESS PORT SECONDS BYTES
 *
 * tcp-bw sends messages of BYTES and prints bytes a second; a ping spins on
 * non-blocking sockets at both ends, or (wait) sleeps in recv(), and prints the
 * median round trip in ns.
 * A server serves one client.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES 2000000u
#define MOST (4u << 20)

static bool udp, pings, waits;
static char buf[MOST];

static void die(const char *what)
{
	fprintf(stderr, "plain: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* False: the other end has closed. */
static bool get(int fd, size_t len)
{
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		n = recv(fd, buf + have, len - have, waits ? 0 : MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			continue;
		if (n < 0)
			die("recv");
		if (n == 0)
			return false;
		have += (size_t)n;
		if (udp)
			break;
	}
	return true;
}

static void put(int fd, size_t len)
{
	size_t at = 0;
	ssize_t n;

	while (at < len) {
		n = send(fd, buf + at, len - at, MSG_NOSIGNAL);
		if (n < 0)
			die("send");
		at += (size_t)n;
	}
}

static int dial(const char *address, const char *port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0), on = 1;

	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		die(address);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		die("connect");
	if (!udp)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static int wait_client(const char *port)
{
	struct sockaddr_in here = {.sin_family = AF_INET,
				   .sin_port = htons((uint16_t)atoi(port))};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	int fd = socket(AF_INET, udp ? SOCK_DGRAM : SOCK_STREAM, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&here, sizeof(here)))
		die("bind");
	if (!udp && listen(fd, 1))
		die("listen");
	puts("waiting");
	fflush(stdout);
	if (udp) {
		if (recvfrom(fd, buf, 1, MSG_PEEK, (struct sockaddr *)&from,
			     &len) < 0 ||
		    connect(fd, (struct sockaddr *)&from, len))
			die("recvfrom");
		return fd;
	}
	fd = accept(fd, NULL, NULL);
	if (fd < 0)
		die("accept");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

/* A message begins with its length; 0 ends a run. */
static void serve(int fd, size_t bytes)
{
	uint32_t len;

	if (!pings) {
		while (recv(fd, buf, sizeof(buf), 0) > 0)
			;
		return;
	}
	while (get(fd, bytes)) {
		memcpy(&len, buf, sizeof(len));
		if (!len)
			break;
		put(fd, bytes);
	}
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void ping(int fd, double seconds, size_t bytes)
{
	uint64_t end = now_ns() + (uint64_t)(seconds * 1e9), from, to;
	uint32_t *took = malloc(SAMPLES * sizeof(*took)), n = 0, one = 1;

	if (!took)
		die("malloc");
	do {
		memcpy(buf, &one, sizeof(one));
		from = now_ns();
		put(fd, bytes);
		get(fd, bytes);
		to = now_ns();
		took[n++] = (uint32_t)(to - from);
	} while (to < end && n < SAMPLES);
	memset(buf, 0, sizeof(one));
	put(fd, bytes);
	qsort(took, n, sizeof(*took), compare);
	printf("%u\n", took[n / 2]);
	free(took);
}

static void stream(int fd, double seconds, size_t bytes)
{
	uint64_t begin = now_ns(), sent = 0, to;

	do {
		put(fd, bytes);
		sent += bytes;
		to = now_ns();
	} while ((double)(to - begin) < seconds * 1e9);
	shutdown(fd, SHUT_WR);
	/* what is not there yet does not count as sent for nothing */
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
	printf("%.0f\n", (double)sent * 1e9 / (double)(now_ns() - begin));
}

int main(int argc, char **argv)
{
	size_t bytes = argc > 5 ? (size_t)atol(argv[5]) : 64;

	if (argc < 4 || bytes < 4 || bytes > MOST) {
		fprintf(stderr, "usage: plain KIND serve PORT [0 BYTES], or "
				"plain KIND ADDRESS PORT SECONDS BYTES\n");
		return 2;
	}
	udp = !strncmp(argv[1], "udp", 3);
	pings = strstr(argv[1], "ping") != NULL;
	waits = strstr(argv[1], "wait") != NULL;
	if (!strcmp(argv[2], "serve"))
		serve(wait_client(argv[3]), bytes);
	else if (pings)
		ping(dial(argv[2], argv[3]), atof(argv[4]), bytes);
	else
		stream(dial(argv[2], argv[3]), atof(argv[4]), bytes);
	return 0;
}
