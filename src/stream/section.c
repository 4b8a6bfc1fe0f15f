/* SPDX-License-Identifier: MIT */
/*
 * section.c - addresses and messages in bytes.
 */
#include "stream/section.h"

#include <errno.h>
#include <string.h>

/* Bits of a stream's address. */
#define ADDR_CHECKSUM 1u
#define ADDR_GROWS 2u

void stream_qp_addr_put(const struct stream_qp_addr *a, struct bytes_out *out)
{
	bytes_put_mem(out, a->qp.gid.raw, 16);
	bytes_put_u32(out, a->qp.qpn);
	bytes_put_u32(out, a->qp.psn);
	bytes_put_u16(out, a->qp.lid);
	bytes_put_u8(out, a->qp.mtu);
	bytes_put_u8(out, a->qp.rd_atomic);
	bytes_put_u32(out, a->recvs);
}

int stream_qp_addr_get(struct bytes_in *in, struct stream_qp_addr *addr)
{
	struct stream_qp_addr a = {0};
	const uint8_t *gid = bytes_get(in, 16);

	if (gid)
		memcpy(a.qp.gid.raw, gid, 16);
	a.qp.qpn = bytes_get_u32(in);
	a.qp.psn = bytes_get_u32(in);
	a.qp.lid = bytes_get_u16(in);
	a.qp.mtu = bytes_get_u8(in);
	a.qp.rd_atomic = bytes_get_u8(in);
	a.recvs = bytes_get_u32(in);
	if (in->failed || !a.recvs || a.recvs > STREAM_NUMBER_MAX)
		return -EPROTO;
	*addr = a;
	return 0;
}

void stream_addr_put(const struct stream_addr *s, struct bytes_out *out)
{
	bytes_put_u64(out, s->secret);
	bytes_put_u64(out, s->mem);
	bytes_put_u32(out, s->rkey);
	bytes_put_u32(out, s->ring_size);
	bytes_put_u32(out, s->number);
	bytes_put_u8(out, (uint8_t)((s->checksum ? ADDR_CHECKSUM : 0) |
				    (s->grows ? ADDR_GROWS : 0)));
}

int stream_addr_get(struct bytes_in *in, struct stream_addr *addr)
{
	struct stream_addr s = {0};
	uint8_t bits;

	s.secret = bytes_get_u64(in);
	s.mem = bytes_get_u64(in);
	s.rkey = bytes_get_u32(in);
	s.ring_size = bytes_get_u32(in);
	s.number = bytes_get_u32(in);
	bits = bytes_get_u8(in);
	if (in->failed || bits & ~(ADDR_CHECKSUM | ADDR_GROWS) ||
	    s.ring_size < STREAM_RING_MIN || s.ring_size > STREAM_RING_MAX ||
	    s.ring_size & (s.ring_size - 1) || !s.number ||
	    s.number > STREAM_NUMBER_MAX || s.mem & 7 ||
	    s.mem > UINT64_MAX - sizeof(struct stream_ctl) - s.ring_size)
		return -EPROTO;
	s.checksum = bits & ADDR_CHECKSUM;
	s.grows = bits & ADDR_GROWS;
	*addr = s;
	return 0;
}

void stream_msg_put(const struct stream_msg *m, struct bytes_out *out)
{
	bytes_put_u32(out, m->type);
	bytes_put_u32(out, m->number);
	bytes_put_u32(out, m->answer);
	if (m->answer == STREAM_TAKEN)
		stream_addr_put(&m->addr, out);
}

int stream_msg_get(struct bytes_in *in, struct stream_msg *msg)
{
	struct stream_msg m = {0};
	uint32_t type = bytes_get_u32(in), answer;

	m.number = bytes_get_u32(in);
	answer = bytes_get_u32(in);
	if (in->failed || type < STREAM_OPEN || type > STREAM_GROWN ||
	    answer >= STREAM_ANSWERS || (type == STREAM_OPEN && answer))
		return -EPROTO;
	m.type = (enum stream_msg_type)type;
	m.answer = (enum stream_answer)answer;
	if ((!answer && stream_addr_get(in, &m.addr)) || bytes_left(in))
		return -EPROTO;
	*msg = m;
	return 0;
}
