/* SPDX-License-Identifier: MIT */
/*
 * sock.c - the two ends of a raw socket, as a peer of Skein's calls.
 *
 *	sock serve tcp|unix block|spin ADDR
 *	sock call tcp|unix block|spin ADDR SIZE WINDOW MILLISECONDS
 *
 * ADDR is a port (0: a free one) of 127.0.0.1, or a path. The server says
 * "listening on ADDR", sends back every byte as it comes, and ends with its
 * first client. The client keeps WINDOW messages of SIZE bytes on their way;
 * as many as have come back leave together, by one system call. The first
 * fifth of the time is not measured. Prints one JSON object; with a window of
 * 1 it has the round trip's percentiles. "block" sleeps in recv() and poll(),
 * "spin" asks again and again without sleeping. One thread each.
 */
#include "base/hist.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	BUF_LEN = 4 << 20,
	WARM_PART = 5,
	/* Fruitless rounds until the clock is looked at. */
	CLOCK_ROUNDS = 64,
};

#define LATE_NS 5000000000u

struct end {
	int fd;
	bool spin;
	char *buf;
};

struct load {
	uint64_t size;
	uint64_t window;
	uint64_t warm_ns; /* the clock's time when measuring begins */
	uint64_t end_ns;
	uint64_t late_ns;  /* until then, while nothing has been measured */
	uint64_t begun_ns; /* when it did */
	uint64_t ops;	   /* measured */
	uint64_t all;	   /* and those before */
	uint64_t owed;	   /* bytes that may be sent now */
	uint64_t came;	   /* bytes of a message not yet whole */
	struct hist lat;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "sock: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static socklen_t addr_of(bool local, const char *text,
			 struct sockaddr_storage *to)
{
	struct sockaddr_un *un = (struct sockaddr_un *)to;
	struct sockaddr_in *in = (struct sockaddr_in *)to;

	memset(to, 0, sizeof(*to));
	if (local) {
		un->sun_family = AF_UNIX;
		if (strlen(text) >= sizeof(un->sun_path)) {
			errno = ENAMETOOLONG;
			die(text);
		}
		strcpy(un->sun_path, text);
		return sizeof(*un);
	}
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in->sin_port = htons((uint16_t)atoi(text));
	return sizeof(*in);
}

static void no_delay(int fd, bool local)
{
	int on = 1;

	if (!local &&
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
		die("TCP_NODELAY");
}

static int listen_on(bool local, const char *text)
{
	struct sockaddr_storage addr;
	socklen_t len = addr_of(local, text, &addr);
	int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0 ||
	    listen(fd, 1) != 0)
		die("listen");
	if (local) {
		printf("listening on %s\n", text);
	} else {
		len = sizeof(addr);
		if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
			die("getsockname");
		printf("listening on %u\n",
		       ntohs(((struct sockaddr_in *)&addr)->sin_port));
	}
	fflush(stdout);
	return fd;
}

static int connect_to(bool local, const char *text)
{
	struct sockaddr_storage addr;
	socklen_t len = addr_of(local, text, &addr);
	int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, len) != 0)
		die("connect");
	return fd;
}

static bool again(ssize_t n)
{
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* false: the client has left. */
static bool send_all(const struct end *e, const char *at, size_t len)
{
	while (len) {
		ssize_t n = send(e->fd, at, len,
				 MSG_NOSIGNAL | (e->spin ? MSG_DONTWAIT : 0));

		if (again(n))
			continue;
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return false;
		if (n < 0)
			die("send");
		at += n;
		len -= (size_t)n;
	}
	return true;
}

static void serve(const struct end *e)
{
	for (;;) {
		ssize_t n = recv(e->fd, e->buf, BUF_LEN,
				 e->spin ? MSG_DONTWAIT : 0);

		if (again(n))
			continue;
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return;
		if (n < 0)
			die("recv");
		if (!send_all(e, e->buf, (size_t)n))
			return;
	}
}

/* Sends of what is owed as much as fits without waiting: the server may be
 * waiting for this end to read. */
static void send_owed(const struct end *e, struct load *l)
{
	while (l->owed) {
		size_t len = l->owed < BUF_LEN ? l->owed : BUF_LEN;
		ssize_t n =
			send(e->fd, e->buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (again(n))
			return;
		if (n < 0)
			die("send");
		l->owed -= (size_t)n;
	}
}

/* Bytes that came back; 0: none yet. */
static size_t take(const struct end *e, const struct load *l)
{
	struct pollfd p = {.fd = e->fd, .events = POLLIN | POLLOUT};
	bool wait = !e->spin && !l->owed;
	ssize_t n;

	if (!e->spin && l->owed)
		poll(&p, 1, -1);
	n = recv(e->fd, e->buf, BUF_LEN, wait ? 0 : MSG_DONTWAIT);
	if (again(n))
		return 0;
	if (n <= 0)
		die("the server has gone");
	return (size_t)n;
}

/* n operations are done at now; one lone operation took ns. */
static void count(struct load *l, uint64_t n, uint64_t now, uint64_t ns)
{
	l->all += n;
	if (!l->begun_ns) {
		if (now >= l->warm_ns)
			l->begun_ns = now;
		return;
	}
	l->ops += n;
	if (l->window == 1)
		hist_record_n(&l->lat, ns, n);
}

static uint64_t call(const struct end *e, struct load *l)
{
	uint64_t now = now_ns(), before = now, rounds = 0, n;

	l->owed = l->window * l->size;
	while (now < l->end_ns || (!l->ops && now < l->late_ns)) {
		send_owed(e, l);
		l->came += take(e, l);
		n = l->came / l->size;
		rounds++;
		if (!n && rounds % CLOCK_ROUNDS)
			continue;
		now = now_ns();
		l->came -= n * l->size;
		l->owed += n * l->size;
		if (n) {
			count(l, n, now, now - before);
			before = now;
		}
	}
	return now_ns();
}

static int run_call(const struct end *e, char **words)
{
	static struct load l;
	uint64_t ms = strtoull(words[2], NULL, 10), begin = now_ns(), end;

	l.size = strtoull(words[0], NULL, 10);
	l.window = strtoull(words[1], NULL, 10);
	if (!l.size || l.size > BUF_LEN || !l.window || l.window > 65536 ||
	    !ms || ms > 100000) {
		fprintf(stderr, "sock: SIZE, WINDOW or MILLISECONDS\n");
		return 2;
	}
	l.warm_ns = begin + ms * 1000000u / WARM_PART;
	l.end_ns = begin + ms * 1000000u;
	l.late_ns = l.end_ns + LATE_NS;
	hist_init(&l.lat);
	end = call(e, &l);
	printf("{\"ops\": %llu, \"ops_all\": %llu, \"seconds\": %.9f, "
	       "\"p50_ns\": %llu, \"p99_ns\": %llu}\n",
	       (unsigned long long)l.ops, (unsigned long long)l.all,
	       l.begun_ns ? (double)(end - l.begun_ns) * 1e-9 : 0,
	       (unsigned long long)hist_percentile(&l.lat, 50),
	       (unsigned long long)hist_percentile(&l.lat, 99));
	return 0;
}

int main(int argc, char **argv)
{
	bool serving = argc == 5 && !strcmp(argv[1], "serve");
	bool local = argc > 2 && !strcmp(argv[2], "unix");
	struct end e = {.spin = argc > 3 && !strcmp(argv[3], "spin")};
	int fd, rc = 0;

	if (!serving && (argc != 8 || strcmp(argv[1], "call") != 0)) {
		fprintf(stderr, "usage: sock serve tcp|unix block|spin ADDR\n"
				"       sock call tcp|unix block|spin ADDR "
				"SIZE WINDOW MILLISECONDS\n");
		return 2;
	}
	e.buf = calloc(1, BUF_LEN);
	if (!e.buf)
		die("memory");
	if (serving) {
		fd = listen_on(local, argv[4]);
		e.fd = accept(fd, NULL, NULL);
		if (e.fd < 0)
			die("accept");
		no_delay(e.fd, local);
		serve(&e);
		close(fd);
	} else {
		e.fd = connect_to(local, argv[4]);
		no_delay(e.fd, local);
		rc = run_call(&e, argv + 5);
	}
	close(e.fd);
	free(e.buf);
	return rc;
}
