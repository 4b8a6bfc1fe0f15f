/* SPDX-License-Identifier: MIT */
/*
 * sealing.h - sealed connections of the TCP carrier: the handshake behind the
 * hellos, packets into records and out of them, and what people are told where
 * that fails. docs/protocol/link.md, "Sealed".
 *
 * The hello of the end that dials goes clear, so that whichever process accepts
 * can hand the connection over; the process that owns the QPN has the key and
 * does the rest.
 */
#ifndef SKEIN_DEV_SOFT_LINK_SEALING_H
#define SKEIN_DEV_SOFT_LINK_SEALING_H

#include "dev/soft/link/key.h"
#include "dev/soft/link/tcp.h"

/* What follows a hello, by the end that dials and by the other one. */
#define SEALING_DIALS SEAL_SHAKE
#define SEALING_ANSWERS (SEAL_SHAKE + FRAME_HELLO)
/* The longest message of the handshake, hello included. */
#define SEALING_SAYS (FRAME_HELLO + SEALING_ANSWERS)
/* The first record, which says that the end that dials is there now. */
#define SEALING_FIRST (SEAL_HEAD + SEAL_TAG)

/* Records that len bytes of frames may need, and their bytes. */
#define SEALING_RECORDS(len) \
	((len) / (SEAL_PLAIN_MAX - FRAME_HEAD - PACKET_MAX) + 1)
#define SEALING_BYTES(len) \
	((len) + SEALING_RECORDS(len) * (SEAL_HEAD + SEAL_TAG))

/* Why a connection is not, or no longer, used. */
enum sealing_fault {
	SEALING_OTHER_KEY,
	SEALING_UNSEALED, /* we seal, they do not */
	SEALING_NO_KEY,	  /* they seal, we do not */
	SEALING_FORGED,	  /* a record */
	SEALING_CUT,	  /* the end within a record */
	SEALING_FAULTS
};

/* The hello that begins c, c->mine, and what follows it. Its length; 0: no
 * memory. */
size_t sealing_dial(struct soft *s, struct tcp_conn *c,
		    uint8_t buf[SEALING_SAYS]);
/* c->part has theirs, hello and all. False: not by our key. */
bool sealing_hear(struct soft *s, struct tcp_conn *c);
/* Then our hello and what follows it. */
void sealing_answer(struct tcp_conn *c, const struct frame_hello *mine,
		    uint8_t buf[SEALING_SAYS]);
/* c->part has their answer, hello and all: the same. */
bool sealing_answered(struct tcp_conn *c);
/* Frames into records of whole ones; buf has SEALING_BYTES(len). */
size_t sealing_put(struct tcp_conn *c, const uint8_t *frames, size_t len,
		   uint8_t *buf);
/* One line in the log, and not the same one again for a while. */
void sealing_tell(struct soft *s, const struct tcp_conn *c,
		  enum sealing_fault what, uint64_t *say_ns);

#endif
