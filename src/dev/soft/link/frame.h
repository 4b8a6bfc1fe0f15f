/* SPDX-License-Identifier: MIT */
/*
 * frame.h - what goes over a TCP connection of the link: a hello each way, then
 * packets (packet.h), each with its length before it and without an ICRC, in
 * the records of seal.h where there is a key.
 * docs/protocol/link.md, "TCP".
 *
 * Pure: no I/O, no clock, no allocation. What is decoded points into the bytes
 * that were given.
 */
#ifndef SKEIN_DEV_SOFT_LINK_FRAME_H
#define SKEIN_DEV_SOFT_LINK_FRAME_H

#include "dev/soft/link/packet.h"

#define FRAME_VERSION_1 1
#define FRAME_HELLO 32u
#define FRAME_HEAD 4u
#define FRAME_MAX 8192u /* of a packet */

_Static_assert(FRAME_MAX >= PACKET_MAX, "every packet fits");

enum frame_fault {
	FRAME_OK,
	FRAME_MORE,    /* no fault: these are not all of its bytes */
	FRAME_MAGIC,   /* not of this protocol */
	FRAME_VERSION, /* another version of it */
	FRAME_KIND,    /* a hello of no kind */
	FRAME_SHORT,   /* less than the headers of a packet */
	FRAME_LONG,    /* more than FRAME_MAX */
	FRAME_FAULTS
};

enum frame_kind {
	FRAME_DIALS = 1,
	FRAME_ANSWERS = 2,
	FRAME_REFUSES = 3, /* and closes */
};

/* What its sender says of why it refuses. Anybody can say so: it is for a line
 * in a log. */
enum frame_why {
	FRAME_OTHER_KEY = 1,
	FRAME_UNSEALED = 2, /* it takes sealed packets alone */
	FRAME_NO_KEY = 3,   /* ... clear ones alone */
};

/* Which of the two connections of a pair of processes. */
enum frame_bulk {
	FRAME_NO_BULK, /* its sender knows of one connection alone */
	FRAME_CALLS,   /* the first one; there may be a second */
	FRAME_BULK,    /* the second one, for long messages */
};

/* Which process is it, and of which QP does it say hello to which? */
struct frame_hello {
	uint8_t kind;
	uint32_t to_qpn, from_qpn;
	/* its sender: device and process; compared byte by byte */
	uint8_t id[16];
	bool sealed;  /* seal.h: a message of its handshake follows */
	uint8_t why;  /* enum frame_why, of one that refuses */
	uint8_t bulk; /* enum frame_bulk; more is FRAME_CALLS */
};

void frame_hello_encode(uint8_t buf[FRAME_HELLO], const struct frame_hello *h);
/* The first len bytes of a connection. Garbage is refused at its first byte. */
enum frame_fault frame_hello_decode(const uint8_t *buf, size_t len,
				    struct frame_hello *h);
/* The length before a packet of so many bytes. */
void frame_put(uint8_t head[FRAME_HEAD], size_t len);
/* The packet at the beginning of len bytes: FRAME_HEAD and *n bytes of them. */
enum frame_fault frame_next(const uint8_t *buf, size_t len, const uint8_t **pkt,
			    size_t *n);

#endif
