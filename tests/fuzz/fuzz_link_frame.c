/* SPDX-License-Identifier: MIT */
/*
 * fuzz_link_frame.c - a TCP connection of the link, from anybody: a hello, then
 * frames. What is taken lies inside the bytes and encodes to the same ones; what
 * was refused stays so, whatever follows it.
 */
#include "base/assert.h"
#include "dev/soft/link/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void hello(const uint8_t *data, size_t size)
{
	enum frame_fault fault = FRAME_MORE, f;
	struct frame_hello h;
	uint8_t buf[FRAME_HELLO];
	size_t n;

	for (n = 0; n <= size && n <= FRAME_HELLO; n++) {
		f = frame_hello_decode(data, n, &h);
		skein_assert(fault == FRAME_MORE || f == fault);
		fault = f;
	}
	if (fault != FRAME_OK)
		return;
	frame_hello_encode(buf, &h);
	skein_assert(!memcmp(buf, data, 12));
	skein_assert(!memcmp(buf + 16, data + 16, 16));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *at = data, *pkt;
	size_t left = size, n;
	uint8_t head[FRAME_HEAD];

	hello(data, size);
	if (size > FRAME_HELLO) {
		at += FRAME_HELLO;
		left -= FRAME_HELLO;
	}
	while (frame_next(at, left, &pkt, &n) == FRAME_OK) {
		skein_assert(pkt == at + FRAME_HEAD);
		skein_assert(n >= PACKET_BTH && n <= FRAME_MAX);
		skein_assert(n <= left - FRAME_HEAD);
		frame_put(head, n);
		skein_assert(!memcmp(head, at, FRAME_HEAD));
		at += FRAME_HEAD + n;
		left -= FRAME_HEAD + n;
	}
	return 0;
}
