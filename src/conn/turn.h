/* SPDX-License-Identifier: MIT */
/*
 * turn.h - what an engine's connections may copy in one round.
 *
 * Where the device copies in the poster's thread (dev_caps.poster_copies) a
 * long READ holds up every other connection of the engine. So long transfers go
 * in pieces, and all pieces of a round together are at most CONN_TURN_LEN
 * bytes. A connection that finds too little left has the next turn, before the
 * others: no connection starves.
 *
 * Pure: no clock of its own. Thread rule: the engine's owner.
 */
#ifndef SKEIN_CONN_TURN_H
#define SKEIN_CONN_TURN_H

#include <stdbool.h>
#include <stdint.h>

/* To make, map and copy so many bytes takes some 60 us of a core. */
#define CONN_TURN_LEN (64u << 10)

struct conn_turn {
	uint64_t round_ns; /* the time of the current round */
	uint32_t left;	   /* bytes that may still be copied in it */
	unsigned rounds;   /* since `next` has asked; it may have given up */
	const void *next;  /* the connection that has the next turn */
	const void *had;   /* the last one this round: it cannot be next */
};

/* True: conn copies len bytes now, at most CONN_TURN_LEN. False: ask again in
 * the next round. */
bool conn_turn_take(struct conn_turn *t, const void *conn, uint64_t round_ns,
		    uint32_t len);

#endif
