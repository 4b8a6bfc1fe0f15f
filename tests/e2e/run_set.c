/* SPDX-License-Identifier: MIT */
/*
 * run_set.c - threads that share an epoll set, for test_run.py: connections
 * come, are used until they are on streams, and are closed while the threads
 * sleep. No event has data that the program did not give, each byte comes. Of
 * `sets` each thread has a set of its own. The first set has only the first
 * connection; after that a forked child waits there. The second thread stays
 * away for a while at times.
 *
 *	run_set server [sets]		prints its port
 *	run_set client PORT ROUNDS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREADS 4
#define PINGS 200
#define MARK 0x5ce10000u
#define BELL 0x5ce1ffffu

/* Two threads may hear of the same end; one of them closes. */
static struct conn {
	pthread_mutex_t lock;
	int open;
} conns[1024];
static int epfds[THREADS], bells[THREADS]; /* of `sets`; else one */
static int sets = 1;
static atomic_bool first_over;

static void fail(const char *what, uint64_t data)
{
	printf("FAILED: %s, data %#llx: %s\n", what, (unsigned long long)data,
	       strerror(errno));
	fflush(stdout);
	_exit(1);
}

static void serve_one(int fd)
{
	struct conn *c = &conns[fd];
	char buf[256];
	ssize_t n;

	pthread_mutex_lock(&c->lock);
	while (c->open) {
		n = read(fd, buf, sizeof(buf));
		if (n < 0)
			break;
		if (n && write(fd, buf, (size_t)n) != n)
			fail("write", (uint64_t)fd);
		if (!n) {
			c->open = 0;
			close(fd);
		}
	}
	pthread_mutex_unlock(&c->lock);
}

/* Edge-triggered, for it is one thread's then, as gRPC's pollers have it. */
static void *serve(void *arg)
{
	const int number = (int)(intptr_t)arg, at = number % sets;
	struct epoll_event evs[8];
	uint64_t count;
	int i, n, round;

	for (round = 0;; round++) {
		/* One event at a time fills the buffer. */
		n = epoll_wait(epfds[at], evs, number % 2 ? 8 : 1, -1);
		if (n < 0)
			fail("epoll_wait", 0);
		for (i = 0; i < n; i++) {
			if (evs[i].data.u64 == BELL) {
				if (read(bells[at], &count, sizeof(count)) <
					    0 &&
				    errno != EAGAIN)
					fail("the bell", 0);
				continue;
			}
			if ((evs[i].data.u64 & ~0xffffull) != MARK)
				fail("an event of nobody", evs[i].data.u64);
			serve_one((int)(evs[i].data.u64 & 0xffff));
			if (sets > 1 && !at &&
			    !conns[evs[i].data.u64 & 0xffff].open)
				atomic_store(&first_over, true);
		}
		if (sets > 1 && number == 1 && round % 64 == 0)
			usleep(5000);
	}
	return NULL;
}

/* A child has its parent's first set: it hears of nothing but the program's. */
static void stay_beside(void)
{
	struct epoll_event evs[8];
	pid_t parent = getpid();
	int i, n;

	n = fork();
	if (n < 0)
		fail("fork", 0);
	if (n)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == parent) {
		n = epoll_wait(epfds[0], evs, 8, 20);
		for (i = 0; i < n; i++)
			if (evs[i].data.u64 != BELL &&
			    (evs[i].data.u64 & ~0xffffull) != MARK) {
				kill(parent, SIGKILL);
				fail("a child's event", evs[i].data.u64);
			}
	}
	_exit(0);
}

static _Noreturn void server(bool many)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = BELL};
	int i, at, fd, listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;
	uint64_t one = 1;
	int came = 0;

	sets = many ? THREADS : 1;
	for (i = 0; i < sets; i++) {
		epfds[i] = epoll_create1(EPOLL_CLOEXEC);
		bells[i] = eventfd(0, EFD_NONBLOCK);
		if (epoll_ctl(epfds[i], EPOLL_CTL_ADD, bells[i], &ev))
			fail("epoll_ctl", 0);
	}
	/* They sleep before the set has its first socket. */
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)i))
			fail("a thread", 0);
	if (bind(listener, (void *)&sa, len) || listen(listener, 64) ||
	    getsockname(listener, (void *)&sa, &len))
		fail("listen", 0);
	printf("port %d\n", ntohs(sa.sin_port));
	fflush(stdout);
	for (;;) {
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		if (fd < 0)
			fail("accept", 0);
		at = came++ && many ? 1 + came % (sets - 1) : 0;
		if (many && atomic_exchange(&first_over, false))
			stay_beside();
		pthread_mutex_lock(&conns[fd].lock);
		conns[fd].open = 1;
		pthread_mutex_unlock(&conns[fd].lock);
		ev.events = EPOLLIN | EPOLLET | EPOLLRDHUP;
		ev.data.u64 = MARK | (uint64_t)fd;
		if (epoll_ctl(epfds[at], EPOLL_CTL_ADD, fd, &ev) ||
		    write(bells[at], &one, sizeof(one)) != sizeof(one))
			fail("a connection", (uint64_t)fd);
	}
}

static void *talk(void *arg)
{
	const char **argv = arg;
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons((uint16_t)atoi(argv[2]))};
	int i, k, fd, rounds = atoi(argv[3]);
	char out[32], in[32];

	for (i = 0; i < rounds; i++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (void *)&sa, sizeof(sa)))
			fail("connect", 0);
		for (k = 0; k < PINGS; k++) {
			snprintf(out, sizeof(out), "%015d%015d.", i, k);
			if (write(fd, out, 31) != 31 ||
			    recv(fd, in, 31, MSG_WAITALL) != 31 ||
			    memcmp(in, out, 31))
				fail("a ping", (uint64_t)k);
		}
		close(fd);
	}
	return NULL;
}

static unsigned scale(void)
{
	const char *s = getenv("SKEIN_TEST_TIME_SCALE");
	int n = s ? atoi(s) : 1;

	return n > 1 ? (unsigned)n : 1;
}

/* The runner takes a failure for one by time by these words. */
static void too_long(int sig)
{
	static const char said[] = "run_set: timed out\n";

	signal(sig, SIG_DFL);
	if (write(2, said, sizeof(said) - 1) > 0)
		raise(sig);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int i;

	signal(SIGALRM, too_long);
	alarm(90 * scale());
	if (argc >= 2 && !strcmp(argv[1], "server"))
		server(argc > 2);
	if (argc < 4)
		return 2;
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, talk, argv))
			fail("a thread", 0);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("done");
	return 0;
}
