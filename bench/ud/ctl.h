/* SPDX-License-Identifier: MIT */
/*
 * ctl.h - how the two ends of ud_rpc meet: a TCP connection beside the
 * datagrams, between two runs of the same program.
 *
 * hello, and an address for each of the client's threads; welcome, and as many
 * of the server's; in the end a byte, and what the server counted.
 */
#ifndef SKEIN_BENCH_UD_CTL_H
#define SKEIN_BENCH_UD_CTL_H

#include "dev/dev.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UD_HELLO 0x55440001u

struct ud_hello {
	uint32_t magic;
	uint32_t threads, slots, credits, size;
};

struct ud_welcome {
	int32_t rc;
	char why[124];
};

/* Where a session lives. */
struct ud_place {
	struct dev_qp_addr addr;
	uint16_t session;
};

/* What the server counted. */
struct ud_tally {
	uint64_t executed, answered_again, old, strange, lost;
	uint64_t doorbells, bursts;
};

/* Sockets, or -1 after a line that says why. listen: *port is the one taken. */
int ud_ctl_listen(uint16_t *port);
int ud_ctl_accept(int listener);
int ud_ctl_connect(const char *host, uint16_t port);

/* All of it, or false. */
bool ud_ctl_send(int fd, const void *buf, size_t len);
bool ud_ctl_recv(int fd, void *buf, size_t len);
/* Has the other end hung up? Does not wait. */
bool ud_ctl_gone(int fd);

#endif
