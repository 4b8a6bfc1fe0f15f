/* SPDX-License-Identifier: MIT */
/*
 * ring.h - a stream's ring: records that one end writes and the other reads
 * (docs/protocol/stream.md, "Records"). RR-Compound, section IV-F.
 *
 * The two halves share only the ring's bytes: stream_out says where the next
 * record goes and seals it, stream_in finds it whole or not at all. Pure: no
 * I/O, no clock, no allocation.
 *
 * A RING record is the last one in its ring: those after it lie in another one,
 * larger or smaller, at the same positions. No caller of the reading half sees
 * it.
 *
 * Thread rule: each half belongs to one thread at a time, by the caller's lock.
 * The device writes the ring's bytes meanwhile.
 */
#ifndef SKEIN_STREAM_RING_H
#define SKEIN_STREAM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_HEAD_LEN 16u
#define STREAM_TAIL_LEN 8u
/* Where fewer bytes are left before the ring's end, the next record begins at
 * the ring's start. Both ends know that; no record says it. */
#define STREAM_REC_MIN 32u
#define STREAM_RING_MIN (16u << 10)
#define STREAM_RING_MAX (4u << 20)
#define STREAM_SIZES 9u /* of rings: stream_size_index() */
/* Payload of one record at most: the record is one WRITE of 64 KiB. */
#define STREAM_PAYLOAD_MAX ((64u << 10) - STREAM_HEAD_LEN - STREAM_TAIL_LEN)

enum stream_type {
	STREAM_DATA = 1,   /* bytes of the stream */
	STREAM_SWITCH = 2, /* 8 bytes: the offset from which bytes come here */
	STREAM_END = 3,	   /* nothing follows: the writer has shut down */
	STREAM_RING = 4,   /* 8 bytes: the size of the ring that follows */
};

/* As it lies in the ring; the tail follows the payload, at a multiple of 8. */
struct stream_head {
	uint64_t word;	 /* length, type, sequence: stream_word() */
	uint64_t canary; /* of the word, the place and the secret */
};
_Static_assert(sizeof(struct stream_head) == STREAM_HEAD_LEN, "on the wire");
_Static_assert(offsetof(struct stream_head, word) == 0, "on the wire");
_Static_assert(offsetof(struct stream_head, canary) == 8, "on the wire");

/* A ring's bytes; size 0: none. */
struct stream_ring {
	const uint8_t *ring;
	uint32_t size;
};

/* The writing half. */
struct stream_out {
	uint64_t secret; /* the reader's: no older byte can pass for a record */
	uint64_t pos;	 /* bytes of ring used since the beginning */
	uint64_t head;	 /* how far the reader has read, as last reported */
	uint64_t bytes;	 /* of DATA that were written */
	uint32_t size;	 /* of the ring, a power of two */
	uint32_t seq;
	bool checksum; /* the reader's device writes in any order */
	uint32_t left; /* rings that were left and not all read: by size */
	uint64_t turn; /* where this ring's first record is */
	/* the mirrors of those, and where their records end */
	struct {
		const uint8_t *mirror;
		uint64_t end;
	} old[STREAM_SIZES];
};

/* A record that lies in a ring. */
struct stream_found {
	uint64_t pos;
	uint32_t type, len;
	const uint8_t *payload;
};

/* A place for one record. */
struct stream_place {
	uint32_t off;  /* in the ring, of the header */
	uint32_t room; /* payload bytes at most */
	uint64_t pos;  /* of the header */
};

/* How far whole records have arrived, ahead of what is read. */
struct stream_arrival {
	uint64_t pos;
	uint64_t bytes; /* of DATA, since the beginning */
	struct stream_ring at;
	uint32_t seq;
	bool end; /* the last of them is an END */
};

/* The reading half. */
struct stream_in {
	uint64_t secret;
	uint64_t pos;	       /* of the record that is read, or comes next */
	uint64_t head_sent;    /* pos as last reported to the writer */
	struct stream_ring at; /* the ring in which pos is */
	struct stream_ring first; /* the one of the beginning */
	uint32_t owe; /* bytes consumed that the writer should hear of */
	uint32_t seq;
	uint32_t type;	    /* of the record at pos; 0: not seen yet */
	uint32_t len, used; /* bytes of its payload; of these, consumed */
	uint64_t bytes;	    /* of DATA that were consumed */
	struct stream_arrival ahead;
	bool checksum;
	bool turned; /* it has left a ring: stream_in_turned() follows */
	/* those that were granted and that it has not come to: by size */
	const uint8_t *next[STREAM_SIZES];
};

/* Of a size of rings. */
static inline uint32_t stream_size_index(uint32_t size)
{
	return (uint32_t)__builtin_ctz(size / STREAM_RING_MIN);
}

/* Bytes of ring of a record with this payload. */
static inline uint32_t stream_rec_len(uint32_t len)
{
	return STREAM_HEAD_LEN + ((len + 7) & ~7u) + STREAM_TAIL_LEN;
}

void stream_out_init(struct stream_out *o, uint64_t secret, uint32_t size,
		     bool checksum);
/* A place for a record: with room for a byte at least (type DATA), or for the
 * whole record. False: none. Room for an END is kept: DATA never takes it. */
bool stream_out_place(const struct stream_out *o, enum stream_type type,
		      struct stream_place *p);
/* Bytes of ring that are free, headers and all. */
static inline uint32_t stream_out_free(const struct stream_out *o)
{
	return o->size - (uint32_t)(o->pos - o->head);
}
/* The payload of len bytes is at buf + STREAM_HEAD_LEN: writes head and tail
 * around it, and takes the place. Returns the record's length in the ring. */
uint32_t stream_out_seal(struct stream_out *o, const struct stream_place *p,
			 enum stream_type type, uint8_t *buf, uint32_t len);
/* A RING record was sealed: what follows goes into a ring of this size: twice
 * that of the one that is left, or any where all was read. mirror: of the ring
 * that is left. */
void stream_out_turn(struct stream_out *o, const uint8_t *mirror,
		     uint32_t size);
/* Is there a larger ring that was left and not all read? */
static inline bool stream_out_went_down(const struct stream_out *o)
{
	return o->left >> stream_size_index(o->size);
}
/* The reader reports that it has read up to head. -EPROTO: it cannot have. */
int stream_out_head(struct stream_out *o, uint64_t head);

/* This end's record at pos, or at the ring's start after pos, in the mirror, or
 * in one that was left. -EPROTO: there is none. */
int stream_out_at(const struct stream_out *o, const uint8_t *mirror,
		  uint64_t pos, struct stream_found *found);

void stream_in_init(struct stream_in *in, const uint8_t *ring, uint64_t secret,
		    uint32_t size, bool checksum);
/* The next bytes to read: a record's type, and the rest of its payload, all of
 * which has arrived. 1; 0: nothing yet; -EPROTO: garbage. */
int stream_in_peek(struct stream_in *in, enum stream_type *type,
		   const uint8_t **data, uint32_t *len);
/* A walk over all that has arrived, beginning with what stream_in_peek() shows;
 * it consumes nothing. stream_in_next() returns as stream_in_peek(). */
struct stream_walk {
	uint64_t pos;
	struct stream_ring at;
	uint32_t seq, used;
};
void stream_in_walk(const struct stream_in *in, struct stream_walk *w);
int stream_in_next(const struct stream_in *in, struct stream_walk *w,
		   enum stream_type *type, const uint8_t **data, uint32_t *len);
/* Consumes n of the bytes that were peeked at; the last byte (or 0 of 0)
 * consumes the record. */
void stream_in_consume(struct stream_in *in, uint32_t n);
/* Reads how far records have arrived by now. ahead.seq changes with each
 * record. */
const struct stream_arrival *stream_in_ahead(struct stream_in *in);
/* Bytes of DATA that have arrived and were not consumed. */
static inline uint64_t stream_in_unread(struct stream_in *in)
{
	return stream_in_ahead(in)->bytes - in->bytes;
}
/* Its ring was left, and freed. */
static inline void stream_in_turned(struct stream_in *in)
{
	in->turned = false;
	in->owe = in->at.size / 2;
}
/* True when the writer should be told in->pos: it knows of half a ring less
 * than is free, or the reader has left a ring. */
static inline bool stream_in_owes(const struct stream_in *in)
{
	return in->pos - in->head_sent >= in->owe;
}

#endif
