/* SPDX-License-Identifier: MIT */
/*
 * fuzz_stream_section.c - a stream's section of the handshake, from anybody:
 * what decodes names a ring that can be, and encodes to the same bytes.
 */
#include <string.h>

#include "base/assert.h"
#include "stream/section.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes_in in = bytes_in(data, size);
	struct stream_section s;
	uint8_t buf[128];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	if (stream_section_get(&in, &s))
		return 0;
	skein_assert(s.answer < STREAM_ANSWERS);
	if (s.answer == STREAM_TAKEN)
		skein_assert(s.addr.ring_size >= STREAM_RING_MIN &&
			     s.addr.ring_size <= STREAM_RING_MAX);
	stream_section_put(&s, &out);
	skein_assert(!out.failed && out.pos == size);
	skein_assert(!memcmp(buf, data, size));
	return 0;
}
