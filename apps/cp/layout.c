/* SPDX-License-Identifier: MIT */
/*
 * layout.c - stream offset to file and offset; see layout.h.
 */
#include "cp/layout.h"

#include "base/assert.h"

#include <errno.h>
#include <stdlib.h>

int cp_layout_init(struct cp_layout *l, const struct cp_manifest *m)
{
	struct cp_seg *seg;
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		if (m->v[i].type == CP_FILE)
			n += m->v[i].extents;
	*l = (struct cp_layout){.block_size = m->block_size};
	if (!n)
		return 0;
	seg = l->v = malloc(n * sizeof(*seg));
	if (!seg)
		return -ENOMEM;
	for (size_t i = 0; i < m->n; i++) {
		const struct cp_entry *e = &m->v[i];

		for (uint32_t x = 0; e->type == CP_FILE && x < e->extents;
		     x++) {
			*seg++ = (struct cp_seg){
				.stream_off = l->len,
				.file_off = e->extent[x].off,
				.len = e->extent[x].len,
				.entry = (uint32_t)i,
			};
			l->len += e->extent[x].len;
		}
	}
	l->n = n;
	return 0;
}

void cp_layout_fini(struct cp_layout *l)
{
	free(l->v);
	*l = (struct cp_layout){0};
}

struct cp_seg cp_layout_at(const struct cp_layout *l, uint64_t off,
			   uint64_t len)
{
	size_t low = 0, high = l->n;
	struct cp_seg seg;
	uint64_t skip;

	skein_assert(off < l->len);
	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;

		if (l->v[mid].stream_off <= off)
			low = mid;
		else
			high = mid;
	}
	seg = l->v[low];
	skip = off - seg.stream_off;
	seg.stream_off = off;
	seg.file_off += skip;
	seg.len -= skip;
	if (seg.len > len)
		seg.len = len;
	return seg;
}

uint64_t cp_layout_blocks(const struct cp_layout *l)
{
	return (l->len + l->block_size - 1) / l->block_size;
}

void cp_layout_block(const struct cp_layout *l, uint64_t block, uint64_t *off,
		     uint32_t *len)
{
	uint64_t begin = block * l->block_size, left;

	skein_assert(block < cp_layout_blocks(l));
	left = l->len - begin;
	*off = begin;
	*len = left < l->block_size ? (uint32_t)left : l->block_size;
}
