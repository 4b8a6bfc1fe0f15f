/* SPDX-License-Identifier: MIT */
/*
 * peer.h - the two ends of the reliability tests, by the public interface
 * alone: what a call looks like, so that a lost, doubled or changed one shows.
 *
 * A request is a header and fill bytes that follow from its sequence number;
 * the answer repeats the header, with the fill bytes inverted.
 */
#ifndef E2E_PEER_H
#define E2E_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <skein/skein.h>

#define PEER_CALL 1
#define PEER_FILL_MAX 40000

struct peer_head {
	uint64_t seq; /* from 0, without a gap, on each connection */
	uint64_t fill_len;
};

/* How many fill bytes call number seq has: most are small, some need more than
 * one slot of a ring. */
static inline size_t peer_fill_len(uint64_t seq)
{
	static const size_t lens[] = {0, 8, 16, 48, 100, 300, 1000, 4000};

	return seq % 97 == 96 ? PEER_FILL_MAX : lens[seq % 8];
}

static inline void peer_fill(uint8_t *fill, uint64_t seq, size_t len,
			     uint8_t flip)
{
	for (size_t i = 0; i < len; i++)
		fill[i] = (uint8_t)(seq * 31 + i * 7) ^ flip;
}

static inline bool peer_fill_ok(const uint8_t *fill, uint64_t seq, size_t len,
				uint8_t flip)
{
	for (size_t i = 0; i < len; i++)
		if (fill[i] != ((uint8_t)(seq * 31 + i * 7) ^ flip))
			return false;
	return true;
}

int peer_serve(const char *addr);
int peer_client(const char *how, const char *addr, uint64_t calls, char **argv);

#endif
