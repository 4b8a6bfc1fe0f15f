/* SPDX-License-Identifier: MIT */
/*
 * source.c - the sender's stream; see source.h.
 */
#include "cp/sender/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cp_source_open(struct cp_source *s, const struct cp_tree *tree,
		   const struct cp_layout *layout)
{
	uint64_t blocks = cp_layout_blocks(layout);

	*s = (struct cp_source){
		.tree = tree,
		.layout = layout,
		.fd = -1,
		.sums = calloc(blocks + 1, sizeof(*s->sums)),
		.hash = XXH3_createState(),
	};
	if (s->sums && s->hash)
		return 0;
	cp_source_close(s);
	return -ENOMEM;
}

/* A file is left: it must be as it was when its first byte was read. */
int cp_source_finish(struct cp_source *s, struct cp_err *err)
{
	int rc = 0;

	if (s->fd >= 0) {
		rc = cp_tree_same(&s->tree->m.v[s->entry], s->fd, err);
		close(s->fd);
		s->fd = -1;
	}
	return rc;
}

static int turn_to(struct cp_source *s, uint32_t entry, struct cp_err *err)
{
	int rc;

	if (s->fd >= 0 && s->entry == entry)
		return 0;
	rc = cp_source_finish(s, err);
	if (!rc)
		rc = cp_tree_open(s->tree, &s->tree->m.v[entry], &s->fd, err);
	s->entry = entry;
	return rc;
}

static int read_seg(struct cp_source *s, const struct cp_seg *seg, char *buf,
		    struct cp_err *err)
{
	const char *path = s->tree->m.v[seg->entry].path;
	size_t done = 0;
	int rc = turn_to(s, seg->entry, err);

	while (!rc && done < seg->len) {
		ssize_t n = pread(s->fd, buf + done, seg->len - done,
				  (off_t)(seg->file_off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return cp_fail_sys(err, -errno, "reading %s", path);
		if (!n)
			return cp_fail(err, -ESTALE,
				       "%s became shorter while it was copied",
				       path);
		done += (size_t)n;
	}
	return rc;
}

int cp_source_read(struct cp_source *s, uint64_t block, void *buf,
		   struct cp_err *err)
{
	uint64_t off, end, hash;
	uint32_t len;
	char *p = buf;

	cp_layout_block(s->layout, block, &off, &len);
	XXH3_64bits_reset(s->hash);
	for (end = off + len; off < end;) {
		struct cp_seg seg =
			cp_layout_at(s->layout, off, cp_hash_piece(end - off));
		int rc = read_seg(s, &seg, p, err);

		if (rc)
			return rc;
		XXH3_64bits_update(s->hash, p, seg.len);
		p += seg.len;
		off += seg.len;
	}
	hash = cp_block_hash_end(s->hash);
	if (s->sums[block] && s->sums[block] != hash)
		return cp_fail(err, -ESTALE,
			       "a file was changed while it was copied");
	s->sums[block] = hash;
	return 0;
}

void cp_source_close(struct cp_source *s)
{
	if (s->fd >= 0)
		close(s->fd);
	XXH3_freeState(s->hash);
	free(s->sums);
}
