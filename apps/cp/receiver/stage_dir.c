/* SPDX-License-Identifier: MIT */
/*
 * stage_dir.c - the staging directory itself: what may stand in the way of a
 * copy, the lock, and the removal of what crashed copies left. See stage.h.
 */
#include "cp/receiver/below.h"
#include "cp/receiver/stage.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
	LOCK_TRIES = 16,
};

/* Entries of an open directory, one call each; the descriptor stays. */
static int each_name(int dir, void (*fn)(int dir, const char *name))
{
	int fd = openat(dir, ".", OPEN_DIR);
	struct dirent *d;
	DIR *list;

	if (fd < 0)
		return -errno;
	list = fdopendir(fd);
	if (!list) {
		close(fd);
		return -ENOMEM;
	}
	while ((d = readdir(list)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			fn(dir, d->d_name);
	closedir(list);
	return 0;
}

static void remove_name(int dir, const char *name)
{
	unlinkat(dir, name, 0);
}

void cp_stage_remove(int target, const char *name, int dir)
{
	each_name(dir, remove_name);
	unlinkat(target, name, AT_REMOVEDIR);
}

/* Only what a copy has named: prefix and 32 hex digits. */
static bool is_stage(const char *name)
{
	size_t prefix = sizeof(CP_STAGE_PREFIX) - 1;

	if (strlen(name) != CP_STAGE_NAME_LEN ||
	    memcmp(name, CP_STAGE_PREFIX, prefix) != 0)
		return false;
	for (name += prefix; *name; name++)
		if (!isxdigit((unsigned char)*name))
			return false;
	return true;
}

static void remove_crashed(int target, const char *name)
{
	int dir;

	if (!is_stage(name))
		return;
	dir = openat(target, name, OPEN_DIR);
	if (dir < 0)
		return;
	if (!flock(dir, LOCK_EX | LOCK_NB))
		cp_stage_remove(target, name, dir);
	close(dir);
}

/* Does name still stand for the directory that is open? Another process may
 * have removed it before it was locked. */
static bool still_there(int target, const char *name, int dir)
{
	struct stat a, b;

	return !fstat(dir, &a) &&
	       !fstatat(target, name, &b, AT_SYMLINK_NOFOLLOW) &&
	       a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* A directory that was there already is ours alone, as we make them; where
 * others may write into it, what gets its name need not be what was checked. */
static bool is_ours(int dir)
{
	struct stat st;

	return !fstat(dir, &st) && st.st_uid == geteuid() &&
	       !(st.st_mode & 077);
}

static int lock_dir(int target, const char *name, int *dir)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		bool made = !mkdirat(target, name, 0700);
		int fd;

		if (!made && errno != EEXIST)
			return -errno;
		fd = openat(target, name, OPEN_DIR);
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0)
			return -errno;
		if (!made && !is_ours(fd)) {
			close(fd);
			return -EEXIST;
		}
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			close(fd);
			return -EBUSY;
		}
		if (still_there(target, name, fd)) {
			*dir = fd;
			return 0;
		}
		close(fd);
	}
	return -EBUSY;
}

/* What is there under the entry's name must give way to a rename, or be the
 * directory that it shall be. */
static int in_the_way(const struct cp_entry *e, int at, const char *name,
		      struct cp_err *err)
{
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT
			       ? 0
			       : cp_fail_sys(err, -errno, "%s", e->path);
	if (e->type == CP_DIR && S_ISLNK(st.st_mode))
		return cp_fail(err, -ELOOP,
			       "%s is a link here, and no directory", e->path);
	if (e->type == CP_DIR && !S_ISDIR(st.st_mode))
		return cp_fail(err, -ENOTDIR, "%s is no directory here",
			       e->path);
	if (e->type != CP_DIR && S_ISDIR(st.st_mode))
		return cp_fail(err, -EISDIR, "%s is a directory here", e->path);
	return 0;
}

static int check_way(const struct cp_stage *s, struct cp_err *err)
{
	struct cp_parents p;
	int rc = 0;

	cp_parents_init(&p, s->target);
	for (size_t i = 0; i < s->m->n && !rc; i++) {
		const struct cp_entry *e = &s->m->v[i];
		const char *name;
		int at;

		if (is_stage(e->path)) {
			rc = cp_fail(err, -EINVAL,
				     "%s: the name is kept for staging",
				     e->path);
			break;
		}
		rc = cp_parents_of(&p, e->path, &at, &name);
		if (rc == -ENOENT)
			rc = 0; /* its directory will be new */
		else if (rc)
			cp_fail_sys(err, rc, "%s", e->path);
		else
			rc = in_the_way(e, at, name, err);
	}
	cp_parents_fini(&p);
	return rc;
}

int cp_stage_enter(struct cp_stage *s, const struct cp_stage_attr *attr,
		   struct cp_err *err)
{
	size_t n = sizeof(CP_STAGE_PREFIX) - 1;
	int rc = cp_below_open(attr->root, attr->path, strlen(attr->path), true,
			       &s->target);

	if (rc == -ELOOP)
		return cp_fail(err, rc, "%s: a link is in the way", attr->path);
	if (rc)
		return cp_fail_sys(err, rc, "%s",
				   *attr->path ? attr->path : "the directory");
	memcpy(s->name, CP_STAGE_PREFIX, n);
	for (int i = 0; i < CP_ID_LEN; i++)
		snprintf(s->name + n + 2 * i, 3, "%02x", attr->id[i]);
	rc = check_way(s, err);
	if (rc)
		goto err_close;
	if (!attr->resume)
		each_name(s->target, remove_crashed);
	rc = lock_dir(s->target, s->name, &s->dir);
	if (rc == -EBUSY)
		cp_fail(err, rc, "the same copy is under way here");
	else if (rc == -EEXIST)
		cp_fail(err, rc, "%s is there, and not this user's alone",
			s->name);
	else if (rc)
		cp_fail_sys(err, rc, "making the staging directory");
	if (rc)
		goto err_close;
	return 0;
err_close:
	close(s->target);
	return rc;
}
