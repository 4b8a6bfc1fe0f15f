/* SPDX-License-Identifier: MIT */
/*
 * run_signal.c - signals that come while a thread waits for a connection, for
 * test_run_tcp.py.
 *
 *	run_signal PORT		of a server that sends back what comes
 *
 * Until something stands on standard input it talks on a connection. Then a
 * thread waits for it in recv(), poll(), select() or epoll_wait(), and is sent a
 * signal some microseconds later. By a handler without SA_RESTART every wait
 * ends with EINTR; by one with SA_RESTART recv() goes on, until the answer to
 * what another thread sends.
 *
 * A thread that was not yet in its call when the signal came gets another one
 * after a while. On a busy machine that happens, but seldom.
 */
#include "run_speak.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TIMES 200
#define WAYS 4
#define AGAIN_NS 300000000ull

static int fd, set;
static atomic_int begun, ended, handled;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void on_signal(int sig)
{
	atomic_fetch_add(&handled, 1);
}

static void on_info(int sig, siginfo_t *info, void *context)
{
	must(info && info->si_signo == sig && context, "siginfo");
	atomic_fetch_add(&handled, 1);
}

/* SIGUSR1 interrupts; SIGUSR2 has SA_RESTART. What is set is what is told. */
static void handlers(void)
{
	struct sigaction plain = {.sa_handler = on_signal}, old;
	struct sigaction info = {.sa_sigaction = on_info,
				 .sa_flags = SA_SIGINFO | SA_RESTART};

	must(signal(SIGUSR1, SIG_DFL) == SIG_DFL, "nothing was set");
	must(!sigaction(SIGUSR1, &plain, NULL), "sigaction");
	must(!sigaction(SIGUSR1, &info, &old), "sigaction");
	must(old.sa_handler == on_signal && !(old.sa_flags & SA_SIGINFO),
	     "the old handler");
	must(!sigaction(SIGUSR1, &plain, &old), "sigaction");
	must(old.sa_sigaction == on_info && old.sa_flags & SA_SIGINFO,
	     "the old handler with siginfo");
	must(signal(SIGUSR2, on_signal) == SIG_DFL, "signal");
	must(signal(SIGUSR2, SIG_IGN) == on_signal, "signal tells the handler");
	must(!sigaction(SIGUSR2, &info, &old), "sigaction");
	must(old.sa_handler == SIG_IGN, "SIG_IGN is told");
}

static long call(int way)
{
	struct epoll_event ev;
	struct pollfd p = {fd, POLLIN, 0};
	fd_set r;
	char b[4];

	switch (way) {
	case 0:
		return recv(fd, b, 4, 0);
	case 1:
		return poll(&p, 1, -1);
	case 2:
		FD_ZERO(&r);
		FD_SET(fd, &r);
		return select(fd + 1, &r, NULL, NULL, NULL);
	default:
		return epoll_wait(set, &ev, 1, -1);
	}
}

/* What the call said: -errno, or its result. */
static void *waits(void *arg)
{
	static long said;

	atomic_store(&begun, 1);
	said = call(*(int *)arg);
	said = said < 0 ? -errno : said;
	atomic_store(&ended, 1);
	return &said;
}

/* Sends the signal until the handler has run, and again while the call goes on
 * that it should end. How often. */
static int strike(pthread_t thread, int sig, uint64_t after_ns, int ends)
{
	int sent = 0, had = atomic_load(&handled);
	uint64_t at;

	while (!atomic_load(&begun))
		;
	at = now_ns() + after_ns;
	while (!sent || (ends && !atomic_load(&ended))) {
		while (now_ns() < at && (!sent || !atomic_load(&ended)))
			;
		if (sent && atomic_load(&ended))
			break;
		pthread_kill(thread, sig);
		sent++;
		at = now_ns() + AGAIN_NS;
	}
	while (atomic_load(&handled) == had)
		;
	return sent;
}

int main(int argc, char **argv)
{
	struct pollfd in = {0, POLLIN, 0};
	struct epoll_event ev = {.events = EPOLLIN};
	int i, way, interrupted = 0, gone_on = 0, lost = 0;
	pthread_t thread;
	void *result;

	must(argc == 2, "usage: run_signal PORT");
	handlers();
	fd = dial(atoi(argv[1]));
	set = epoll_create1(0);
	must(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev), "epoll_ctl");
	while (poll(&in, 1, 0) == 0)
		speak(fd);
	for (i = 0; i < TIMES; i++) {
		/* Every fifth one is a recv() that goes on. */
		int restarts = i % 5 == 4;

		way = restarts ? 0 : i % WAYS;
		atomic_store(&begun, 0);
		atomic_store(&ended, 0);
		must(!pthread_create(&thread, NULL, waits, &way),
		     "pthread_create");
		lost += strike(thread, restarts ? SIGUSR2 : SIGUSR1,
			       5000 + (uint64_t)(i % 40) * 1000, !restarts) > 1;
		if (restarts)
			must(write(fd, "pong", 4) == 4, "write");
		pthread_join(thread, &result);
		interrupted += !restarts && *(long *)result == -EINTR;
		gone_on += restarts && *(long *)result == 4;
		speak(fd);
	}
	printf("%d interrupted, %d went on\n", interrupted, gone_on);
	if (lost > TIMES / 10) {
		printf("%d signals ended no call\n", lost);
		return 1;
	}
	return 0;
}
