/* SPDX-License-Identifier: MIT */
/*
 * counts.h - how many bytes went by TCP each way, as the kernel counts them.
 */
#ifndef SKEIN_BIND_SOCKET_COUNTS_H
#define SKEIN_BIND_SOCKET_COUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct counts {
	uint64_t written; /* by this end's program */
	uint64_t read;	  /* by it, what waits in the kernel left out */
};

/* Of an established connection, with no call on it in the kernel: exact.
 * connecting: this end made it, and its SYN is counted. -ENOTCONN. */
int counts_take(int fd, bool connecting, struct counts *c);

/* Has an end closed the connection, or its side of it? */
bool counts_ended(int fd);
/* Adds what streams have carried to what the kernel has put into value, the len
 * bytes of TCP_INFO. ended: END was written; peer_ended: it has come. */
void counts_add(const struct counts *c, bool ended, bool peer_ended,
		void *value, socklen_t len);

#endif
