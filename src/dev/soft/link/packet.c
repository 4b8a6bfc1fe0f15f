/* SPDX-License-Identifier: MIT */
/*
 * packet.c - RoCEv2 packets from and to bytes: one table says which headers an
 * opcode has, and both directions go by it. IBA 9.2 to 9.4; network order.
 */
#include "dev/soft/link/packet.h"

#include <string.h>

#define BEGINS PACKET_BEGINS
#define ENDS PACKET_ENDS
#define ONLY (PACKET_BEGINS | PACKET_ENDS)
#define RETH PACKET_HAS_RETH
#define AETH (PACKET_HAS_AETH | PACKET_ANSWERS)
#define IMM PACKET_HAS_IMM
#define DATA PACKET_HAS_PAYLOAD

static const uint16_t has[PACKET_OPS] = {
	[PACKET_SEND_FIRST] = DATA | BEGINS,
	[PACKET_SEND_MIDDLE] = DATA,
	[PACKET_SEND_LAST] = DATA | ENDS,
	[PACKET_SEND_LAST_IMM] = IMM | DATA | ENDS,
	[PACKET_SEND_ONLY] = DATA | ONLY,
	[PACKET_SEND_ONLY_IMM] = IMM | DATA | ONLY,
	[PACKET_WRITE_FIRST] = RETH | DATA | BEGINS,
	[PACKET_WRITE_MIDDLE] = DATA,
	[PACKET_WRITE_LAST] = DATA | ENDS,
	[PACKET_WRITE_LAST_IMM] = IMM | DATA | ENDS,
	[PACKET_WRITE_ONLY] = RETH | DATA | ONLY,
	[PACKET_WRITE_ONLY_IMM] = RETH | IMM | DATA | ONLY,
	[PACKET_READ_REQUEST] = RETH | ONLY,
	[PACKET_READ_FIRST] = AETH | DATA | BEGINS,
	[PACKET_READ_MIDDLE] = PACKET_ANSWERS | DATA,
	[PACKET_READ_LAST] = AETH | DATA | ENDS,
	[PACKET_READ_ONLY] = AETH | DATA | ONLY,
	[PACKET_ACK] = AETH | ONLY,
	[PACKET_ATOMIC_ACK] = AETH | PACKET_HAS_ATOMIC_ACK | ONLY,
	[PACKET_CMP_SWAP] = PACKET_HAS_ATOMIC | ONLY,
	[PACKET_FETCH_ADD] = PACKET_HAS_ATOMIC | ONLY,
	[PACKET_SEND_LAST_INV] = PACKET_HAS_IETH | DATA | ENDS,
	[PACKET_SEND_ONLY_INV] = PACKET_HAS_IETH | DATA | ONLY,
};

unsigned packet_has(unsigned op)
{
	unsigned plain = packet_plain_op(op);

	switch (packet_transport(op)) {
	case PACKET_RC:
		return plain < PACKET_OPS ? has[plain] : 0;
	case PACKET_UC:
		return plain <= PACKET_WRITE_ONLY_IMM ? has[plain] : 0;
	case PACKET_UD:
		return plain == PACKET_SEND_ONLY ||
				       plain == PACKET_SEND_ONLY_IMM
			       ? has[plain] | PACKET_HAS_DETH
			       : 0;
	case PACKET_NO:
		return op == PACKET_CNP ? PACKET_HAS_CNP | ONLY : 0;
	}
	return 0;
}

size_t packet_head_len(unsigned op)
{
	unsigned h = packet_has(op);
	size_t len = PACKET_BTH;

	len += h & PACKET_HAS_DETH ? 8 : 0;
	len += h & PACKET_HAS_RETH ? 16 : 0;
	len += h & PACKET_HAS_ATOMIC ? 28 : 0;
	len += h & PACKET_HAS_AETH ? 4 : 0;
	len += h & PACKET_HAS_ATOMIC_ACK ? 8 : 0;
	len += h & PACKET_HAS_IMM ? 4 : 0;
	len += h & PACKET_HAS_IETH ? 4 : 0;
	len += h & PACKET_HAS_CNP ? 16 : 0;
	return len;
}

static uint64_t get(const uint8_t **at, unsigned bytes)
{
	uint64_t v = 0;

	while (bytes--)
		v = v << 8 | *(*at)++;
	return v;
}

static void put(uint8_t **at, uint64_t v, unsigned bytes)
{
	while (bytes--)
		*(*at)++ = (uint8_t)(v >> (8 * bytes));
}

static void get_extended(const uint8_t *at, unsigned h, struct packet *p)
{
	if (h & PACKET_HAS_DETH) {
		p->qkey = (uint32_t)get(&at, 4);
		at++;
		p->src_qp = (uint32_t)get(&at, 3);
	}
	if (h & PACKET_HAS_RETH) {
		p->va = get(&at, 8);
		p->rkey = (uint32_t)get(&at, 4);
		p->len = (uint32_t)get(&at, 4);
	}
	if (h & PACKET_HAS_ATOMIC) {
		p->va = get(&at, 8);
		p->rkey = (uint32_t)get(&at, 4);
		p->swap = get(&at, 8);
		p->compare = get(&at, 8);
	}
	if (h & PACKET_HAS_AETH) {
		p->syndrome = (uint8_t)get(&at, 1);
		p->msn = (uint32_t)get(&at, 3);
	}
	if (h & PACKET_HAS_ATOMIC_ACK)
		p->orig = get(&at, 8);
	if (h & PACKET_HAS_IETH)
		p->rkey = (uint32_t)get(&at, 4);
	if (h & PACKET_HAS_IMM)
		memcpy(&p->imm, at, 4);
}

enum packet_fault packet_decode(const uint8_t *buf, size_t len,
				struct packet *p)
{
	const uint8_t *at = buf;
	size_t head, pad;
	uint8_t bits;
	unsigned h;

	memset(p, 0, sizeof(*p));
	if (len < PACKET_BTH)
		return PACKET_SHORT;
	p->op = (uint8_t)get(&at, 1);
	h = packet_has(p->op);
	if (!h)
		return PACKET_OPCODE;
	bits = (uint8_t)get(&at, 1);
	if (bits & 0x0f)
		return PACKET_VERSION;
	p->solicited = bits & 0x80;
	pad = bits >> 4 & 3;
	p->pkey = (uint16_t)get(&at, 2);
	if ((p->pkey & 0x7fff) != (PACKET_PKEY & 0x7fff))
		return PACKET_KEY;
	bits = (uint8_t)get(&at, 1);
	p->fecn = bits & 0x80;
	p->becn = bits & 0x40;
	p->qpn = (uint32_t)get(&at, 3);
	p->ack_req = get(&at, 1) & 0x80;
	p->psn = (uint32_t)get(&at, 3);
	head = packet_head_len(p->op);
	if (len < head)
		return PACKET_SHORT;
	get_extended(at, h, p);
	len -= head;
	if (!(h & PACKET_HAS_PAYLOAD) && len)
		return PACKET_LONG;
	if (pad > len || len & 3)
		return PACKET_PAD;
	p->payload = buf + head;
	p->payload_len = len - pad;
	return p->payload_len > PACKET_PAYLOAD_MAX ? PACKET_LONG : PACKET_OK;
}

size_t packet_encode(uint8_t *buf, const struct packet *p)
{
	unsigned h = packet_has(p->op);
	size_t pad = -p->payload_len & 3;
	uint8_t *at = buf;

	put(&at, p->op, 1);
	/* 0x40: MigReq, as NICs that know no alternate path send it */
	put(&at, (p->solicited ? 0x80u : 0) | 0x40u | pad << 4, 1);
	put(&at, PACKET_PKEY, 2);
	put(&at, (p->fecn ? 0x80u : 0) | (p->becn ? 0x40u : 0), 1);
	put(&at, p->qpn, 3);
	put(&at, p->ack_req ? 0x80u : 0, 1);
	put(&at, p->psn, 3);
	if (h & PACKET_HAS_DETH) {
		put(&at, p->qkey, 4);
		put(&at, p->src_qp, 4);
	}
	if (h & PACKET_HAS_RETH) {
		put(&at, p->va, 8);
		put(&at, p->rkey, 4);
		put(&at, p->len, 4);
	}
	if (h & PACKET_HAS_ATOMIC) {
		put(&at, p->va, 8);
		put(&at, p->rkey, 4);
		put(&at, p->swap, 8);
		put(&at, p->compare, 8);
	}
	if (h & PACKET_HAS_AETH) {
		put(&at, p->syndrome, 1);
		put(&at, p->msn, 3);
	}
	if (h & PACKET_HAS_ATOMIC_ACK)
		put(&at, p->orig, 8);
	if (h & PACKET_HAS_IETH)
		put(&at, p->rkey, 4);
	if (h & PACKET_HAS_IMM)
		memcpy(at, &p->imm, 4);
	if (h & PACKET_HAS_CNP)
		memset(at, 0, 16);
	return pad;
}
