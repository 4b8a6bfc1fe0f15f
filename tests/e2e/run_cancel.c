/* SPDX-License-Identifier: MIT */
/*
 * run_cancel.c - threads that are cancelled while they wait for a connection, for
 * test_run_tcp.py.
 *
 *	run_cancel PORT		of a server that sends back what comes
 *
 * Until something stands on standard input it talks on two connections. Then a
 * thread waits for the first one in recv(), poll() or epoll_wait(), and is
 * cancelled, at once or after some time; what it held must be free: both
 * connections go on. A thread that is to be cancelled sends a file first.
 */
#include "run_speak.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TIMES 300

static int one, other, set;

static void *waits(void *how)
{
	struct epoll_event ev;
	struct pollfd fd = {one, POLLIN, 0};
	char b[4];

	if (how == &one)
		recv(one, b, 4, 0);
	else if (how == &other)
		poll(&fd, 1, -1);
	else
		epoll_wait(set, &ev, 1, -1);
	return NULL;
}

/* The C library's sendfile() is no call at which a thread is cancelled. */
static void *sends(void *file)
{
	off_t at = 0;

	pthread_cancel(pthread_self());
	must(sendfile(one, *(int *)file, &at, 4) == 4 && at == 4, "sendfile");
	pthread_testcancel();
	return NULL;
}

static void send_file(void)
{
	int file = memfd_create("ping", MFD_CLOEXEC);
	pthread_t thread;
	void *result;
	char b[4];

	must(write(file, "ping", 4) == 4, "a file");
	must(!pthread_create(&thread, NULL, sends, &file), "pthread_create");
	pthread_join(thread, &result);
	must(result == PTHREAD_CANCELED, "the end of a sender");
	must(recv(one, b, 4, MSG_WAITALL) == 4, "recv");
	close(file);
}

int main(int argc, char **argv)
{
	void *const ways[] = {&one, &other, &set};
	struct pollfd in = {0, POLLIN, 0};
	struct epoll_event ev = {.events = EPOLLIN};
	struct timespec pause = {0};
	pthread_t thread;
	void *result;
	int i, cancelled = 0;

	must(argc == 2, "usage: run_cancel PORT");
	one = dial(atoi(argv[1]));
	other = dial(atoi(argv[1]));
	set = epoll_create1(0);
	must(!epoll_ctl(set, EPOLL_CTL_ADD, one, &ev), "epoll_ctl");
	while (poll(&in, 1, 0) == 0) {
		speak(one);
		speak(other);
	}
	for (i = 0; i < TIMES; i++) {
		must(!pthread_create(&thread, NULL, waits, ways[i % 3]),
		     "pthread_create");
		pause.tv_nsec = i % 100 * 1000 + (i % 50 == 0) * 5000000;
		nanosleep(&pause, NULL);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		cancelled += result == PTHREAD_CANCELED;
		speak(other);
		speak(one);
	}
	send_file();
	printf("%d of %d cancelled\n", cancelled, TIMES);
	return 0;
}
