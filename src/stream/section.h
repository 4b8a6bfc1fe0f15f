/* SPDX-License-Identifier: MIT */
/*
 * section.h - what the two ends of a stream tell each other before it is
 * connected: an end's address, and the section of the handshake that carries it
 * (docs/protocol/stream.md, "Opening"). Pure.
 */
#ifndef SKEIN_STREAM_SECTION_H
#define SKEIN_STREAM_SECTION_H

#include "base/bytes.h"
#include "stream/stream.h"

#define STREAM_ADDR_LEN 53u

/* The answer of the accepting end. */
enum stream_answer {
	STREAM_TAKEN = 0,
	STREAM_NOBODY = 1, /* no listener has the number */
	STREAM_FULL = 2,   /* the listener's queue is full */
	STREAM_ANSWERS
};

struct stream_section {
	uint32_t number;
	enum stream_answer answer; /* TAKEN in the offer */
	struct stream_addr addr;   /* only with TAKEN */
};

void stream_addr_put(const struct stream_addr *addr, struct bytes_out *out);
/* -EPROTO: too short, or a ring that cannot be. */
int stream_addr_get(struct bytes_in *in, struct stream_addr *addr);

void stream_section_put(const struct stream_section *s, struct bytes_out *out);
/* -SKEIN_EPEER: not a section. */
int stream_section_get(struct bytes_in *in, struct stream_section *s);

#endif
