/* SPDX-License-Identifier: MIT */
/*
 * layout.h - where the stream's bytes lie: the extents of a manifest one after
 * the other, found by their offset in the stream.
 *
 * Pure; read-only once made. The manifest outlives it.
 */
#ifndef CP_LAYOUT_H
#define CP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "cp/manifest.h"

struct cp_seg {
	uint64_t stream_off;
	uint64_t file_off;
	uint64_t len;
	uint32_t entry;
};

struct cp_layout {
	struct cp_seg *v;
	size_t n;
	uint64_t len; /* of the stream */
	uint32_t block_size;
};

/* -ENOMEM */
int cp_layout_init(struct cp_layout *l, const struct cp_manifest *m);
void cp_layout_fini(struct cp_layout *l);

/* The piece of the stream at off, at most len bytes, that lies in one extent;
 * off lies in the stream. */
struct cp_seg cp_layout_at(const struct cp_layout *l, uint64_t off,
			   uint64_t len);
/* Offset and length of a block that exists. */
void cp_layout_block(const struct cp_layout *l, uint64_t block, uint64_t *off,
		     uint32_t *len);
uint64_t cp_layout_blocks(const struct cp_layout *l);

#endif
