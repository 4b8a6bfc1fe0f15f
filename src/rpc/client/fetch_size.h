/* SPDX-License-Identifier: MIT */
/*
 * fetch_size.h - F, the bytes of the first READ of an answer, from the device's
 * calibration and the lengths of the last messages (RF-RPC, equation 2;
 * docs/design/rf-rpc.md).
 *
 * A message of up to F bytes takes one READ of F bytes. A longer one takes a
 * second READ of the bytes that are missing. F is the length for which all READs
 * of the last 1,024 messages take the NIC the least time. Another F is taken
 * only if it spares more than a twentieth: two that are nearly as good do not
 * alternate.
 *
 * Lengths count in lines of 64 bytes, up to RPC_FETCH_LEN_MAX.
 *
 * Pure: lengths come in, F goes out. Thread rule: the engine's owner.
 */
#ifndef SKEIN_RPC_CLIENT_FETCH_SIZE_H
#define SKEIN_RPC_CLIENT_FETCH_SIZE_H

#include <stdbool.h>
#include <stdint.h>

struct rpc_calib;

#define FETCH_SIZE_LINES 128u
#define FETCH_SIZE_SAMPLES 1024u
#define FETCH_SIZE_EVERY 128u /* messages between two choices */

/* How long READs take the NIC. */
struct fetch_costs {
	uint32_t least;			/* lines: L of section 3.2 */
	float ns[FETCH_SIZE_LINES + 1]; /* of a READ of n lines */
};

struct fetch_size {
	uint32_t len;			      /* F, in bytes */
	unsigned n;			      /* messages so far */
	uint16_t count[FETCH_SIZE_LINES + 1]; /* [n]: of n lines */
	uint8_t last[FETCH_SIZE_SAMPLES];     /* a ring: their lines */
};

/* calib has at least one READ. */
void fetch_costs_init(struct fetch_costs *t, const struct rpc_calib *calib);
/* The best F for messages of these lengths, in lines. now: F as it is, which
 * stays if no other spares a twentieth. */
uint32_t fetch_size_best(const struct fetch_costs *t,
			 const uint16_t count[FETCH_SIZE_LINES + 1],
			 uint32_t now);

void fetch_size_init(struct fetch_size *f, uint32_t len);
/* A message of len bytes has come. True: F is another one now. */
bool fetch_size_add(struct fetch_size *f, const struct fetch_costs *t,
		    uint32_t len);

#endif
