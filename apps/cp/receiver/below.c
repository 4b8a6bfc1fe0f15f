/* SPDX-License-Identifier: MIT */
/*
 * below.c - places below a directory; see below.h.
 */
#include "cp/receiver/below.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
};

/* One step down. A link that O_NOFOLLOW met is told as such: with
 * O_DIRECTORY the kernel calls it no directory. */
static int step(int at, const char *name, bool make, int *fd)
{
	struct stat st;
	int next = openat(at, name, OPEN_DIR);

	if (next < 0 && errno == ENOENT && make) {
		if (mkdirat(at, name, 0777) && errno != EEXIST)
			return -errno;
		next = openat(at, name, OPEN_DIR);
	}
	if (next >= 0) {
		*fd = next;
		return 0;
	}
	if (errno == ENOTDIR && !fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) &&
	    S_ISLNK(st.st_mode))
		return -ELOOP;
	return -errno;
}

int cp_below_open(int root, const char *path, size_t len, bool make, int *fd)
{
	int at = fcntl(root, F_DUPFD_CLOEXEC, 0), next = -1, rc = 0;
	char name[CP_NAME_MAX + 1];
	const char *end = path + len;

	if (at < 0)
		return -errno;
	if (len && !cp_path_ok(path, len)) {
		close(at);
		return -EINVAL;
	}
	while (path < end) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t n = (size_t)((slash ? slash : end) - path);

		memcpy(name, path, n);
		name[n] = 0;
		rc = step(at, name, make, &next);
		close(at);
		if (rc)
			return rc;
		at = next;
		path += n + 1;
	}
	*fd = at;
	return 0;
}

void cp_parents_init(struct cp_parents *p, int root)
{
	p->root = root;
	p->fd = -1;
	p->len = 0;
}

int cp_parents_of(struct cp_parents *p, const char *path, int *fd,
		  const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	int rc, next = -1;

	if (p->fd < 0 || len != p->len || memcmp(p->path, path, len) != 0) {
		rc = cp_below_open(p->root, path, len, false, &next);
		if (rc)
			return rc;
		cp_parents_fini(p);
		p->fd = next;
		p->len = len;
		memcpy(p->path, path, len);
	}
	*fd = p->fd;
	*name = slash ? slash + 1 : path;
	return 0;
}

void cp_parents_fini(struct cp_parents *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

int cp_below_rel(const char *dir, const char *path, char *rel)
{
	size_t len = strlen(dir), n;

	if (!path)
		path = "";
	if (*path == '/') {
		/* "/" itself is the one directory that ends with a slash */
		if (len == 1)
			len = 0;
		if (strncmp(path, dir, len) != 0 ||
		    (path[len] && path[len] != '/'))
			return -EACCES;
		path += len;
		while (*path == '/')
			path++;
	}
	n = strlen(path);
	while (n && path[n - 1] == '/')
		n--;
	if (n > CP_PATH_MAX || (n && !cp_path_ok(path, n)))
		return -EINVAL;
	memcpy(rel, path, n);
	rel[n] = 0;
	return 0;
}
