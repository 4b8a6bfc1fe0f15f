/* SPDX-License-Identifier: MIT */
/*
 * sender.h - packets on their way into the kernel: as many as possible in one
 * system call, runs of equal ones as segments (segment.h).
 *
 * A thread that adds packets flushes before it lets go of the sender, so none
 * is left behind without an owner: where the socket is full, that thread waits
 * for it, for 100 ms at most. What the kernel does not take after that is lost,
 * as on the wire, and counted; retries follow.
 *
 * For one thread at a time.
 */
#ifndef SKEIN_DEV_SOFT_LINK_SENDER_H
#define SKEIN_DEV_SOFT_LINK_SENDER_H

#include "dev/soft/link/segment.h"
#include "dev/soft/link/udp.h"

#include <sys/socket.h>

#define SENDER_PACKETS 64u
#define SENDER_DEVICES 8u

struct sender_run {
	const struct udp_path *path; /* until the flush */
	struct segment_run seg;
	uint32_t first; /* its first packet */
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct in6_pktinfo)) +
			  CMSG_SPACE(sizeof(uint16_t))];
	} info;
};

struct sender {
	struct skein_env *env;
	int fd;
	uint32_t n, runs;
	/* devices that do not take segments; their indices */
	uint32_t plain[SENDER_DEVICES], n_plain;
	uint64_t say_again_ns; /* that a packet is too long */
	uint64_t sent, calls, failed, waits;
	struct mmsghdr msg[SENDER_PACKETS];
	struct sender_run run[SENDER_PACKETS];
	struct iovec iov[SENDER_PACKETS];
	uint8_t buf[SENDER_PACKETS][UDP_SLOT];
};

/* In zeroed memory. */
void sender_init(struct sender *s, struct skein_env *env);
/* Room for one packet. */
uint8_t *sender_begin(struct sender *s);
/* It has len bytes there, without the ICRC, which is added; p stays until the
 * flush. */
void sender_add(struct sender *s, int fd, const struct udp_path *p, size_t len);
void sender_flush(struct sender *s);

#endif
