/* SPDX-License-Identifier: MIT */
/*
 * nobody.h - an address at which nobody listens. A port of a number that the
 * test thought of may belong to anybody.
 */
#ifndef SKEIN_TESTS_NOBODY_H
#define SKEIN_TESTS_NOBODY_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define NOBODY_LEN 32

/* The socket that keeps the port, to be closed by the caller; or -1. */
static inline int nobody_at(char addr[NOBODY_LEN])
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (void *)&in, len) ||
	    getsockname(fd, (void *)&in, &len))
		return -1;
	snprintf(addr, NOBODY_LEN, "127.0.0.1:%u", ntohs(in.sin_port));
	return fd;
}

#endif
