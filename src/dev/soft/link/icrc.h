/* SPDX-License-Identifier: MIT */
/*
 * icrc.h - the check value at the end of a RoCEv2 packet: a CRC-32 over the IP
 * and UDP headers, with ones in the variable fields, and the packet. IBA
 * 7.8.1, annex A17.3.3; docs/protocol/link.md, "ICRC".
 *
 * A UDP socket does not show the IPv4 identification, which the CRC covers. Our
 * packets have their place in a run of segments there (segment.h), a single one
 * 0. Of others the check solves for those 16 bits: it passes if there is a value
 * that makes the CRC right.
 */
#ifndef SKEIN_DEV_SOFT_LINK_ICRC_H
#define SKEIN_DEV_SOFT_LINK_ICRC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Addresses and ports of a packet, in network order; IPv4 as ::ffff:a.b.c.d. */
struct icrc_flow {
	uint8_t src[16], dst[16];
	uint16_t sport, dport;
};

static inline bool icrc_flow_is_v4(const struct icrc_flow *f)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !__builtin_memcmp(f->dst, mapped, sizeof(mapped));
}

/* Of len bytes from the BTH on; id is the IPv4 identification. */
uint32_t icrc_of(const struct icrc_flow *f, uint16_t id, const uint8_t *pkt,
		 size_t len);
/* Appends it to len bytes. */
void icrc_put(const struct icrc_flow *f, uint16_t id, uint8_t *pkt, size_t len);
/* Is it right? len counts its 4 bytes; shorter ones than BTH and ICRC are not. */
bool icrc_check(const struct icrc_flow *f, const uint8_t *pkt, size_t len);
/* The same, faster where the identification is *id; it is in *id then. */
bool icrc_solve(const struct icrc_flow *f, uint16_t *id, const uint8_t *pkt,
		size_t len);

#endif
