/* SPDX-License-Identifier: MIT */
/*
 * seal.h - what makes a connection of the link unreadable and unchangeable for
 * all without its key: Noise_NNpsk0_25519_AESGCM_SHA256 (Noise, revision
 * 34), then records. docs/protocol/link.md, "Sealed".
 *
 * Pure: no I/O, no clock, no randomness, no allocation. After the handshake the
 * two directions have nothing in common: one thread may seal while another one
 * opens. Without nettle and hogweed there is no seal: seal_available().
 */
#ifndef SKEIN_DEV_SOFT_LINK_SEAL_H
#define SKEIN_DEV_SOFT_LINK_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEAL_KEY 32u
#define SEAL_TAG 16u
/* A message of the handshake is so much longer than its payload. */
#define SEAL_SHAKE (SEAL_KEY + SEAL_TAG)
#define SEAL_HEAD 2u /* of a record: the length of what follows */
#define SEAL_PLAIN_MAX 16384u
#define SEAL_RECORD_MAX (SEAL_HEAD + SEAL_PLAIN_MAX + SEAL_TAG)
#define SEAL_RECORDS (1u << 22) /* by one key: 64 GiB at most */

struct seal; /* of one connection, seal_bytes() of zeroed memory */

enum seal_fault {
	SEAL_OK,
	SEAL_MORE,   /* no fault: these are not all of its bytes */
	SEAL_SHORT,  /* less than a tag */
	SEAL_LONG,   /* more than a record holds */
	SEAL_FORGED, /* not sealed by this key, or not at this place */
};

struct seal_attr {
	bool dials;		     /* speaks first */
	const uint8_t *psk, *secret; /* SEAL_KEY each; secret: of this
				      * connection alone, random */
	const void *prologue;	     /* what both have seen so far */
	size_t prologue_len;
	uint32_t records; /* by one key; 0: SEAL_RECORDS */
};

bool seal_available(void);
size_t seal_bytes(void);
/* The key that a line of a file stands for. */
void seal_psk(const void *line, size_t len, uint8_t psk[SEAL_KEY]);
void seal_begin(struct seal *s, const struct seal_attr *a);
/* Our message of the handshake, SEAL_SHAKE + len bytes. The dialling end says
 * first and then hears, the other end hears and then says. */
void seal_say(struct seal *s, const void *payload, size_t len, uint8_t *msg);
/* Theirs, of len bytes. False: not by this key and for this prologue; then s is
 * of no more use. payload has room for len - SEAL_SHAKE. */
bool seal_hear(struct seal *s, const uint8_t *msg, size_t len, void *payload);
/* After the handshake: both ends have the same, and nobody else has. */
const uint8_t *seal_hash(const struct seal *s);

/* A record of len bytes, SEAL_PLAIN_MAX at most. Returns its own length. */
size_t seal_put(struct seal *s, const uint8_t *plain, size_t len, uint8_t *rec);
/* Opens the record at the beginning of len bytes, in its place: *n bytes from
 * *plain on; the record has *used. Whatever is no record ends the connection:
 * what follows it is never opened. */
enum seal_fault seal_next(struct seal *s, uint8_t *rec, size_t len,
			  uint8_t **plain, size_t *n, size_t *used);

#endif
