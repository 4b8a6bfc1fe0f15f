/* SPDX-License-Identifier: MIT */
/*
 * folder.h - a folder of its own for a test of files, and what is made in it.
 */
#ifndef SKEIN_TESTS_CP_FOLDER_H
#define SKEIN_TESTS_CP_FOLDER_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/cm.h"

static char folder[64];

static inline const char *in_folder(const char *name)
{
	static char path[4][4096];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
	return path[turn];
}

static inline int folder_make(void **state)
{
	strcpy(folder, "/tmp/skein-cp-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_drop(const char *path, const struct stat *st, int kind,
			      struct FTW *ftw)
{
	return remove(path);
}

static inline int folder_remove(void **state)
{
	return nftw(folder, folder_drop, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void put_file(const char *name, const void *data, size_t len)
{
	int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0640);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	close(fd);
}

static inline void put_dir(const char *name)
{
	assert_int_equal(mkdir(in_folder(name), 0755), 0);
}

static inline bool there(const char *name)
{
	struct stat st;

	return !lstat(in_folder(name), &st);
}

static inline void expect_file(const char *name, const void *data, size_t len)
{
	char *got = malloc(len + 1);
	int fd = open(in_folder(name), O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(read(fd, got, len + 1), (ssize_t)len);
	assert_memory_equal(got, data, len);
	close(fd);
	free(got);
}

#endif
