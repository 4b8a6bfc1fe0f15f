/* SPDX-License-Identifier: MIT */
/*
 * frame.c - see frame.h. Numbers are in network order.
 */
#include "dev/soft/link/frame.h"

#include <string.h>

static const uint8_t magic[4] = {'S', 'K', 'L', 'T'};

static void put24(uint8_t *at, uint32_t v)
{
	at[0] = (uint8_t)(v >> 16);
	at[1] = (uint8_t)(v >> 8);
	at[2] = (uint8_t)v;
}

static uint32_t get24(const uint8_t *at)
{
	return (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
}

void frame_hello_encode(uint8_t buf[FRAME_HELLO], const struct frame_hello *h)
{
	memset(buf, 0, FRAME_HELLO);
	memcpy(buf, magic, sizeof(magic));
	buf[4] = FRAME_VERSION_1;
	put24(buf + 5, h->to_qpn);
	buf[8] = h->kind;
	put24(buf + 9, h->from_qpn);
	buf[12] = h->sealed;
	buf[13] = h->why;
	buf[14] = h->bulk;
	memcpy(buf + 16, h->id, sizeof(h->id));
}

enum frame_fault frame_hello_decode(const uint8_t *buf, size_t len,
				    struct frame_hello *h)
{
	if (memcmp(buf, magic, len < sizeof(magic) ? len : sizeof(magic)) != 0)
		return FRAME_MAGIC;
	if (len > 4 && buf[4] != FRAME_VERSION_1)
		return FRAME_VERSION;
	if (len > 8 && (buf[8] < FRAME_DIALS || buf[8] > FRAME_REFUSES))
		return FRAME_KIND;
	if (len < FRAME_HELLO)
		return FRAME_MORE;
	h->to_qpn = get24(buf + 5);
	h->kind = buf[8];
	h->from_qpn = get24(buf + 9);
	h->sealed = buf[12] & 1;
	h->why = buf[13];
	h->bulk = buf[14] > FRAME_BULK ? FRAME_CALLS : buf[14];
	memcpy(h->id, buf + 16, sizeof(h->id));
	return FRAME_OK;
}

void frame_put(uint8_t head[FRAME_HEAD], size_t len)
{
	head[0] = (uint8_t)(len >> 24);
	put24(head + 1, (uint32_t)len);
}

enum frame_fault frame_next(const uint8_t *buf, size_t len, const uint8_t **pkt,
			    size_t *n)
{
	uint32_t want;

	if (len < FRAME_HEAD)
		return FRAME_MORE;
	want = (uint32_t)buf[0] << 24 | get24(buf + 1);
	if (want > FRAME_MAX)
		return FRAME_LONG;
	if (want < PACKET_BTH)
		return FRAME_SHORT;
	if (len - FRAME_HEAD < want)
		return FRAME_MORE;
	*pkt = buf + FRAME_HEAD;
	*n = want;
	return FRAME_OK;
}
