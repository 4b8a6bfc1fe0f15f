/* SPDX-License-Identifier: MIT */
/*
 * back.c - the bytes that go by TCP when a stream is handed back, and those
 * that are read from the ring where the peer ends on the way. See back.h.
 */
#include "stream/back.h"

#include "base/assert.h"

#include <errno.h>

/* Walks this end's records from the peer's Head on. *pos: the record that holds
 * byte number `at` of those that follow the Head. Returns the number of these
 * bytes, or -EPROTO: the Head is not where a record begins. */
static int64_t walk(const struct stream_out *o, const uint8_t *mirror,
		    uint64_t at, uint64_t *pos, uint32_t *used)
{
	uint64_t place = o->head, sum = 0;
	struct stream_found f;

	*pos = o->pos;
	*used = 0;
	while (place < o->pos) {
		if (stream_out_at(o, mirror, place, &f))
			return -EPROTO;
		if (f.type == STREAM_DATA && *pos == o->pos &&
		    at < sum + f.len) {
			*pos = f.pos;
			*used = (uint32_t)(at - sum);
		}
		sum += f.type == STREAM_DATA ? f.len : 0;
		place = f.pos + stream_rec_len(f.len);
	}
	return (int64_t)sum;
}

int stream_back_stop(struct stream_back *b, const struct stream_out *o,
		     const uint8_t *mirror, uint64_t bytes)
{
	uint64_t pos;
	uint32_t used;
	int64_t all = walk(o, mirror, 0, &pos, &used);

	if (all < 0 || (uint64_t)all > o->bytes || bytes > o->bytes ||
	    bytes < o->bytes - (uint64_t)all)
		return -EPROTO;
	walk(o, mirror, bytes - (o->bytes - (uint64_t)all), &b->pos, &b->used);
	b->left = o->bytes - bytes;
	b->peer_stopped = true;
	return 0;
}

int stream_back_peek(struct stream_back *b, const struct stream_out *o,
		     const uint8_t *mirror, const uint8_t **data, uint32_t *len)
{
	struct stream_found f;

	while (b->left) {
		if (b->pos >= o->pos || stream_out_at(o, mirror, b->pos, &f))
			return -EPROTO;
		if (f.type == STREAM_DATA && b->used < f.len) {
			*data = f.payload + b->used;
			*len = f.len - b->used;
			return 1;
		}
		b->pos = f.pos + stream_rec_len(f.len);
		b->used = 0;
	}
	return 0;
}

void stream_back_took(struct stream_back *b, uint32_t n)
{
	skein_assert(n <= b->left);
	b->left -= n;
	b->took += n;
	b->used += n;
}

int stream_back_peer_moved(struct stream_back *b, struct stream_in *in,
			   uint64_t bytes)
{
	if (!b->on || bytes < stream_in_ahead(in)->bytes)
		return -EPROTO;
	b->peer_moved = true;
	return 0;
}

int stream_back_rescue(struct stream_back *b, struct stream_in *in, uint64_t n)
{
	enum stream_type type;
	const uint8_t *data;
	uint32_t len;

	skein_assert(b->on && !b->peer_moved && !b->rescued);
	if (n > stream_in_unread(in))
		return -EPROTO;
	while (n && stream_in_peek(in, &type, &data, &len) == 1) {
		if (len > n)
			len = (uint32_t)n;
		stream_in_consume(in, len);
		n -= type == STREAM_DATA ? len : 0;
	}
	b->rescued = true;
	return 0;
}
