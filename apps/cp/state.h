/* SPDX-License-Identifier: MIT */
/*
 * state.h - the hash of each block that a staging directory holds, in memory
 * and in its file `state` (docs/cp.md, "State file"). It claims: what is read
 * back from a crashed copy counts only after the blocks have been read.
 *
 * Thread rule: one thread.
 */
#ifndef CP_STATE_H
#define CP_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cp/manifest.h"

enum {
	CP_STATE_HEAD = 40,
};

struct cp_state {
	int fd;
	uint64_t blocks;
	uint64_t *hash; /* 0: not there */
	uint8_t id[CP_ID_LEN];
	uint32_t block_size;
};

/* Is it the head of this very copy's state? */
bool cp_state_decode(const uint8_t head[CP_STATE_HEAD], const uint8_t *id,
		     uint32_t block_size, uint64_t blocks);
void cp_state_encode(uint8_t head[CP_STATE_HEAD], const uint8_t *id,
		     uint32_t block_size, uint64_t blocks);

/* Opens `state` in dir: what it claims when it is this copy's and keep is set,
 * else a new one without claims, its space reserved. */
int cp_state_open(struct cp_state *s, int dir, const uint8_t *id,
		  uint32_t block_size, uint64_t blocks, bool keep);
/* hash 0: the block is not there any more. */
int cp_state_set(struct cp_state *s, uint64_t block, uint64_t hash);
void cp_state_close(struct cp_state *s);

#endif
