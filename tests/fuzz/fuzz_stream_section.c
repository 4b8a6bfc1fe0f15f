/* SPDX-License-Identifier: MIT */
/*
 * fuzz_stream_section.c - a message that opens a stream, and the address of a
 * QP, from anybody: what decodes names a ring that can be, and encodes to the
 * same bytes.
 */
#include <string.h>

#include "base/assert.h"
#include "stream/section.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes_in in = bytes_in(data, size);
	struct stream_qp_addr qp;
	struct stream_msg m;
	uint8_t buf[128];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	if (!stream_qp_addr_get(&in, &qp)) {
		stream_qp_addr_put(&qp, &out);
		skein_assert(!out.failed && !memcmp(buf, data, out.pos));
	}
	in = bytes_in(data, size);
	if (stream_msg_get(&in, &m))
		return 0;
	skein_assert(m.answer < STREAM_ANSWERS);
	if (m.answer == STREAM_TAKEN)
		skein_assert(m.addr.ring_size >= STREAM_RING_MIN &&
			     m.addr.ring_size <= STREAM_RING_MAX);
	out = bytes_out(buf, sizeof(buf));
	stream_msg_put(&m, &out);
	skein_assert(!out.failed && out.pos == size);
	skein_assert(!memcmp(buf, data, size));
	return 0;
}
