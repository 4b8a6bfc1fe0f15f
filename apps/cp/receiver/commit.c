/* SPDX-License-Identifier: MIT */
/*
 * commit.c - final names; see commit.h.
 */
#include "cp/receiver/commit.h"

#include "cp/receiver/below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct times {
	struct timespec t[2]; /* as futimens() wants them */
};

static struct times times_of(const struct cp_entry *e)
{
	int64_t s = e->mtime_ns / 1000000000, ns = e->mtime_ns % 1000000000;
	struct times t = {{{.tv_nsec = UTIME_OMIT}}};

	if (ns < 0) {
		ns += 1000000000;
		s--;
	}
	t.t[1].tv_sec = s;
	t.t[1].tv_nsec = ns;
	return t;
}

static int commit_dir(struct cp_parents *p, const struct cp_entry *e)
{
	const char *name;
	int at, rc = cp_parents_of(p, e->path, &at, &name);
	struct stat st;

	if (rc)
		return rc;
	if (!mkdirat(at, name, 0700))
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int commit_file(struct cp_stage *s, struct cp_parents *p, uint32_t entry)
{
	const struct cp_entry *e = &s->m->v[entry];
	struct times t = times_of(e);
	const char *name;
	char staged[16];
	int at = -1, rc = cp_parents_of(p, e->path, &at, &name);

	if (rc)
		return rc;
	cp_stage_file_name(staged, entry);
	if (fchmodat(s->dir, staged, e->mode, 0) ||
	    utimensat(s->dir, staged, t.t, AT_SYMLINK_NOFOLLOW))
		return -errno;
	/* of two names of one file rename() keeps both: the stage's goes with
	 * the directory */
	return renameat(s->dir, staged, at, name) ? -errno : 0;
}

static int commit_link(struct cp_stage *s, struct cp_parents *p, uint32_t entry)
{
	const struct cp_entry *e = &s->m->v[entry];
	struct times t = times_of(e);
	const char *name;
	char staged[16];
	int at, rc = cp_parents_of(p, e->path, &at, &name);

	if (rc)
		return rc;
	cp_stage_file_name(staged, entry);
	/* what is left of an earlier try */
	unlinkat(s->dir, staged, 0);
	if (symlinkat(e->link, s->dir, staged))
		return -errno;
	if (utimensat(s->dir, staged, t.t, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return renameat(s->dir, staged, at, name) ? -errno : 0;
}

/* A directory's own mode and time, when nothing in it changes any more. */
static int finish_dir(struct cp_stage *s, const struct cp_entry *e)
{
	struct times t = times_of(e);
	int fd, rc = cp_below_open(s->target, e->path, e->path_len, false, &fd);

	if (rc)
		return rc;
	if (fchmod(fd, e->mode) || futimens(fd, t.t))
		rc = -errno;
	close(fd);
	return rc;
}

static int fail(const struct cp_entry *e, int rc, struct cp_err *err)
{
	if (rc == -EXDEV)
		return cp_fail(err, rc,
			       "%s lies on another file system than the "
			       "target's directory: name that as the target",
			       e->path);
	return cp_fail_sys(err, rc, "putting %s in place", e->path);
}

int cp_commit(struct cp_stage *s, bool sync, struct cp_err *err)
{
	struct cp_parents p;
	int rc = cp_stage_settle(s);

	if (rc)
		return cp_fail_sys(err, rc, "closing what was written");
	if (sync && syncfs(s->dir))
		return cp_fail_sys(err, -errno, "syncing");
	cp_parents_init(&p, s->target);
	for (uint32_t i = 0; i < s->m->n && !rc; i++) {
		const struct cp_entry *e = &s->m->v[i];

		if (e->type == CP_DIR)
			rc = commit_dir(&p, e);
		else if (e->type == CP_FILE)
			rc = commit_file(s, &p, i);
		else
			rc = commit_link(s, &p, i);
		if (rc)
			fail(e, rc, err);
	}
	cp_parents_fini(&p);
	for (size_t i = s->m->n; i-- > 0 && !rc;) {
		if (s->m->v[i].type != CP_DIR)
			continue;
		rc = finish_dir(s, &s->m->v[i]);
		if (rc)
			fail(&s->m->v[i], rc, err);
	}
	if (!rc && sync && syncfs(s->target))
		rc = cp_fail_sys(err, -errno, "syncing");
	return rc;
}
