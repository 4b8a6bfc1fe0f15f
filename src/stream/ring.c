/* SPDX-License-Identifier: MIT */
/*
 * ring.c - records: where they go, and how the reader knows that they are
 * whole.
 *
 * A record's canary is made from the ring's secret and the record's place in
 * the stream. So bytes of an earlier lap, which a user of the peer may have
 * chosen, never pass for a record, and nothing is zeroed. The tail proves the
 * payload: by its place where WRITEs land in ascending order, by a checksum
 * elsewhere.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"
#include "base/fence.h"
#include "stream/ring.h"

#include <errno.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

static uint64_t stream_word(uint32_t len, enum stream_type type, uint32_t seq)
{
	return (uint64_t)len | (uint64_t)type << 24 | (uint64_t)seq << 32;
}

static uint64_t head_canary(uint64_t secret, uint64_t pos, uint64_t word)
{
	return mix(word ^ mix(secret + pos));
}

static uint64_t tail_of(uint64_t canary, bool checksum, const uint8_t *payload,
			uint32_t len)
{
	if (checksum)
		return XXH3_64bits_withSeed(payload, len, canary);
	return mix(canary + 1);
}

/* The place of the next record: pos, or the ring's start where too little is
 * left before the ring's end. */
static uint64_t next_pos(uint64_t pos, uint32_t size)
{
	uint32_t left = size - (uint32_t)(pos & (size - 1));

	return left < STREAM_REC_MIN ? pos + left : pos;
}

static uint64_t load64(const void *at)
{
	const _Atomic uint64_t *word = at;

	return __atomic_load_n((const uint64_t *)(const void *)word,
			       __ATOMIC_ACQUIRE);
}

void stream_out_init(struct stream_out *o, uint64_t secret, uint32_t size,
		     bool checksum)
{
	skein_assert(size >= STREAM_RING_MIN && !(size & (size - 1)));
	*o = (struct stream_out){
		.secret = secret, .size = size, .checksum = checksum};
}

bool stream_out_place(const struct stream_out *o, enum stream_type type,
		      struct stream_place *p)
{
	const uint32_t around = STREAM_HEAD_LEN + STREAM_TAIL_LEN;
	uint64_t pos = next_pos(o->pos, o->size), end = o->head + o->size;
	uint32_t off = (uint32_t)(pos & (o->size - 1)), room;
	/* Kept for an END, and for the few bytes that it may skip at the ring's
	 * end. */
	uint32_t kept = type == STREAM_DATA ? 2 * STREAM_REC_MIN : 0;
	uint64_t have;

	have = pos < end ? end - pos : 0;
	have = have > kept ? have - kept : 0;
	if (have > o->size - off)
		have = o->size - off;
	if (have < STREAM_REC_MIN)
		return false;
	room = ((uint32_t)have - around) & ~7u;
	p->off = off;
	p->room = room < STREAM_PAYLOAD_MAX ? room : STREAM_PAYLOAD_MAX;
	p->pos = pos;
	return true;
}

uint32_t stream_out_seal(struct stream_out *o, const struct stream_place *p,
			 enum stream_type type, uint8_t *buf, uint32_t len)
{
	struct stream_head head;
	uint32_t pad = ((len + 7) & ~7u) - len;
	uint64_t tail;

	skein_assert(len <= p->room);
	head.word = stream_word(len, type, o->seq);
	head.canary = head_canary(o->secret, p->pos, head.word);
	tail = tail_of(head.canary, o->checksum, buf + STREAM_HEAD_LEN, len);
	memcpy(buf, &head, sizeof(head));
	memset(buf + STREAM_HEAD_LEN + len, 0, pad);
	memcpy(buf + STREAM_HEAD_LEN + len + pad, &tail, sizeof(tail));
	o->pos = p->pos + stream_rec_len(len);
	o->seq++;
	o->bytes += type == STREAM_DATA ? len : 0;
	return stream_rec_len(len);
}

int stream_out_head(struct stream_out *o, uint64_t head)
{
	if (head < o->head || head > o->pos)
		return -EPROTO;
	o->head = head;
	return 0;
}

static bool type_known(uint32_t type, uint32_t len)
{
	switch (type) {
	case STREAM_DATA:
		return len > 0;
	case STREAM_SWITCH:
	case STREAM_RING:
		return len == 8;
	case STREAM_END:
		return len == 0;
	default:
		return false;
	}
}

void stream_out_turn(struct stream_out *o, const uint8_t *mirror, uint32_t size)
{
	const uint32_t i = stream_size_index(o->size);

	skein_assert(size >= STREAM_RING_MIN && !(size & (size - 1)));
	skein_assert(o->pos - o->head <= size && !stream_out_went_down(o));
	o->left |= 1u << i;
	o->old[i].mirror = mirror;
	o->old[i].end = o->turn = o->pos;
	o->size = size;
}

/* The mirror in which pos is: they were left in the order of their sizes. */
static int ring_of(const struct stream_out *o, const uint8_t *mirror,
		   uint64_t pos, struct stream_ring *a)
{
	uint32_t left = o->left, i;

	if (pos >= o->turn) {
		*a = (struct stream_ring){mirror, o->size};
		return 0;
	}
	for (; left; left &= left - 1) {
		i = (uint32_t)__builtin_ctz(left);
		if (pos >= o->old[i].end)
			continue;
		*a = (struct stream_ring){o->old[i].mirror,
					  STREAM_RING_MIN << i};
		return 0;
	}
	return -EPROTO;
}

int stream_out_at(const struct stream_out *o, const uint8_t *mirror,
		  uint64_t pos, struct stream_found *found)
{
	struct stream_ring a;
	uint32_t left, len, type;
	struct stream_head head;
	const uint8_t *at;

	if (ring_of(o, mirror, pos, &a))
		return -EPROTO;
	pos = next_pos(pos, a.size);
	left = a.size - (uint32_t)(pos & (a.size - 1));
	at = a.ring + (pos & (a.size - 1));
	memcpy(&head, at, sizeof(head));
	len = (uint32_t)head.word & 0xffffffu;
	type = (uint32_t)(head.word >> 24) & 0xffu;
	if (head.canary != head_canary(o->secret, pos, head.word) ||
	    len > STREAM_PAYLOAD_MAX || stream_rec_len(len) > left ||
	    !type_known(type, len) || pos + stream_rec_len(len) > o->pos)
		return -EPROTO;
	*found = (struct stream_found){pos, type, len, at + STREAM_HEAD_LEN};
	return 0;
}

void stream_in_init(struct stream_in *in, const uint8_t *ring, uint64_t secret,
		    uint32_t size, bool checksum)
{
	skein_assert(size >= STREAM_RING_MIN && !(size & (size - 1)));
	*in = (struct stream_in){.secret = secret,
				 .at = {ring, size},
				 .first = {ring, size},
				 .owe = size / 2,
				 .ahead = {.at = {ring, size}},
				 .checksum = checksum};
}

/* Is record seq there, whole, at pos or at a's start behind it? Its header is
 * checked before any of its numbers is used. */
static int look(const struct stream_in *in, const struct stream_ring *a,
		uint64_t pos, uint32_t seq, struct stream_found *found)
{
	const uint8_t *at;
	uint64_t word, canary;
	uint32_t left, len, type;

	pos = next_pos(pos, a->size);
	at = a->ring + (pos & (a->size - 1));
	left = a->size - (uint32_t)(pos & (a->size - 1));
	word = load64(at);
	if (word >> 32 != seq)
		return 0;
	canary = load64(at + 8);
	if (canary != head_canary(in->secret, pos, word))
		return 0;
	/* The peer knows the secret, so it wrote this header: an error in it is
	 * not a torn record. */
	len = (uint32_t)word & 0xffffffu;
	type = (uint32_t)(word >> 24) & 0xffu;
	if (len > STREAM_PAYLOAD_MAX || stream_rec_len(len) > left ||
	    !type_known(type, len))
		return -EPROTO;
	if (load64(at + STREAM_HEAD_LEN + ((len + 7) & ~7u)) !=
	    tail_of(canary, in->checksum, at + STREAM_HEAD_LEN, len))
		return 0; /* not all of it yet */
	/* The loads of the payload must come after that of the tail. */
	fence_acquire();
	*found = (struct stream_found){pos, type, len, at + STREAM_HEAD_LEN};
	return 1;
}

/* The ring that a RING record in *at names. */
static int turn_to(const struct stream_in *in, const struct stream_found *f,
		   struct stream_ring *at)
{
	uint64_t size = load64(f->payload);
	uint32_t i = stream_size_index(at->size) + 1;

	if (size == 2 * (uint64_t)at->size && i < STREAM_SIZES && in->next[i])
		*at = (struct stream_ring){in->next[i], (uint32_t)size};
	else if (size == in->first.size)
		*at = in->first;
	else
		return -EPROTO;
	return 1;
}

/* The reader leaves its ring. */
static int turn(struct stream_in *in, const struct stream_found *f)
{
	int rc = turn_to(in, f, &in->at);

	if (rc < 0)
		return rc;
	if (in->at.ring == in->next[stream_size_index(in->at.size)])
		in->next[stream_size_index(in->at.size)] = NULL;
	in->pos = f->pos + stream_rec_len(f->len);
	in->seq++;
	in->turned = true;
	in->owe = 0;
	/* A peer that has changed the record meanwhile must not leave it in a
	 * ring that is about to be freed. */
	in->ahead = (struct stream_arrival){.pos = in->pos,
					    .bytes = in->bytes,
					    .at = in->at,
					    .seq = in->seq};
	return 1;
}

int stream_in_peek(struct stream_in *in, enum stream_type *type,
		   const uint8_t **data, uint32_t *len)
{
	while (!in->type) {
		struct stream_found f;
		int rc = look(in, &in->at, in->pos, in->seq, &f);

		if (rc == 1 && f.type == STREAM_RING) {
			rc = turn(in, &f);
			if (rc == 1)
				continue;
		}
		if (rc <= 0)
			return rc;
		in->pos = f.pos;
		in->type = f.type;
		in->len = f.len;
		in->used = 0;
	}
	*type = (enum stream_type)in->type;
	*data = in->at.ring + (in->pos & (in->at.size - 1)) + STREAM_HEAD_LEN +
		in->used;
	*len = in->len - in->used;
	return 1;
}

void stream_in_walk(const struct stream_in *in, struct stream_walk *w)
{
	*w = (struct stream_walk){in->pos, in->at, in->seq,
				  in->type ? in->used : 0};
}

int stream_in_next(const struct stream_in *in, struct stream_walk *w,
		   enum stream_type *type, const uint8_t **data, uint32_t *len)
{
	struct stream_found f;
	int rc;

	do {
		rc = look(in, &w->at, w->pos, w->seq, &f);
		if (rc == 1 && f.type == STREAM_RING)
			rc = turn_to(in, &f, &w->at);
		if (rc <= 0)
			return rc;
		*type = (enum stream_type)f.type;
		*data = f.payload + w->used;
		*len = f.len - w->used;
		w->pos = f.pos + stream_rec_len(f.len);
		w->seq++;
		w->used = 0;
	} while (f.type == STREAM_RING);
	return 1;
}

void stream_in_consume(struct stream_in *in, uint32_t n)
{
	skein_assert(in->type && n <= in->len - in->used);
	in->used += n;
	if (in->type == STREAM_DATA)
		in->bytes += n;
	if (in->used < in->len)
		return;
	in->pos += stream_rec_len(in->len);
	in->seq++;
	in->type = 0;
}

const struct stream_arrival *stream_in_ahead(struct stream_in *in)
{
	struct stream_arrival *a = &in->ahead;
	struct stream_found f;

	if ((int32_t)(in->seq - a->seq) > 0) {
		/* The reader has passed it. */
		a->pos = in->pos;
		a->at = in->at;
		a->seq = in->seq;
		a->bytes = in->bytes;
		if (in->type == STREAM_DATA)
			a->bytes -= in->used;
	}
	while (!a->end && look(in, &a->at, a->pos, a->seq, &f) == 1) {
		if (f.type == STREAM_RING && turn_to(in, &f, &a->at) < 0)
			break;
		a->pos = f.pos + stream_rec_len(f.len);
		a->seq++;
		a->bytes += f.type == STREAM_DATA ? f.len : 0;
		a->end = f.type == STREAM_END;
	}
	return a;
}
