/* SPDX-License-Identifier: MIT */
/*
 * fuzz_stream_back.c - the words of the way back, said by a peer that may say
 * anything: what goes by TCP lies in the mirror and is as long as what is left;
 * a rescue reads no more than the ring has.
 *
 * The input: lengths of records, then the peer's head, stop and moved.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "stream/back.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET 42
#define SIZE STREAM_RING_MIN
#define WORDS 24u

static uint64_t word_at(const uint8_t *data)
{
	uint64_t word;

	memcpy(&word, data, sizeof(word));
	/* Mostly near to what makes sense. */
	return word >> 63 ? word : word & 0xffff;
}

static void go(struct stream_back *b, const struct stream_out *o,
	       const uint8_t *mirror)
{
	uint64_t left = b->left, sum = 0;
	const uint8_t *data;
	uint32_t len;
	int rc;

	while ((rc = stream_back_peek(b, o, mirror, &data, &len)) == 1) {
		skein_assert(len && data >= mirror &&
			     data + len <= mirror + SIZE);
		len = len > 3 ? len / 2 : len;
		sum += len;
		stream_back_took(b, len);
	}
	skein_assert(rc < 0 || sum == left);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *mirror = aligned_alloc(64, SIZE);
	struct stream_back b = {.on = true};
	struct stream_out o;
	struct stream_in in;
	size_t i;

	skein_assert(mirror);
	memset(mirror, 0, SIZE);
	stream_out_init(&o, SECRET, SIZE, false);
	stream_in_init(&in, mirror, SECRET, SIZE, false);
	for (i = WORDS; i < size && i < WORDS + 100; i++) {
		struct stream_place p;
		uint32_t len = 1 + data[i] * 4u;

		if (!stream_out_place(&o, STREAM_DATA, &p))
			break;
		len = len < p.room ? len : p.room;
		stream_out_seal(&o, &p, STREAM_DATA, mirror + p.off, len);
	}
	if (size >= WORDS) {
		uint64_t skip = word_at(data + 16);

		if (!stream_out_head(&o, word_at(data)) &&
		    !stream_back_stop(&b, &o, mirror, word_at(data + 8)))
			go(&b, &o, mirror);
		if (stream_back_peer_moved(&b, &in, skip) &&
		    !stream_back_rescue(&b, &in, skip))
			skein_assert(in.bytes == skip);
	}
	free(mirror);
	return 0;
}
