/* SPDX-License-Identifier: MIT */
/*
 * walk.h - operands to a manifest, and its entries back to files: the sender's
 * side of the disk. Links are kept as links, never followed. What cannot be
 * read is found here, before anybody is asked anything.
 *
 * Thread rule: one thread walks; afterwards any may open.
 */
#ifndef CP_SENDER_WALK_H
#define CP_SENDER_WALK_H

#include "cp/manifest.h"

/* Where the entries of one operand come from. */
struct cp_origin {
	char *name; /* the first component of their paths */
	char *path; /* on this host; NULL: fd is the file */
	/* Of a directory: it, so that what lies below is found in the very one
	 * that was walked, whatever takes its place or that of one in it. */
	int fd;
};

struct cp_tree {
	struct cp_manifest m;
	struct cp_origin *v;
	size_t n;
};

/* operands: files, directories, links; "-" is standard input, spooled first
 * into an unnamed file in TMPDIR (/var/tmp), and named stdin_name. t is made
 * anew. -EINVAL, -EEXIST (two of one name), and what the kernel said. */
int cp_walk(char *const *operands, size_t n, const char *stdin_name,
	    uint32_t block_size, struct cp_tree *t, struct cp_err *err);
/* Opens a file's entry for reading. -ESTALE when it is not the file any more
 * that was walked: size or time differ. */
int cp_tree_open(const struct cp_tree *t, const struct cp_entry *e, int *fd,
		 struct cp_err *err);
/* Is the file still as it was walked? 0, or -ESTALE. */
int cp_tree_same(const struct cp_entry *e, int fd, struct cp_err *err);
void cp_tree_fini(struct cp_tree *t);

#endif
