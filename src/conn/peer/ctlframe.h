/* SPDX-License-Identifier: MIT */
/*
 * ctlframe.h - the frames of the control link. docs/protocol/control.md.
 *
 * Pure: bytes in, a frame out. A frame is a head of 8 bytes and a body. The
 * body's length is checked against the limits of its type before any byte of it
 * is read.
 */
#ifndef SKEIN_CONN_PEER_CTLFRAME_H
#define SKEIN_CONN_PEER_CTLFRAME_H

#include "base/bytes.h"

#define CTLFRAME_HEAD 8u
#define CTLFRAME_BODY_MAX 4096u
#define CTLFRAME_NAME_MAX 63u
/* A receiver that does not know a type with this bit ignores the frame. */
#define CTLFRAME_OPTIONAL 0x80u

enum ctlframe_type {
	CTLFRAME_SHAKE = 1,	 /* a handshake message */
	CTLFRAME_ALIVE = 2,	 /* keepalive */
	CTLFRAME_REGION_ADD = 3, /* a named region */
	CTLFRAME_REGION_DEL = 4, /* a region is withdrawn */
	CTLFRAME_REGION_ACK = 5, /* announcements up to seq were taken in */
	CTLFRAME_CLOSE = 6,	 /* one connection ends */
	CTLFRAME_CLOSE_ACK = 7,	 /* ... and has ended here too */
};

struct ctlframe {
	uint8_t type;
	uint16_t conn; /* which connection of the link; 0: the link itself */
	const uint8_t *body;
	uint32_t len;
};

struct ctlframe_region {
	uint64_t seq;
	uint64_t addr;
	uint64_t len;
	uint32_t rkey;
	uint32_t id;
	uint32_t access;
	char name[CTLFRAME_NAME_MAX + 1];
};

/* The first frame of buf: 1 and its length in *used; 0 when it is not complete
 * (*used: its length, or 0 when that is not known yet); -EPROTO for bytes that
 * no version of the protocol sends. */
int ctlframe_decode(const uint8_t *buf, size_t len, struct ctlframe *f,
		    size_t *used);
void ctlframe_put(struct bytes_out *out, enum ctlframe_type type, uint16_t conn,
		  const void *body, uint32_t len);

/* 0, or -EPROTO for a body that is not valid. */
int ctlframe_get_region(const struct ctlframe *f, struct ctlframe_region *r);
void ctlframe_put_region(struct bytes_out *out,
			 const struct ctlframe_region *r);
int ctlframe_get_del(const struct ctlframe *f, uint64_t *seq, uint32_t *id);
void ctlframe_put_del(struct bytes_out *out, uint64_t seq, uint32_t id);
int ctlframe_get_ack(const struct ctlframe *f, uint64_t *seq);
void ctlframe_put_ack(struct bytes_out *out, uint64_t seq);
/* code: 0 for a polite end, else an enum handshake_error. */
int ctlframe_get_close(const struct ctlframe *f, uint32_t *code);
void ctlframe_put_close(struct bytes_out *out, uint16_t conn, uint32_t code);

#endif
