/* SPDX-License-Identifier: MIT */
/*
 * path.c - the device's file.
 *
 * A real device has /dev/infiniband/uverbsN, and some programs (UCX) look for
 * it before they open the device by name. Ours has none: for exactly that name
 * /dev/null answers, a character device that every user may read and write. All
 * other paths go to the kernel.
 */
/* Without this, stat() would be defined as another name for stat64(). */
#undef _FILE_OFFSET_BITS
#include "bind/verbs/state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const char *real_path(const char *path)
{
	static const char dir[] = "/dev/infiniband/";

	if (!path || strncmp(path, dir, sizeof(dir) - 1) != 0 ||
	    strcmp(path + sizeof(dir) - 1, vb.device.dev_name) != 0)
		return path;
	return "/dev/null";
}

EXPORT int stat(const char *path, struct stat *st)
{
	return fstatat(AT_FDCWD, real_path(path), st, 0);
}

EXPORT int stat64(const char *path, struct stat64 *st)
{
	return fstatat64(AT_FDCWD, real_path(path), st, 0);
}

EXPORT int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, real_path(path), mode, 0);
}
