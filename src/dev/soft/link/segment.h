/* SPDX-License-Identifier: MIT */
/*
 * segment.h - several packets in one system call, as UDP_SEGMENT and UDP_GRO
 * have them: all of the first one's length but the last, which may be shorter.
 *
 * Pure: no socket. IPv4's identification of a run's n-th packet is n, which the
 * ICRC covers (icrc.h).
 */
#ifndef SKEIN_DEV_SOFT_LINK_SEGMENT_H
#define SKEIN_DEV_SOFT_LINK_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEGMENT_MAX 64u /* packets of a run: older kernels take no more */
/* Bytes of a run: with the headers of IP and UDP in front below 64 KiB. */
#define SEGMENT_BYTES 65000u

/* Packets that are sent by one call; all zero: none yet. */
struct segment_run {
	size_t len; /* of the first */
	size_t bytes;
	uint32_t n;
	bool ended; /* by a shorter one */
};

/* One more at the end. False: it does not fit there. */
bool segment_add(struct segment_run *r, size_t len);

/* What came in one piece of so many bytes, in packets of seg; seg is what the
 * kernel says, and 0 or nonsense means that it is one packet. */
struct segment_iter {
	uint8_t *at;
	size_t left, seg;
};

void segment_iter(struct segment_iter *c, uint8_t *buf, size_t len, int seg);
/* The next packet, or NULL. */
uint8_t *segment_next(struct segment_iter *c, size_t *len);

#endif
