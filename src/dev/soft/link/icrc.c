/* SPDX-License-Identifier: MIT */
/*
 * icrc.c - see icrc.h.
 *
 * The solution for the identification: CRCs are linear. Two packets that differ
 * in those 16 bits alone have CRCs whose difference is those bits, moved on by
 * the zero bytes behind them. Moved back, the difference is the 16 bits and
 * nothing else.
 */
#include "dev/soft/link/icrc.h"

#include "dev/soft/link/packet.h"

#include <libdeflate.h>
#include <string.h>

#define POLY 0xedb88320u /* CRC-32, bits reflected */
#define PSEUDO_LRH 8u	 /* in place of InfiniBand's local route header */
#define IPV4_LEN 20u
#define IPV6_LEN 40u
#define UDP_LEN 8u
#define HEAD_MAX (PSEUDO_LRH + IPV6_LEN + UDP_LEN + PACKET_BTH)
#define ID_OFF (PSEUDO_LRH + 4u) /* of the identification */

static void put16(uint8_t *at, size_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static size_t put_ip(uint8_t *at, const struct icrc_flow *f, uint16_t id,
		     size_t udp_len)
{
	if (icrc_flow_is_v4(f)) {
		memset(at, 0, IPV4_LEN);
		at[0] = 0x45;
		at[1] = 0xff; /* type of service */
		put16(at + 2, IPV4_LEN + udp_len);
		put16(at + 4, id);
		put16(at + 6, 0x4000); /* don't fragment */
		at[8] = 0xff;	       /* time to live */
		at[9] = 17;
		memset(at + 10, 0xff, 2); /* header checksum */
		memcpy(at + 12, f->src + 12, 4);
		memcpy(at + 16, f->dst + 12, 4);
		return IPV4_LEN;
	}
	memset(at, 0xff, 4); /* traffic class, flow label */
	at[0] = 0x6f;
	put16(at + 4, udp_len);
	at[6] = 17;
	at[7] = 0xff; /* hop limit */
	memcpy(at + 8, f->src, 16);
	memcpy(at + 24, f->dst, 16);
	return IPV6_LEN;
}

/* All that the CRC sees before the first byte behind the BTH. */
static size_t head(uint8_t *at, const struct icrc_flow *f, uint16_t id,
		   const uint8_t *pkt, size_t len)
{
	size_t udp_len = UDP_LEN + len + PACKET_ICRC, n = PSEUDO_LRH;

	memset(at, 0xff, PSEUDO_LRH);
	n += put_ip(at + n, f, id, udp_len);
	memcpy(at + n, &f->sport, 2);
	memcpy(at + n + 2, &f->dport, 2);
	put16(at + n + 4, udp_len);
	memset(at + n + 6, 0xff, 2); /* checksum */
	n += UDP_LEN;
	memcpy(at + n, pkt, PACKET_BTH);
	at[n + 4] = 0xff; /* FECN, BECN, reserved */
	return n + PACKET_BTH;
}

uint32_t icrc_of(const struct icrc_flow *f, uint16_t id, const uint8_t *pkt,
		 size_t len)
{
	uint8_t buf[HEAD_MAX];
	uint32_t crc;

	crc = libdeflate_crc32(0, buf, head(buf, f, id, pkt, len));
	return libdeflate_crc32(crc, pkt + PACKET_BTH, len - PACKET_BTH);
}

static uint32_t get_le(const uint8_t *at)
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

void icrc_put(const struct icrc_flow *f, uint16_t id, uint8_t *pkt, size_t len)
{
	uint32_t crc = icrc_of(f, id, pkt, len);
	int i;

	for (i = 0; i < 4; i++)
		pkt[len + (size_t)i] = (uint8_t)(crc >> (8 * i));
}

/* The product of two polynomials modulo POLY; bit 31 is x^0. */
static uint32_t times(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;

	for (; b; b <<= 1) {
		if (b & 0x80000000u)
			sum ^= a;
		a = a >> 1 ^ (a & 1 ? POLY : 0);
	}
	return sum;
}

/* What a difference was n zero bytes before: divided by x^(8n). */
static uint32_t back(uint32_t diff, size_t n)
{
	uint32_t step = 0x80000000u;
	int i;

	for (i = 0; i < 8; i++) /* 1 / x, eight times */
		step = step & 0x80000000u ? (step ^ POLY) << 1 | 1 : step << 1;
	for (; n; n >>= 1) {
		if (n & 1)
			diff = times(diff, step);
		step = times(step, step);
	}
	return diff;
}

bool icrc_solve(const struct icrc_flow *f, uint16_t *id, const uint8_t *pkt,
		size_t len)
{
	uint32_t diff;
	size_t total;

	if (len < PACKET_BTH + PACKET_ICRC)
		return false;
	len -= PACKET_ICRC;
	diff = icrc_of(f, *id, pkt, len) ^ get_le(pkt + len);
	if (!diff)
		return true;
	if (!icrc_flow_is_v4(f))
		return false;
	total = PSEUDO_LRH + IPV4_LEN + UDP_LEN + len;
	/* In front of its two bytes the difference is that of the
	 * identifications, in the order in which bytes enter: the low half. */
	diff = back(diff, total - ID_OFF);
	if (diff >> 16)
		return false;
	*id ^= (uint16_t)(diff << 8 | diff >> 8);
	return true;
}

bool icrc_check(const struct icrc_flow *f, const uint8_t *pkt, size_t len)
{
	uint16_t id = 0;

	return icrc_solve(f, &id, pkt, len);
}
