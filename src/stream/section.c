/* SPDX-License-Identifier: MIT */
/*
 * section.c - an end's address in bytes.
 */
#include "stream/section.h"

#include <errno.h>
#include <string.h>

#include <skein/error.h>

void stream_addr_put(const struct stream_addr *s, struct bytes_out *out)
{
	bytes_put_mem(out, s->qp.gid.raw, 16);
	bytes_put_u32(out, s->qp.qpn);
	bytes_put_u32(out, s->qp.psn);
	bytes_put_u16(out, s->qp.lid);
	bytes_put_u8(out, s->qp.mtu);
	bytes_put_u8(out, s->qp.rd_atomic);
	bytes_put_u64(out, s->secret);
	bytes_put_u64(out, s->mem);
	bytes_put_u32(out, s->rkey);
	bytes_put_u32(out, s->ring_size);
	bytes_put_u8(out, s->checksum);
}

int stream_addr_get(struct bytes_in *in, struct stream_addr *addr)
{
	struct stream_addr s = {0};
	const uint8_t *gid = bytes_get(in, 16);
	uint8_t checksum;

	if (gid)
		memcpy(s.qp.gid.raw, gid, 16);
	s.qp.qpn = bytes_get_u32(in);
	s.qp.psn = bytes_get_u32(in);
	s.qp.lid = bytes_get_u16(in);
	s.qp.mtu = bytes_get_u8(in);
	s.qp.rd_atomic = bytes_get_u8(in);
	s.secret = bytes_get_u64(in);
	s.mem = bytes_get_u64(in);
	s.rkey = bytes_get_u32(in);
	s.ring_size = bytes_get_u32(in);
	checksum = bytes_get_u8(in);
	if (in->failed || checksum > 1 || s.ring_size < STREAM_RING_MIN ||
	    s.ring_size > STREAM_RING_MAX || s.ring_size & (s.ring_size - 1))
		return -EPROTO;
	s.checksum = checksum;
	*addr = s;
	return 0;
}

void stream_section_put(const struct stream_section *s, struct bytes_out *out)
{
	bytes_put_u32(out, s->number);
	bytes_put_u32(out, s->answer);
	if (s->answer == STREAM_TAKEN)
		stream_addr_put(&s->addr, out);
}

int stream_section_get(struct bytes_in *in, struct stream_section *section)
{
	struct stream_section s = {.number = bytes_get_u32(in)};
	uint32_t answer = bytes_get_u32(in);

	if (in->failed || answer >= STREAM_ANSWERS)
		return -SKEIN_EPEER;
	s.answer = (enum stream_answer)answer;
	if (!answer && stream_addr_get(in, &s.addr))
		return -SKEIN_EPEER;
	if (bytes_left(in))
		return -SKEIN_EPEER;
	*section = s;
	return 0;
}
