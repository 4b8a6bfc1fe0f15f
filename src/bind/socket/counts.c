/* SPDX-License-Identifier: MIT */
/*
 * counts.c - TCP_INFO and the queues. Bytes move from the queue to "acked", and
 * arrive, while we look: the two counts are right when nothing moved between
 * them.
 */
#include "bind/socket/counts.h"

#include "bind/socket/real.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* As <netinet/tcp.h> has them, and <linux/tcp.h> has not. */
enum {
	ESTABLISHED = 1,
	FIN_WAIT2 = 5,
	CLOSED = 7,
	CLOSE_WAIT = 8,
};

#define TRIES 1000

static int info(int fd, struct tcp_info *ti)
{
	socklen_t len = sizeof(*ti);

	memset(ti, 0, sizeof(*ti));
	if (REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, ti, &len))
		return -errno;
	if (len < offsetof(struct tcp_info, tcpi_segs_out) ||
	    ti->tcpi_state != ESTABLISHED)
		return -ENOTCONN;
	return 0;
}

int counts_take(int fd, bool connecting, struct counts *c)
{
	struct tcp_info a, b;
	int i, in, out, rc;

	for (i = 0; i < TRIES; i++) {
		rc = info(fd, &a);
		if (rc)
			return rc;
		if (REAL(ioctl)(fd, SIOCINQ, &in) ||
		    REAL(ioctl)(fd, SIOCOUTQ, &out))
			return -errno;
		rc = info(fd, &b);
		if (rc)
			return rc;
		if (a.tcpi_bytes_acked != b.tcpi_bytes_acked ||
		    a.tcpi_bytes_received != b.tcpi_bytes_received)
			continue;
		c->written = a.tcpi_bytes_acked + (uint64_t)out - connecting;
		c->read = a.tcpi_bytes_received - (uint64_t)in;
		return 0;
	}
	return -EAGAIN;
}

bool counts_ended(int fd)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	return !REAL(getsockopt)(fd, IPPROTO_TCP, TCP_INFO, &ti, &len) &&
	       ti.tcpi_state != ESTABLISHED;
}

void counts_add(const struct counts *c, bool ended, bool peer_ended,
		void *value, socklen_t len)
{
	struct tcp_info ti;

	memset(&ti, 0, sizeof(ti));
	memcpy(&ti, value, len < sizeof(ti) ? len : sizeof(ti));
	ti.tcpi_bytes_acked += c->written;
	ti.tcpi_bytes_sent += c->written;
	ti.tcpi_bytes_received += c->read;
	if (ti.tcpi_state == ESTABLISHED && peer_ended)
		ti.tcpi_state = CLOSE_WAIT;
	if (ti.tcpi_state == ESTABLISHED && ended)
		ti.tcpi_state = FIN_WAIT2;
	else if (ti.tcpi_state == CLOSE_WAIT && ended)
		ti.tcpi_state = CLOSED;
	memcpy(value, &ti, len < sizeof(ti) ? len : sizeof(ti));
}
