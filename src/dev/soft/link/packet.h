/* SPDX-License-Identifier: MIT */
/*
 * packet.h - a RoCEv2 packet of RC, UC or UD, from the first byte behind the
 * UDP header to the last before the ICRC. docs/protocol/link.md has every field;
 * a test holds that page against the tables here.
 *
 * Pure: no I/O, no clock, no allocation. What is decoded points into the bytes
 * that were given.
 */
#ifndef SKEIN_DEV_SOFT_LINK_PACKET_H
#define SKEIN_DEV_SOFT_LINK_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PACKET_UDP_PORT 4791
#define PACKET_PAYLOAD_MAX 4096u
#define PACKET_BTH 12u
#define PACKET_HEAD_MAX (PACKET_BTH + 28u) /* BTH, AtomicETH */
#define PACKET_ICRC 4u
#define PACKET_MAX (PACKET_HEAD_MAX + PACKET_PAYLOAD_MAX + PACKET_ICRC)
#define PACKET_PKEY 0xffffu
#define PACKET_PSN_MASK 0xffffffu

/* The high three bits of an opcode. */
enum packet_transport {
	PACKET_RC = 0,
	PACKET_UC = 1,
	PACKET_UD = 3,
	PACKET_NO = 4, /* RoCEv2's own: of no transport */
};

/* Opcodes of RC (IBA table 38). UC has those of SEND and WRITE, UD those of a
 * SEND in one packet, each behind its transport: packet_op_of(). */
enum packet_op {
	PACKET_SEND_FIRST = 0x00,
	PACKET_SEND_MIDDLE = 0x01,
	PACKET_SEND_LAST = 0x02,
	PACKET_SEND_LAST_IMM = 0x03,
	PACKET_SEND_ONLY = 0x04,
	PACKET_SEND_ONLY_IMM = 0x05,
	PACKET_WRITE_FIRST = 0x06,
	PACKET_WRITE_MIDDLE = 0x07,
	PACKET_WRITE_LAST = 0x08,
	PACKET_WRITE_LAST_IMM = 0x09,
	PACKET_WRITE_ONLY = 0x0a,
	PACKET_WRITE_ONLY_IMM = 0x0b,
	PACKET_READ_REQUEST = 0x0c,
	PACKET_READ_FIRST = 0x0d,
	PACKET_READ_MIDDLE = 0x0e,
	PACKET_READ_LAST = 0x0f,
	PACKET_READ_ONLY = 0x10,
	PACKET_ACK = 0x11,
	PACKET_ATOMIC_ACK = 0x12,
	PACKET_CMP_SWAP = 0x13,
	PACKET_FETCH_ADD = 0x14,
	PACKET_SEND_LAST_INV = 0x16,
	PACKET_SEND_ONLY_INV = 0x17,
	PACKET_OPS,
	/* congestion notification, as it is on the wire (annex A17.9.3) */
	PACKET_CNP = 0x81
};

/* What follows the BTH, in this order, and what kind of packet it is. */
enum packet_part {
	PACKET_HAS_RETH = 1 << 0,
	PACKET_HAS_ATOMIC = 1 << 1, /* AtomicETH */
	PACKET_HAS_AETH = 1 << 2,
	PACKET_HAS_ATOMIC_ACK = 1 << 3, /* AtomicAckETH */
	PACKET_HAS_IMM = 1 << 4,
	PACKET_HAS_PAYLOAD = 1 << 5,
	PACKET_ANSWERS = 1 << 6, /* from a responder to its requester */
	PACKET_BEGINS = 1 << 7, /* the first packet of a message, or its only */
	PACKET_ENDS = 1 << 8,	/* the last one, or the only */
	PACKET_HAS_DETH = 1 << 9, /* before the other headers */
	PACKET_HAS_CNP = 1 << 10, /* 16 bytes that are not looked at */
	PACKET_HAS_IETH = 1 << 11,
};

/* The high three bits of AETH's syndrome, and the codes of a NAK. */
enum packet_syndrome {
	PACKET_SYN_ACK = 0x00, /* | credits */
	PACKET_SYN_RNR = 0x20, /* | timer */
	PACKET_SYN_NAK = 0x60, /* | code */
	PACKET_SYN_KIND = 0xe0,
	PACKET_SYN_VALUE = 0x1f,
	PACKET_CREDIT_NONE = 0x1f, /* credits are not counted */
};

enum packet_nak {
	PACKET_NAK_SEQUENCE = 0,
	PACKET_NAK_REQUEST = 1, /* an invalid request */
	PACKET_NAK_ACCESS = 2,
	PACKET_NAK_OPERATION = 3,
};

/* Why bytes are no packet. */
enum packet_fault {
	PACKET_OK,
	PACKET_SHORT,
	PACKET_LONG,
	PACKET_OPCODE,	/* unknown, or of another transport */
	PACKET_VERSION, /* of the transport header */
	PACKET_PAD,	/* more of it than payload, or where none may be */
	PACKET_KEY,	/* a partition key that is not ours */
	PACKET_FAULTS
};

struct packet {
	uint8_t op; /* transport and enum packet_op */
	bool solicited, ack_req;
	bool fecn, becn;
	uint16_t pkey;
	uint32_t qpn; /* of the receiver */
	uint32_t psn;
	/* DETH */
	uint32_t qkey, src_qp;
	/* RETH, or the first two AtomicETH; rkey: IETH, too */
	uint64_t va;
	uint32_t rkey;
	uint32_t len;
	/* AtomicETH: what is added is swap */
	uint64_t swap, compare;
	/* AETH */
	uint8_t syndrome;
	uint32_t msn;
	uint64_t orig; /* AtomicAckETH */
	uint32_t imm;  /* as it is in memory: verbs keep network order */
	const uint8_t *payload;
	size_t payload_len;
};

/* enum packet_part of an opcode; 0: there is no such opcode. */
unsigned packet_has(unsigned op);
/* Bytes of its headers. */
size_t packet_head_len(unsigned op);
/* buf has len bytes, without the ICRC. enum packet_fault. */
enum packet_fault packet_decode(const uint8_t *buf, size_t len,
				struct packet *p);
/* The headers into buf, which has packet_head_len() bytes; the payload, of p's
 * length, goes behind them. How many bytes pad it. */
size_t packet_encode(uint8_t *buf, const struct packet *p);

/* Sets FECN, which the check value does not cover. */
static inline void packet_mark(uint8_t *buf, size_t len)
{
	if (len > 4)
		buf[4] |= 0x80;
}

static inline uint8_t packet_op_of(enum packet_transport t, unsigned op)
{
	return (uint8_t)((unsigned)t << 5 | op);
}

static inline enum packet_transport packet_transport(unsigned op)
{
	return (enum packet_transport)(op >> 5);
}

/* Of a packet, without its transport. */
static inline unsigned packet_plain_op(unsigned op)
{
	return op & 0x1f;
}

/* Distance from b to a, modulo 2^24: negative when a is before b. */
static inline int32_t packet_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

static inline uint32_t packet_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & PACKET_PSN_MASK;
}

#endif
