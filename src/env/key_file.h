/* SPDX-License-Identifier: MIT */
/*
 * key_file.h - a shared key: the first line of a file that no other user may
 * read.
 */
#ifndef SKEIN_ENV_KEY_FILE_H
#define SKEIN_ENV_KEY_FILE_H

#include <stddef.h>

/* Opens it. 0, or a negative errno with the reason in *why. */
int key_file_open(const char *path, int *fd, const char **why);
/* The line, without its end, of at most size - 1 bytes; what follows the line
 * stays in fd. The same errors. Blocks as read() does. */
int key_file_line(int fd, void *buf, size_t size, size_t *len,
		  const char **why);

#endif
