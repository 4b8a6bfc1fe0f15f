/* SPDX-License-Identifier: MIT */
/*
 * section.h - what two ends tell each other, in bytes: the address of a QP that
 * streams share, and the messages by which a stream is opened on it
 * (docs/protocol/stream.md, "The QP" and "Opening"). Pure.
 */
#ifndef SKEIN_STREAM_SECTION_H
#define SKEIN_STREAM_SECTION_H

#include "base/bytes.h"
#include "stream/qp.h"

#define STREAM_QP_ADDR_LEN 32u
#define STREAM_ADDR_LEN 29u

/* The first word of a message. */
enum stream_msg_type {
	STREAM_OPEN = 1,   /* the opener's end of a new stream */
	STREAM_OPENED = 2, /* the answer */
	STREAM_GROWN = 3,  /* the answer to a STREAM_GROW */
};

/* The answer of the accepting end. */
enum stream_answer {
	STREAM_TAKEN = 0,
	STREAM_NOBODY = 1, /* no listener has the number */
	STREAM_FULL = 2,   /* the listener's queue is full */
	STREAM_SHORT = 3,  /* the accepting end has no memory */
	STREAM_ANSWERS
};

struct stream_msg {
	enum stream_msg_type type;
	uint32_t number; /* OPEN: of the listener; else the receiver's */
	enum stream_answer answer; /* not OPEN */
	/* Only with STREAM_TAKEN, which OPEN has. GROWN: mem is the ring's. */
	struct stream_addr addr;
};

void stream_qp_addr_put(const struct stream_qp_addr *addr,
			struct bytes_out *out);
/* -EPROTO: too short, or no receives. */
int stream_qp_addr_get(struct bytes_in *in, struct stream_qp_addr *addr);

void stream_addr_put(const struct stream_addr *addr, struct bytes_out *out);
/* -EPROTO: too short, or a ring or a number that cannot be. */
int stream_addr_get(struct bytes_in *in, struct stream_addr *addr);

/* At most STREAM_MSG_MAX bytes. */
void stream_msg_put(const struct stream_msg *m, struct bytes_out *out);
/* -EPROTO: no message. */
int stream_msg_get(struct bytes_in *in, struct stream_msg *m);

#endif
