/* SPDX-License-Identifier: MIT */
/*
 * fuzz_cp_manifest.c - a receiver of `skein cp` fed with a manifest. What is
 * taken names nothing outside the target's directory, is the same when it is
 * encoded again, and every byte of its stream lies in one of its files.
 */
#include "base/assert.h"
#include "cp/layout.h"
#include "cp/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct cp_manifest *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct cp_entry *e = &m->v[i];

		skein_assert(*e->path && *e->path != '/');
		skein_assert(strlen(e->path) == e->path_len);
		skein_assert(strncmp(e->path, "../", 3) != 0);
		skein_assert(!strstr(e->path, "/../"));
		skein_assert(!i || cp_path_cmp(m->v[i - 1].path, e->path) < 0);
	}
}

static void lay_out(const struct cp_manifest *m)
{
	struct cp_layout l;
	uint64_t off = 0;

	if (cp_layout_init(&l, m))
		return;
	skein_assert(l.len == m->stream_len);
	/* extents may be large; a few steps show how it goes */
	for (int i = 0; off < l.len && i < 64; i++) {
		struct cp_seg seg = cp_layout_at(&l, off, l.len - off);

		skein_assert(seg.len && m->v[seg.entry].type == CP_FILE);
		skein_assert(seg.file_off + seg.len <= m->v[seg.entry].size);
		off += seg.len;
	}
	cp_layout_fini(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cp_manifest m;
	struct cp_err err;
	void *again;
	size_t len;

	if (cp_manifest_decode(data, size, &m, &err))
		return 0;
	look(&m);
	lay_out(&m);
	if (!cp_manifest_encode(&m, &again, &len)) {
		skein_assert(len == size && !memcmp(again, data, size));
		free(again);
	}
	cp_manifest_fini(&m);
	return 0;
}
