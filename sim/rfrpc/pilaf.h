/* SPDX-License-Identifier: MIT */
/*
 * pilaf.h - a table that clients search by READs alone, after Pilaf (RF-RPC,
 * sections 2.3 and 5.2): the baseline that bypasses the server.
 *
 * Cuckoo hashing, three places a key. A slot names an extent, the extent holds
 * key and value; each has a checksum, because a READ may come between two stores
 * of the server's. A client READs a slot of the key, then the slot's extent,
 * until it finds the key; what fails its checksum it READs again.
 *
 * Pure: bytes come in, the next READ goes out.
 */
#ifndef SKEIN_SIM_RFRPC_PILAF_H
#define SKEIN_SIM_RFRPC_PILAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PILAF_WAYS 3u

struct pilaf_slot {
	uint32_t extent; /* 0: none; else its number, from 1 */
	uint32_t sum;
};

struct pilaf_extent {
	uint64_t key[2];
	uint64_t value[4];
	uint64_t sum;
};

struct pilaf {
	unsigned char *base; /* pilaf_bytes(); at a client NULL */
	uint32_t slots, keys;
	uint64_t seed;
};

size_t pilaf_bytes(uint32_t slots, uint32_t keys);
/* Puts in keys 0 to keys - 1, each with a value of version 0. -ENOSPC: one finds
 * no place. */
int pilaf_fill(struct pilaf *t);
/* The server's PUT, in two parts, between which READs may come: part 0 stores
 * half of the value, part 1 the whole and the checksum: two threads may PUT the
 * same key. */
void pilaf_put(struct pilaf *t, uint64_t key, uint64_t version, unsigned part);

enum pilaf_step {
	PILAF_MORE,
	PILAF_FOUND, /* get->version */
	PILAF_MISSING,
	PILAF_WRONG, /* a checksum that fits bytes of two values */
};

struct pilaf_get {
	const struct pilaf *t;
	uint64_t key, version;
	unsigned way;
	uint32_t extent; /* the next READ's, or 0: a slot */
	unsigned reads, torn;
};

void pilaf_get_begin(struct pilaf_get *g, const struct pilaf *t, uint64_t key);
/* The next READ: its offset in the table, and how many bytes. */
uint64_t pilaf_get_next(const struct pilaf_get *g, uint32_t *len);
/* Takes what it has brought. */
enum pilaf_step pilaf_get_took(struct pilaf_get *g, const void *bytes);

#endif
