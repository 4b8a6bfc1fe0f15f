/* SPDX-License-Identifier: MIT */
/*
 * fuzz_link_packet.c - packets of the link between hosts, from anybody.
 *
 * What decodes lies inside its bytes, has what its opcode has, and encodes to
 * the same headers but for bits that are not looked at. The check value refuses
 * or takes any bytes without reading beyond them. The first bytes are also the
 * length of the packets that the kernel has merged: they are cut within what
 * came, all of it.
 */
#include "base/assert.h"
#include "dev/soft/link/icrc.h"
#include "dev/soft/link/packet.h"
#include "dev/soft/link/segment.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void cut(const uint8_t *data, size_t size)
{
	struct segment_iter c;
	size_t len, sum = 0;
	uint8_t *at;
	int seg;

	if (size < sizeof(seg))
		return;
	memcpy(&seg, data, sizeof(seg));
	segment_iter(&c, (uint8_t *)(uintptr_t)data, size, seg);
	while ((at = segment_next(&c, &len))) {
		skein_assert(at == data + sum && len && len <= size - sum);
		sum += len;
	}
	skein_assert(sum == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct icrc_flow f = {.dst = {[10] = 0xff, [11] = 0xff}};
	uint8_t buf[PACKET_HEAD_MAX];
	size_t head, unread;
	struct packet p;

	cut(data, size);
	icrc_check(&f, data, size);
	if (packet_decode(data, size, &p) != PACKET_OK)
		return 0;
	head = packet_head_len(p.op);
	skein_assert(p.payload == data + head);
	skein_assert(head + p.payload_len <= size);
	skein_assert(head + p.payload_len + 3 >= size);
	skein_assert(p.payload_len <= PACKET_PAYLOAD_MAX);
	skein_assert(packet_has(p.op) & PACKET_HAS_PAYLOAD || !p.payload_len);
	skein_assert(p.psn <= PACKET_PSN_MASK && p.qpn <= 0xffffff);
	skein_assert(packet_encode(buf, &p) == (-p.payload_len & 3));
	skein_assert(buf[0] == data[0]);
	skein_assert(!memcmp(buf + 5, data + 5, 3));
	/* in a datagram's header: between Q_Key and source QP */
	unread = packet_has(p.op) & PACKET_HAS_DETH ? 16 : head;
	if (p.op == PACKET_CNP)
		unread = PACKET_BTH;
	skein_assert(!memcmp(buf + 9, data + 9, unread - 9));
	if (packet_has(p.op) & PACKET_HAS_DETH)
		skein_assert(!memcmp(buf + 17, data + 17, head - 17));
	return 0;
}
