/* SPDX-License-Identifier: MIT */
/*
 * below.h - places below a directory, and nowhere else: paths are walked one
 * component at a time from the root's descriptor without following any link,
 * so neither what a manifest says nor what lies on the disk leads outside.
 *
 * Paths are such as cp_path_ok() takes. Thread rule: one thread.
 */
#ifndef CP_RECEIVER_BELOW_H
#define CP_RECEIVER_BELOW_H

#include <stdbool.h>
#include <stddef.h>

#include "cp/manifest.h"

/* Opens the directory at path ("": the root itself) for reading. make: what is
 * missing is made, mode 0777 less the umask. -ENOENT,
 * -ENOTDIR, -ELOOP (a link is in the way), and what the kernel said. */
int cp_below_open(int root, const char *path, size_t len, bool make, int *fd);

/* The parents of many paths, one after the other: the last is kept open. */
struct cp_parents {
	int root; /* not owned */
	int fd;	  /* of path[0..len), or -1 */
	size_t len;
	char path[CP_PATH_MAX + 1];
};
void cp_parents_init(struct cp_parents *p, int root);
/* A descriptor of the directory that path's last component lies in, valid
 * until the next call; and that component. */
int cp_parents_of(struct cp_parents *p, const char *path, int *fd,
		  const char **name);
void cp_parents_fini(struct cp_parents *p);

/* Makes the path that a target names relative to the served directory: NULL
 * and "" are that directory; an absolute one lies at or below dir, which is
 * absolute and real. rel is CP_PATH_MAX + 1 bytes. -EACCES when it lies
 * elsewhere, -EINVAL for "." and ".." and the like. */
int cp_below_rel(const char *dir, const char *path, char *rel);

#endif
