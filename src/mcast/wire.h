/* SPDX-License-Identifier: MIT */
/*
 * wire.h - records and the handshake section, byte for byte:
 * docs/protocol/mcast.md, sections 2 to 4.
 *
 * Pure functions. Records are read and written in place: Skein runs on
 * little-endian machines only.
 */
#ifndef SKEIN_MCAST_WIRE_H
#define SKEIN_MCAST_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

#define MCAST_VERSION 5
#define MCAST_RECORDS 128u
#define MCAST_BLOCK_FIRST UINT32_MAX
/* The largest size that the immediate can carry. */
#define MCAST_IMM_SIZE_MAX 0xffffffu

/* The two connections between neighbours. Records have their own, so they do
 * not wait behind blocks. */
enum mcast_channel {
	MCAST_WORDS,  /* all records but those of MCAST_BLOCKS */
	MCAST_BLOCKS, /* BLOCK, and FAIL after the last one */
	MCAST_CHANNELS,
};

enum mcast_type {
	MCAST_HELLO = 1, /* I have opened the group */
	MCAST_READY,	 /* you may write this block here */
	MCAST_BLOCK,	 /* this block is written */
	MCAST_ACK,	 /* what my part of the tree has */
	MCAST_CLOSE,	 /* every member has every message */
	MCAST_FAIL,	 /* a member has failed */
	MCAST_PING,	 /* answer with PONG */
	MCAST_PONG,	 /* the answer */
	MCAST_BYE,	 /* my last record */
	MCAST_BEGIN,	 /* a message begins that is not short */
	MCAST_HAVE,	 /* how many runs of blocks a member has */
	MCAST_RUN,	 /* one of them */
	MCAST_SUM,	 /* the digest of the resumed object */
	MCAST_RING,	 /* the address of my slots for small messages */
	MCAST_SMALL,	 /* a small message follows this record in its slot */
	MCAST_TYPE_END,
};

struct mcast_rec {
	uint8_t type;
	uint8_t flags;
	uint16_t rank;
	uint32_t number;
	uint64_t msg;
	uint64_t size;
	uint32_t block;
	uint32_t len;
	uint64_t sum;
	uint32_t rkey;
	uint32_t err;
	uint64_t zero[2];
};
_Static_assert(sizeof(struct mcast_rec) == 64, "section 3");
_Static_assert(offsetof(struct mcast_rec, rank) == 2, "section 3");
_Static_assert(offsetof(struct mcast_rec, number) == 4, "section 3");
_Static_assert(offsetof(struct mcast_rec, msg) == 8, "section 3");
_Static_assert(offsetof(struct mcast_rec, size) == 16, "section 3");
_Static_assert(offsetof(struct mcast_rec, block) == 24, "section 3");
_Static_assert(offsetof(struct mcast_rec, len) == 28, "section 3");
_Static_assert(offsetof(struct mcast_rec, sum) == 32, "section 3");
_Static_assert(offsetof(struct mcast_rec, rkey) == 40, "section 3");
_Static_assert(offsetof(struct mcast_rec, err) == 44, "section 3");
_Static_assert(offsetof(struct mcast_rec, zero) == 48, "section 3");

/* The 28 bits that go into the immediate with a record. */
uint32_t mcast_imm_value(const struct mcast_rec *rec);
/* Is rec well-formed as record `number` of its channel with this immediate? The
 * caller checks what depends on the group's state. */
bool mcast_rec_valid(const struct mcast_rec *rec, enum mcast_channel channel,
		     uint32_t number, uint32_t imm_value);

/* Section 2. */
struct mcast_section {
	uint32_t number;
	uint64_t list;
	uint64_t params;
	uint32_t from, to;
	uint64_t addr;
	uint32_t rkey;
	uint32_t channel;
	uint64_t pair; /* the same in both connections of one opening */
};
#define MCAST_SECTION_LEN 56u
void mcast_section_put(const struct mcast_section *s, struct bytes_out *out);
/* 0, -SKEIN_EPEER, -SKEIN_EVERSION. */
int mcast_section_get(struct mcast_section *s, struct bytes_in *in);

/* The hash of n addresses. */
uint64_t mcast_list_hash(const char *const *members, uint32_t n);
/* racks: NULL unless the algorithm is the hybrid. */
struct mcast_params {
	uint32_t n, algorithm, block_size, flags;
	uint32_t slots, small_max; /* section 9 */
};
uint64_t mcast_params_hash(const struct mcast_params *p, const uint32_t *racks);

/* Section 4: memory that a receiver keeps for the next message. */
#define MCAST_FIRST_ROOM 262144u
static inline uint32_t mcast_first_room(uint32_t block_size)
{
	return block_size < MCAST_FIRST_ROOM ? block_size : MCAST_FIRST_ROOM;
}
uint64_t mcast_seed(uint64_t list, uint64_t msg);
uint64_t mcast_sum(const void *data, size_t len, uint64_t seed, uint32_t block);

/* Adds one block to a message's digest, or one message to a group's. */
static inline uint64_t mcast_digest_add(uint64_t digest, uint64_t sum,
					uint64_t i)
{
	return digest + sum * (2 * i + 1);
}

#endif
