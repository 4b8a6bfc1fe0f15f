/* SPDX-License-Identifier: MIT */
/*
 * cache_file.c - see cache_file.h.
 */
#include "env/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int cache_file_path(const char *name, char *path, size_t len)
{
	const char *base = getenv("XDG_CACHE_HOME"), *below = "";
	int n;

	/* a relative one is to be ignored */
	if (!base || *base != '/') {
		base = getenv("HOME");
		below = "/.cache";
	}
	if (!base || *base != '/')
		return -ENOENT;
	n = snprintf(path, len, "%s%s/skein/%s", base, below, name);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* As read() until the end, or size bytes. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
	size_t have = 0;
	ssize_t n = 1;

	while (n && have < size) {
		n = read(fd, buf + have, size - have);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			have += (size_t)n;
	}
	return (ssize_t)have;
}

int cache_file_read(const char *path, void *buf, size_t size, size_t *len)
{
	/* a FIFO would keep us */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		n = -errno;
	else if ((uint64_t)st.st_size > size)
		n = -EFBIG;
	else
		n = read_all(fd, buf, size);
	close(fd);
	if (n < 0)
		return (int)n;
	*len = (size_t)n;
	return 0;
}

int cache_file_folders(const char *path)
{
	size_t len = strlen(path);
	char part[PATH_MAX];
	int rc = 0;

	if (len >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, len + 1);
	for (char *at = strchr(part + 1, '/'); at && !rc;
	     at = strchr(at + 1, '/')) {
		*at = '\0';
		if (mkdir(part, 0700) && errno != EEXIST)
			rc = -errno;
		*at = '/';
	}
	return rc;
}

int cache_file_find(const char *path, char at[PATH_MAX])
{
	size_t len = strlen(path);
	char *slash;
	struct stat st;

	if (len >= PATH_MAX)
		return -ENAMETOOLONG;
	if (!stat(path, &st)) {
		if (!S_ISREG(st.st_mode))
			return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTSUP;
		return realpath(path, at) ? 0 : -errno;
	}
	if (errno != ENOENT)
		return -errno;
	if (!lstat(path, &st))
		return -ENOENT; /* a link to what is not there */
	memcpy(at, path, len + 1);
	slash = strrchr(at, '/');
	if (slash)
		slash[1] = '\0';
	if (access(slash ? at : ".", W_OK))
		return -errno;
	memcpy(at, path, len + 1);
	return 0;
}

static int write_all(int fd, const char *buf, size_t len)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = write(fd, buf + done, len - done);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

int cache_file_write(const char *path, const void *buf, size_t len)
{
	char temp[PATH_MAX];
	int fd, rc, n = snprintf(temp, sizeof(temp), "%s.XXXXXX", path);

	if (n < 0 || (size_t)n >= sizeof(temp))
		return -ENAMETOOLONG;
	fd = mkostemp(temp, O_CLOEXEC); /* mode 0600 */
	if (fd < 0)
		return -errno;
	rc = write_all(fd, buf, len);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc && rename(temp, path))
		rc = -errno;
	if (rc)
		unlink(temp);
	return rc;
}
