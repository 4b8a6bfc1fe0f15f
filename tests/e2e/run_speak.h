/* SPDX-License-Identifier: MIT */
/*
 * run_speak.h - what programs for test_run_tcp.py share: a connection to a server on
 * this machine that sends back what comes, and words to and fro.
 */
#ifndef TESTS_E2E_RUN_SPEAK_H
#define TESTS_E2E_RUN_SPEAK_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static inline void must(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

static inline int dial(int port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	must(!connect(fd, (void *)&sa, sizeof(sa)), "connect");
	return fd;
}

static inline void speak(int fd)
{
	char b[4];

	must(write(fd, "ping", 4) == 4, "write");
	must(recv(fd, b, 4, MSG_WAITALL) == 4, "recv");
}

#endif
