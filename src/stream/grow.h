/* SPDX-License-Identifier: MIT */
/*
 * grow.h - a stream's rings become larger once they were full, and small again
 * when nothing passes (docs/protocol/stream.md, "Larger rings"). RR-Compound,
 * IV-F.
 *
 * The writer decides. It asks for a ring of twice the size; the peer makes one;
 * a first WRITE into it finds the way; and when the old ring is full again, a
 * RING record leads into the new one. A reader that does not read is several
 * rings behind: they stay until it has read them. After a second in which
 * nothing was written, and all was read, another RING leads back into the first
 * ring, which stays as long as the stream.
 *
 * Memory is made and freed by stream_qp_tend() alone.
 *
 * Thread rule: as struct stream's; grow_tend(), grow_look() and grow_free()
 * belong to one thread of the host.
 */
#ifndef SKEIN_STREAM_GROW_H
#define SKEIN_STREAM_GROW_H

#include "stream/host.h"

#include <infiniband/verbs.h>

#define GROW_LOOK_NS 500000000u
#define GROW_QUIET_NS 1000000000u /* a ring that was empty so long goes */
/* After a refusal so many rings are written before the writer asks again. */
#define GROW_PATIENCE 64u

struct stream;
struct stream_msg;

/* A ring or a mirror beside the stream's first ones; size 0: none. */
struct stream_part {
	struct ibv_mr *mr;
	struct stream_slot slot;
	uint32_t size;
};

enum grow_step {
	GROW_NONE,    /* nothing is under way */
	GROW_WANTED,  /* the ring was full: a mirror is to be made */
	GROW_ASKED,   /* the peer makes a ring */
	GROW_GRANTED, /* there is one: when this one is full, it is used */
};

struct stream_grow {
	uint32_t max; /* of this end's ring; the first one's size: it stays */

	/* the writing half */
	enum grow_step step;
	/* By size: the one in use, unless that is the first one; those of rings
	 * that were left; and the one of the ring that was asked for. */
	struct stream_part mirrors[STREAM_SIZES];
	/* ... and the requests that led out of rings that were left. */
	uint32_t turn_at[STREAM_SIZES];
	uint32_t next; /* size of the ring that was asked for; 0: none */
	uint64_t next_mem;
	uint32_t next_rkey;
	uint32_t probe;	  /* the request that was the first WRITE there */
	uint64_t ask_pos; /* the writer does not ask before */
	bool refused;	  /* it had to wait, for want of a larger ring */

	/* the reading half */
	/* By size: those that in.next has; the one in use, unless that is the
	 * first one; others are to be freed. */
	struct stream_part rings[STREAM_SIZES];
	uint32_t granted; /* size of the ring that the answer names; 0: none */
	bool asked;	  /* by the peer */

	/* positions at the last look, and since when they are that */
	uint64_t out_pos, out_ns, in_pos, in_ns;
};

/* The ring has no room for a byte. True: now it has. */
bool grow_full(struct stream *s);
/* Would it? */
bool grow_ready(const struct stream *s);
/* A writer waits for more room than there is: a larger ring is asked for. */
void grow_wish(struct stream *s);
/* The reader has left a ring: in.turned. */
void grow_turned(struct stream *s);
/* What the peer says: it wants a larger ring; its answer. */
void grow_ask(struct stream *s);
void grow_answer(struct stream *s, const struct stream_msg *m);
/* Posts this end's answer; false: not now. */
bool grow_post_answer(struct stream *s);

/* For qp.c: makes and frees memory; a look at a stream with larger rings. */
void grow_tend(struct stream *s);
void grow_look(struct stream *s, uint64_t now_ns);
/* Has it memory beside its first rings? */
bool grow_is_large(const struct stream *s);
void grow_free(struct stream *s);

#endif
