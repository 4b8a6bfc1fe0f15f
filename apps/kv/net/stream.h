/* SPDX-License-Identifier: MIT */
/*
 * stream.h - frames over a nonblocking TCP socket, buffered both ways, so that
 * one system call moves all that is there. Used by both ends of the plain TCP
 * transport.
 *
 * A frame is 16 bytes of head and the payload. The head, little-endian: length of
 * the payload u32, operation u16, KV_FRAME_MARK u16, sequence u32, and room for
 * the response u32, or in a response the status (two's complement). The first
 * frame of a connection has operation 0, no payload, and the shard in its last
 * field; it is not answered. Responses come in the order of requests. A frame
 * that breaks the rules ends the connection.
 *
 * Thread rule: one thread.
 */
#ifndef KV_NET_STREAM_H
#define KV_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_FRAME_HEAD 16u
#define KV_FRAME_MARK 0x4b56
#define KV_FRAME_MAX (64u << 20)
#define KV_FRAME_HELLO 0 /* operation of the first frame; aux: the shard */

struct kv_stream {
	int fd;
	uint8_t *in, *out;
	size_t in_cap, in_pos, in_end;
	size_t out_cap, out_pos, out_end;
};

struct kv_frame {
	uint32_t len;
	uint16_t op;
	uint32_t seq;
	uint32_t aux; /* request: room for the response; response: status */
	const uint8_t *data;
};

/* Takes over the fd when it succeeds: nonblocking, without Nagle's delay.
 * -ENOMEM, or the socket's error. */
int kv_stream_init(struct kv_stream *s, int fd);
/* Closes the fd. */
void kv_stream_fini(struct kv_stream *s);

/* Reads what is there: the number of bytes, 0 when there is none now, or a
 * negative errno; -ECONNRESET at the end of the stream. Frames got before are
 * gone. */
int kv_stream_recv(struct kv_stream *s);
/* 1 and the next whole frame, valid until kv_stream_recv(); 0 when there is
 * none; -EPROTO, -ENOMEM. A frame may have at most max bytes of payload. */
int kv_stream_frame(struct kv_stream *s, uint32_t max, struct kv_frame *f);

/* Room for a frame with up to len bytes of payload, or NULL. Valid until the
 * next call on the stream; nothing is sent before kv_stream_commit(). */
uint8_t *kv_stream_reserve(struct kv_stream *s, size_t len);
/* f->data is ignored: the payload stands in the reserved room. */
void kv_stream_commit(struct kv_stream *s, const struct kv_frame *f);
/* Writes what was committed: 0 when all is gone, 1 when the socket is full, or
 * a negative errno. */
int kv_stream_send(struct kv_stream *s);

static inline size_t kv_stream_unsent(const struct kv_stream *s)
{
	return s->out_end - s->out_pos;
}

#endif
