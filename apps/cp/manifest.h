/* SPDX-License-Identifier: MIT */
/*
 * manifest.h - what is copied: files, directories and links with their paths,
 * modes and times, and where files have data (docs/cp.md, "Manifest").
 *
 * Entries stand in order of their paths, '/' before every other byte, so that a
 * directory is directly followed by what is in it. The decoder takes nothing
 * that could name a place outside the target's directory. The extents' bytes,
 * one after the other, are the stream.
 *
 * Pure. Thread rule: one thread changes it; a finished one is only read.
 */
#ifndef CP_MANIFEST_H
#define CP_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cp/err.h"

#define CP_ENTRIES_MAX (1u << 24)
#define CP_MANIFEST_MAX (1u << 30) /* bytes of an encoded one */
#define CP_STREAM_MAX (1ull << 50)
#define CP_BLOCK_MIN (4u << 10)
#define CP_BLOCK_MAX (64u << 20)

enum {
	CP_PATH_MAX = 4095,
	CP_NAME_MAX = 255,
	CP_DEPTH_MAX = 256,
	CP_ID_LEN = 16,
};

enum cp_type {
	CP_FILE = 1,
	CP_DIR = 2,
	CP_LINK = 3,
};

struct cp_extent {
	uint64_t off, len;
};

struct cp_entry {
	enum cp_type type;
	uint16_t mode;
	uint16_t path_len;
	int64_t mtime_ns;
	const char *path;
	const char *link; /* of a link: where it points */
	uint64_t size;	  /* of a file */
	uint32_t extents; /* of a file */
	const struct cp_extent *extent;
};

struct cp_manifest {
	struct cp_entry *v;
	size_t n, room;
	uint32_t block_size;
	uint64_t stream_len;	     /* the sum of all extents */
	struct cp_manifest_mem *mem; /* strings and extents */
};

/* A relative path of 1 to CP_PATH_MAX bytes whose components are neither
 * empty, nor "." or "..", nor longer than CP_NAME_MAX; without NUL. */
bool cp_path_ok(const char *path, size_t len);
/* As strcmp, in the order of a manifest. */
int cp_path_cmp(const char *a, const char *b);

/* Adds a copy of the entry, in any order. -ENOMEM, -E2BIG; -EINVAL when
 * decoding would refuse it. */
int cp_manifest_add(struct cp_manifest *m, const struct cp_entry *entry,
		    struct cp_err *err);
/* Puts the entries in order and checks what concerns several of them. */
int cp_manifest_finish(struct cp_manifest *m, struct cp_err *err);
/* A finished one to bytes, which the caller frees. */
int cp_manifest_encode(const struct cp_manifest *m, void **buf, size_t *len);
/* -EBADMSG with the entry's number; m is as new when it fails. */
int cp_manifest_decode(const void *buf, size_t len, struct cp_manifest *m,
		       struct cp_err *err);
/* The name of a copy: XXH3 of the encoded manifest. */
void cp_manifest_id(const void *buf, size_t len, uint8_t id[CP_ID_LEN]);
uint64_t cp_manifest_blocks(const struct cp_manifest *m);
void cp_manifest_fini(struct cp_manifest *m);

#endif
