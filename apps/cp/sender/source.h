/* SPDX-License-Identifier: MIT */
/*
 * source.h - the sender's stream: reads pieces of it from the files that it is
 * made of, and hashes its blocks.
 *
 * Thread rule: one thread.
 */
#ifndef CP_SENDER_SOURCE_H
#define CP_SENDER_SOURCE_H

#include "cp/hash.h"
#include "cp/layout.h"
#include "cp/sender/walk.h"

struct cp_source {
	const struct cp_tree *tree;
	const struct cp_layout *layout;
	int fd; /* of entry, or -1 */
	uint32_t entry;
	uint64_t *sums; /* of blocks that were read; 0: not yet */
	XXH3_state_t *hash;
};

/* -ENOMEM */
int cp_source_open(struct cp_source *s, const struct cp_tree *tree,
		   const struct cp_layout *layout);
/* Reads a block into buf and notes its hash. -ESTALE: a file has changed since
 * it was walked. */
int cp_source_read(struct cp_source *s, uint64_t block, void *buf,
		   struct cp_err *err);
/* All files are read: the last is checked, too. */
int cp_source_finish(struct cp_source *s, struct cp_err *err);
void cp_source_close(struct cp_source *s);

#endif
