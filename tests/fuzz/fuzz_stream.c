/* SPDX-License-Identifier: MIT */
/*
 * fuzz_stream.c - a stream's ring, written by a peer that knows its secret.
 *
 * The input is the ring. Whatever stands there is a record whole, nothing, or
 * garbage; no byte outside the ring is read, and reading comes to an end. A first
 * byte that is odd has a valid header made for what follows, with the input's
 * own length and type, so that the checks behind the canary are reached.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "stream/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET 42

static void drain(struct stream_in *in)
{
	uint64_t begun = in->pos, sum = 0;
	enum stream_type type;
	const uint8_t *data;
	uint32_t len, i;

	while (stream_in_peek(in, &type, &data, &len) == 1) {
		skein_assert(data >= in->at.ring && len <= in->at.size &&
			     data + len <= in->at.ring + in->at.size);
		skein_assert(type >= STREAM_DATA && type <= STREAM_END);
		for (i = 0; i < len; i++)
			sum += data[i];
		stream_in_consume(in, len);
		/* One lap at most: sequence and place are never right again. */
		skein_assert(in->pos - begun <= 2 * (uint64_t)in->at.size);
	}
	skein_assert(sum <= UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Its own allocation: a read behind it is seen. */
	uint8_t *ring = aligned_alloc(64, STREAM_RING_MIN);
	static uint8_t record[(64 << 10) + 64];
	struct stream_out out;
	struct stream_in in;
	bool checksum = size && data[0] & 2;

	skein_assert(ring);
	memset(ring, 0, STREAM_RING_MIN);
	if (size > STREAM_RING_MIN)
		size = STREAM_RING_MIN;
	if (size >= 8 && data[0] & 1) {
		struct stream_place p = {.room = STREAM_PAYLOAD_MAX};
		uint32_t len =
			(data[2] | (uint32_t)data[3] << 8) % STREAM_PAYLOAD_MAX;

		memset(record, 0, sizeof(record));
		memcpy(record + STREAM_HEAD_LEN, data, size);
		stream_out_init(&out, SECRET, STREAM_RING_MIN, checksum);
		stream_out_seal(&out, &p, (enum stream_type)data[1], record,
				len);
		memcpy(ring, record, STREAM_RING_MIN);
	} else {
		memcpy(ring, data, size);
	}
	stream_in_init(&in, ring, SECRET, STREAM_RING_MIN, checksum);
	drain(&in);
	free(ring);
	return 0;
}
