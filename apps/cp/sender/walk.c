/* SPDX-License-Identifier: MIT */
/*
 * walk.c - operands to a manifest; see walk.h.
 */
#include "cp/sender/walk.h"

#include "cp/receiver/below.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	OPEN_FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
	OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
	MODE_MASK = 0777,
	SPOOL_LEN = 1 << 20,
};

struct walk {
	struct cp_tree *t;
	struct cp_err *err;
	struct cp_extent *extent;
	size_t extents, room;
	size_t len;	     /* of path */
	size_t top;	     /* of its first component */
	const char *operand; /* that it comes from */
	unsigned depth;
	char path[CP_PATH_MAX + 1]; /* of the entry, as others will see it */
	char link[CP_PATH_MAX + 1];
	char text[2 * CP_PATH_MAX + 2];
};

/* The entry as the user knows it: the operand, and what is below it. */
static const char *shown(struct walk *w)
{
	if (!w->operand)
		return w->path;
	snprintf(w->text, sizeof(w->text), "%s%s", w->operand,
		 w->path + w->top);
	return w->text;
}

static int64_t mtime_ns(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static struct cp_entry entry_of(struct walk *w, enum cp_type type,
				const struct stat *st)
{
	return (struct cp_entry){
		.type = type,
		.mode = st->st_mode & MODE_MASK,
		.mtime_ns = mtime_ns(st),
		.path = w->path,
		.path_len = (uint16_t)w->len,
	};
}

static int add_extent(struct walk *w, off_t begin, off_t end)
{
	if (w->extents == w->room) {
		size_t room = w->room ? 2 * w->room : 16;
		struct cp_extent *x =
			realloc(w->extent, room * sizeof(*w->extent));

		if (!x)
			return cp_fail(w->err, -ENOMEM, "no memory");
		w->extent = x;
		w->room = room;
	}
	w->extent[w->extents++] = (struct cp_extent){
		.off = (uint64_t)begin, .len = (uint64_t)(end - begin)};
	return 0;
}

/* Where a file has data. A file system that cannot tell has it everywhere. */
static int find_data(struct walk *w, int fd, off_t size, bool holes)
{
	off_t at = 0, end;
	int rc = 0;

	w->extents = 0;
	while (holes && at < size && !rc) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			return 0; /* a hole up to the end */
		end = at < 0 ? -1 : lseek(fd, at, SEEK_HOLE);
		if (end < 0) {
			w->extents = 0;
			at = 0;
			break;
		}
		if (at >= size)
			return 0;
		rc = add_extent(w, at, end < size ? end : size);
		at = end;
	}
	if (!rc && at < size)
		rc = add_extent(w, at, size);
	return rc;
}

static int add_file(struct walk *w, int fd)
{
	struct cp_entry e;
	struct stat st;
	int rc;

	if (fstat(fd, &st))
		return cp_fail_sys(w->err, -errno, "%s", shown(w));
	if (!S_ISREG(st.st_mode)) /* it was one when it was looked at */
		return cp_fail(w->err, -ESTALE, "%s was changed", shown(w));
	rc = find_data(w, fd, st.st_size, st.st_blocks * 512 < st.st_size);
	if (rc)
		return rc;
	e = entry_of(w, CP_FILE, &st);
	e.size = (uint64_t)st.st_size;
	e.extents = (uint32_t)w->extents;
	e.extent = w->extent;
	return cp_manifest_add(&w->t->m, &e, w->err);
}

static int visit_file(struct walk *w, int at, const char *name)
{
	int fd = openat(at, name, OPEN_FILE), rc;

	if (fd < 0)
		return cp_fail_sys(w->err, -errno, "cannot read %s", shown(w));
	rc = add_file(w, fd);
	close(fd);
	return rc;
}

static int visit_link(struct walk *w, int at, const char *name,
		      const struct stat *st)
{
	struct cp_entry e = entry_of(w, CP_LINK, st);
	ssize_t n = readlinkat(at, name, w->link, sizeof(w->link));

	if (n < 0)
		return cp_fail_sys(w->err, -errno, "%s", shown(w));
	if ((size_t)n == sizeof(w->link))
		return cp_fail(w->err, -ENAMETOOLONG,
			       "%s: what the link says is too long", shown(w));
	w->link[n] = 0;
	e.link = w->link;
	e.mode = MODE_MASK;
	return cp_manifest_add(&w->t->m, &e, w->err);
}

static int visit(struct walk *w, int at, const char *name);

/* Everything in an open directory. Takes the descriptor over. */
static int visit_all(struct walk *w, int fd)
{
	size_t len = w->len;
	struct dirent *d;
	int rc = 0;
	DIR *dir = fdopendir(fd);

	if (!dir) {
		rc = cp_fail_sys(w->err, -errno, "%s", shown(w));
		close(fd);
		return rc;
	}
	while (!rc && (errno = 0, d = readdir(dir))) {
		size_t n = strlen(d->d_name);

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (len + 1 + n > CP_PATH_MAX) {
			rc = cp_fail(w->err, -ENAMETOOLONG,
				     "%s/%s: the path is too long", shown(w),
				     d->d_name);
			break;
		}
		w->path[len] = '/';
		memcpy(w->path + len + 1, d->d_name, n + 1);
		w->len = len + 1 + n;
		rc = visit(w, dirfd(dir), d->d_name);
		w->len = len;
		w->path[len] = 0;
	}
	if (!rc && errno)
		rc = cp_fail_sys(w->err, -errno, "cannot list %s", shown(w));
	closedir(dir);
	return rc;
}

/* Of an operand: what lies below it is read from this very directory. */
static int keep_dir(struct walk *w, int fd)
{
	struct cp_origin *o = &w->t->v[w->t->n];

	if (w->depth)
		return 0;
	o->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return o->fd < 0 ? cp_fail_sys(w->err, -errno, "%s", shown(w)) : 0;
}

static int visit_dir(struct walk *w, int at, const char *name,
		     const struct stat *st)
{
	struct cp_entry e = entry_of(w, CP_DIR, st);
	int rc = cp_manifest_add(&w->t->m, &e, w->err), fd;

	if (rc)
		return rc;
	if (w->depth == CP_DEPTH_MAX)
		return cp_fail(w->err, -ENAMETOOLONG, "%s: too deep", shown(w));
	fd = openat(at, name, OPEN_DIR);
	if (fd < 0)
		return cp_fail_sys(w->err, -errno, "cannot list %s", shown(w));
	rc = keep_dir(w, fd);
	if (rc) {
		close(fd);
		return rc;
	}
	w->depth++;
	rc = visit_all(w, fd);
	w->depth--;
	return rc;
}

static int visit(struct walk *w, int at, const char *name)
{
	struct stat st;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
		return cp_fail_sys(w->err, -errno, "%s", shown(w));
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return visit_file(w, at, name);
	case S_IFDIR:
		return visit_dir(w, at, name, &st);
	case S_IFLNK:
		return visit_link(w, at, name, &st);
	default:
		return cp_fail(w->err, -EINVAL,
			       "%s is neither a file, nor a directory, nor a "
			       "link",
			       shown(w));
	}
}

static int set_name(struct walk *w, const char *operand, const char *name)
{
	size_t len = strlen(name);

	if (!cp_path_ok(name, len) || strchr(name, '/'))
		return cp_fail(w->err, -EINVAL,
			       "\"%s\" has no name to go by on a target",
			       operand);
	for (size_t i = 0; i < w->t->n; i++)
		if (!strcmp(w->t->v[i].name, name))
			return cp_fail(w->err, -EEXIST,
				       "two operands would both be \"%s\"",
				       name);
	memcpy(w->path, name, len + 1);
	w->len = w->top = len;
	return 0;
}

/* The name that an operand goes by: "a/b/" is b, "." what it is called. */
static int name_of(struct walk *w, const char *operand)
{
	char *text = strdup(operand), *real = NULL;
	const char *base;
	size_t n;
	int rc;

	if (!text)
		return cp_fail(w->err, -ENOMEM, "no memory");
	n = strlen(text);
	while (n > 1 && text[n - 1] == '/')
		text[--n] = 0;
	base = strrchr(text, '/');
	base = base && base[1] ? base + 1 : text;
	if (!strcmp(base, ".") || !strcmp(base, "..")) {
		real = realpath(text, NULL);
		if (!real) {
			rc = cp_fail_sys(w->err, -errno, "%s", operand);
			goto out;
		}
		base = strrchr(real, '/') + 1;
	}
	rc = set_name(w, operand, base);
out:
	free(real);
	free(text);
	return rc;
}

static int spool(int from, int to, struct cp_err *err)
{
	char *buf = malloc(SPOOL_LEN);
	ssize_t n = 0;
	int rc = 0;

	if (!buf)
		return cp_fail(err, -ENOMEM, "no memory");
	while (!rc && (n = read(from, buf, SPOOL_LEN)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = cp_fail_sys(err, -errno, "standard input");
			break;
		}
		for (ssize_t done = 0; !rc && done < n;) {
			ssize_t m = write(to, buf + done, (size_t)(n - done));

			if (m < 0 && errno != EINTR)
				rc = cp_fail_sys(err, -errno,
						 "spooling standard input");
			done += m > 0 ? m : 0;
		}
	}
	free(buf);
	return rc;
}

/* An unnamed file: nobody else sees it, nothing is left of it. */
static int unnamed(int *fd)
{
	const char *dir = getenv("TMPDIR");
	char path[CP_PATH_MAX + 1];

	if (!dir || !*dir)
		dir = "/var/tmp";
	*fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (*fd >= 0)
		return 0;
	if (errno != EOPNOTSUPP && errno != EISDIR)
		return -errno;
	if (snprintf(path, sizeof(path), "%s/skein-cp-XXXXXX", dir) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	*fd = mkostemp(path, O_CLOEXEC);
	if (*fd < 0)
		return -errno;
	unlink(path);
	return 0;
}

static int take_stdin(struct walk *w, struct cp_origin *o, const char *name)
{
	int rc = set_name(w, "-", name ? name : "stdin");

	if (rc)
		return rc;
	rc = unnamed(&o->fd);
	if (rc)
		return cp_fail_sys(w->err, rc, "spooling standard input");
	rc = spool(STDIN_FILENO, o->fd, w->err);
	if (!rc && fchmod(o->fd, 0644))
		rc = cp_fail_sys(w->err, -errno, "standard input");
	return rc ? rc : add_file(w, o->fd);
}

static int take_path(struct walk *w, struct cp_origin *o, const char *operand)
{
	int rc = name_of(w, operand);

	if (rc)
		return rc;
	o->path = strdup(operand);
	if (!o->path)
		return cp_fail(w->err, -ENOMEM, "no memory");
	/* "link/" names what it points to; we do not follow */
	for (size_t n = strlen(o->path); n > 1 && o->path[n - 1] == '/'; n--)
		o->path[n - 1] = 0;
	w->operand = o->path;
	rc = visit(w, AT_FDCWD, o->path);
	w->operand = NULL;
	return rc;
}

static int take(struct walk *w, const char *operand, const char *stdin_name)
{
	struct cp_origin *o = &w->t->v[w->t->n];
	int rc;

	*o = (struct cp_origin){.fd = -1};
	if (!strcmp(operand, "-"))
		rc = take_stdin(w, o, stdin_name);
	else
		rc = take_path(w, o, operand);
	/* the name is the first component in any case */
	o->name = rc ? NULL : strdup(w->path);
	w->t->n++;
	if (!rc && !o->name)
		rc = cp_fail(w->err, -ENOMEM, "no memory");
	return rc;
}

int cp_walk(char *const *operands, size_t n, const char *stdin_name,
	    uint32_t block_size, struct cp_tree *t, struct cp_err *err)
{
	struct walk *w = calloc(1, sizeof(*w));
	int rc = 0;

	*t = (struct cp_tree){.v = calloc(n + 1, sizeof(*t->v))};
	if (!w || !t->v) {
		free(w);
		free(t->v);
		return cp_fail(err, -ENOMEM, "no memory");
	}
	t->m.block_size = block_size;
	w->t = t;
	w->err = err;
	for (size_t i = 0; i < n && !rc; i++)
		rc = take(w, operands[i], stdin_name);
	if (!rc)
		rc = cp_manifest_finish(&t->m, err);
	free(w->extent);
	free(w);
	if (rc)
		cp_tree_fini(t);
	return rc;
}

int cp_tree_same(const struct cp_entry *e, int fd, struct cp_err *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return cp_fail_sys(err, -errno, "%s", e->path);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != e->size ||
	    mtime_ns(&st) != e->mtime_ns)
		return cp_fail(err, -ESTALE,
			       "%s was changed while it was copied", e->path);
	return 0;
}

static const struct cp_origin *origin_of(const struct cp_tree *t,
					 const struct cp_entry *e)
{
	size_t len = strcspn(e->path, "/");

	for (size_t i = 0; i < t->n; i++)
		if (strlen(t->v[i].name) == len &&
		    !memcmp(t->v[i].name, e->path, len))
			return &t->v[i];
	return NULL;
}

/* What lies below a directory that is an operand; no link leads there. */
static int open_below(int dir, const char *path)
{
	struct cp_parents p;
	const char *name;
	int at = -1, f, rc;

	cp_parents_init(&p, dir);
	rc = cp_parents_of(&p, path, &at, &name);
	if (!rc) {
		f = openat(at, name, OPEN_FILE);
		rc = f < 0 ? -errno : f;
	}
	cp_parents_fini(&p);
	return rc;
}

static int open_entry(const struct cp_origin *o, const struct cp_entry *e)
{
	size_t len = strlen(o->name);
	int f;

	if (o->path && o->fd >= 0)
		return open_below(o->fd, e->path + len + 1);
	f = o->path ? open(o->path, OPEN_FILE)
		    : fcntl(o->fd, F_DUPFD_CLOEXEC, 0);
	return f < 0 ? -errno : f;
}

int cp_tree_open(const struct cp_tree *t, const struct cp_entry *e, int *fd,
		 struct cp_err *err)
{
	const struct cp_origin *o = origin_of(t, e);
	int f = o ? open_entry(o, e) : -ENOENT, rc;

	if (f < 0)
		return cp_fail_sys(err, f, "cannot read %s", e->path);
	rc = cp_tree_same(e, f, err);
	if (rc) {
		close(f);
		return rc;
	}
	*fd = f;
	return 0;
}

void cp_tree_fini(struct cp_tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->v[i].fd >= 0)
			close(t->v[i].fd);
		free(t->v[i].name);
		free(t->v[i].path);
	}
	free(t->v);
	cp_manifest_fini(&t->m);
	*t = (struct cp_tree){0};
}
