/* SPDX-License-Identifier: MIT */
/*
 * cache_file.h - small files in the user's cache directory,
 * $XDG_CACHE_HOME/skein or ~/.cache/skein. Their text is not trusted: the reader
 * checks it.
 *
 * Thread rule: any thread. Blocks as the file system does.
 */
#ifndef SKEIN_ENV_CACHE_FILE_H
#define SKEIN_ENV_CACHE_FILE_H

#include <limits.h>
#include <stddef.h>

/* 0; -ENOENT: the user has no home; -ENAMETOOLONG. */
int cache_file_path(const char *name, char *path, size_t len);
/* At most size bytes of it; waits for no writer. 0, or a negative errno; -EFBIG:
 * the file has more. */
int cache_file_read(const char *path, void *buf, size_t size, size_t *len);
/* Makes the folders of the path that are missing, for the user alone. 0, or a
 * negative errno. */
int cache_file_folders(const char *path);
/* Where a path that the user named may be written: the regular file behind its
 * links, or the path itself if nothing is there. 0; -EISDIR; -ENOTSUP: it is
 * neither; -ENOENT: no such folder, or a link to what is not there; another
 * negative errno. */
int cache_file_find(const char *path, char at[PATH_MAX]);
/* Makes the file, or puts this in the place of what is there, at once. 0, or a
 * negative errno. */
int cache_file_write(const char *path, const void *buf, size_t len);

#endif
