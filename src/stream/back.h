/* SPDX-License-Identifier: MIT */
/*
 * back.h - a stream is handed back to TCP (docs/protocol/stream.md, "The way
 * back"): each end stops reading its ring and says how far it has read; each
 * end then sends by TCP what the other has not read, out of its own mirror.
 *
 * Pure: no I/O, no clock. Thread rule: as struct stream's.
 */
#ifndef SKEIN_STREAM_BACK_H
#define SKEIN_STREAM_BACK_H

#include "stream/ring.h"

struct stream_back {
	bool on; /* our ring is not read any more, the peer's not written */
	bool peer_stopped; /* what the peer has not read is known: `left` */
	bool moved;	   /* all of it went by TCP, and the peer is told */
	bool peer_moved;   /* all of the peer's bytes went by TCP */
	bool rescued;	   /* the peer ended first: our ring is read again */
	uint64_t left;	   /* bytes of ours that are still to go by TCP */
	uint64_t pos;	   /* of the record that they begin in */
	uint32_t used;	   /* bytes of its payload that are not to go */
};

/* The peer stopped after `bytes` of our stream. -EPROTO: it cannot have. */
int stream_back_stop(struct stream_back *b, const struct stream_out *o,
		     const uint8_t *mirror, uint64_t bytes);
/* What goes by TCP next; 0: all went. -EPROTO: the mirror has no record there:
 * the peer's head was wrong. */
int stream_back_peek(struct stream_back *b, const struct stream_out *o,
		     const uint8_t *mirror, const uint8_t **data,
		     uint32_t *len);
/* TCP took n bytes of that. */
void stream_back_took(struct stream_back *b, uint32_t n);
/* The peer's whole stream, `bytes` long, is in the ring we have read and in TCP
 * by now. -EPROTO: more has arrived in our ring, or we have not stopped. */
int stream_back_peer_moved(struct stream_back *b, struct stream_in *in,
			   uint64_t bytes);
/* TCP has ended, n bytes behind where the ring took over, and the peer had not
 * moved all: the rest is in our ring. -EPROTO: it is not. */
int stream_back_rescue(struct stream_back *b, struct stream_in *in, uint64_t n);

static inline bool stream_back_over(const struct stream_back *b)
{
	return b->moved && b->peer_moved;
}

#endif
