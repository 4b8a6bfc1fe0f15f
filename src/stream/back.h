/* SPDX-License-Identifier: MIT */
/*
 * back.h - a stream is handed back to TCP (docs/protocol/stream.md, "The way
 * back"): each end stops reading its ring and reports how far it has read; then
 * each end sends by TCP, from its own mirror, what the other has not read.
 *
 * Pure: no I/O, no clock. Thread rule: as struct stream's.
 */
#ifndef SKEIN_STREAM_BACK_H
#define SKEIN_STREAM_BACK_H

#include "stream/ring.h"

struct stream_back {
	bool on; /* this end no longer reads its ring, nor writes the peer's */
	bool peer_stopped; /* the peer has stopped too, so `left` is known */
	bool moved;	   /* `left` went by TCP, and the peer knows */
	bool peer_moved;   /* all of the peer's bytes went by TCP */
	bool rescued;	   /* the peer ended: the ring is read again */
	uint64_t left;	   /* bytes of this end that still have to go by TCP */
	uint64_t took;	   /* ... and those that went */
	uint64_t pos;	   /* position of the record in which they begin */
	uint32_t used;	   /* bytes of its payload that do not go */
};

/* The peer stopped after `bytes` of this end's stream. -EPROTO: it cannot
 * have. */
int stream_back_stop(struct stream_back *b, const struct stream_out *o,
		     const uint8_t *mirror, uint64_t bytes);
/* The next bytes for TCP; 0: all went. -EPROTO: the mirror has no record there:
 * the peer's Head was wrong. */
int stream_back_peek(struct stream_back *b, const struct stream_out *o,
		     const uint8_t *mirror, const uint8_t **data,
		     uint32_t *len);
/* TCP took n bytes of those. */
void stream_back_took(struct stream_back *b, uint32_t n);
/* The peer's whole stream, `bytes` long, is in the part of the ring that this
 * end has read, and in TCP. -EPROTO: more has arrived in the ring, or this end
 * has not stopped. */
int stream_back_peer_moved(struct stream_back *b, struct stream_in *in,
			   uint64_t bytes);
/* TCP has ended, n bytes after the ring stopped, and the peer had not moved
 * all: the rest is in this end's ring. -EPROTO: it is not. */
int stream_back_rescue(struct stream_back *b, struct stream_in *in, uint64_t n);

static inline bool stream_back_over(const struct stream_back *b)
{
	return b->moved && b->peer_moved;
}

#endif
