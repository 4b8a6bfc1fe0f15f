/* SPDX-License-Identifier: MIT */
/*
 * stage.c - a copy's files before they have their names; see stage.h.
 */
#include "cp/receiver/stage.h"

#include "base/assert.h"
#include "cp/receiver/below.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void cp_stage_file_name(char name[16], uint32_t entry)
{
	snprintf(name, 16, "%u", entry);
}

/* A file system over a network tells only now what went wrong in writing. */
static int close_slot(struct cp_stage *s, unsigned slot)
{
	int fd = s->open[slot].fd;

	s->open[slot].fd = -1;
	return fd >= 0 && close(fd) && errno != EINTR ? -errno : 0;
}

int cp_stage_settle(struct cp_stage *s)
{
	int rc = 0;

	for (unsigned i = 0; i < CP_STAGE_OPEN; i++) {
		int failed = close_slot(s, i);

		rc = rc ? rc : failed;
	}
	return rc;
}

int cp_stage_file(struct cp_stage *s, uint32_t entry, int *fd)
{
	unsigned slot = entry % CP_STAGE_OPEN;
	char name[16];
	int f, rc;

	if (s->open[slot].fd >= 0 && s->open[slot].entry == entry) {
		*fd = s->open[slot].fd;
		return 0;
	}
	cp_stage_file_name(name, entry);
	f = openat(s->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	/* a final file that we may not write, linked: reading will do */
	if (f < 0 && errno == EACCES && s->linked[entry])
		f = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (f < 0)
		return -errno;
	rc = close_slot(s, slot);
	if (rc) {
		close(f);
		return rc;
	}
	s->open[slot].fd = f;
	s->open[slot].entry = entry;
	*fd = f;
	return 0;
}

/* Only of files that were not written. */
static void forget_file(struct cp_stage *s, uint32_t entry)
{
	unsigned slot = entry % CP_STAGE_OPEN;

	if (s->open[slot].entry == entry)
		close_slot(s, slot);
}

static int read_at(int fd, void *buf, size_t len, uint64_t off)
{
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		p += n;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_at(int fd, const void *buf, size_t len, uint64_t off)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* Copies what from has to a new file of the same size. */
static int copy_file(int from, int to, uint64_t size)
{
	off_t in = 0, out = 0;

	if (ftruncate(to, (off_t)size))
		return -errno;
	while ((uint64_t)in < size) {
		ssize_t n = copy_file_range(from, &in, to, &out,
					    size - (uint64_t)in, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
	}
	return 0;
}

/* The entry's staged file is the final one: makes it a copy that may be
 * written. */
static int unlink_final(struct cp_stage *s, uint32_t entry)
{
	char name[16];
	int from = -1, to, rc = cp_stage_file(s, entry, &from);

	if (rc)
		return rc;
	to = openat(s->dir, "copy",
		    O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	rc = copy_file(from, to, s->m->v[entry].size);
	close(to);
	if (rc)
		return rc;
	cp_stage_file_name(name, entry);
	if (renameat(s->dir, "copy", s->dir, name))
		return -errno;
	forget_file(s, entry);
	s->linked[entry] = 0;
	return 0;
}

/* Are the bytes of a final file already what they shall be? */
static int same_bytes(int fd, const void *data, const struct cp_seg *seg,
		      bool *same)
{
	char *buf = malloc(seg->len);
	int rc;

	if (!buf)
		return -ENOMEM;
	rc = read_at(fd, buf, seg->len, seg->file_off);
	if (!rc)
		*same = !memcmp(buf, data, seg->len);
	free(buf);
	return rc;
}

static int write_seg(struct cp_stage *s, const struct cp_seg *seg,
		     const void *data)
{
	bool same = false;
	int fd = -1, rc = cp_stage_file(s, seg->entry, &fd);

	if (rc)
		return rc;
	if (s->linked[seg->entry]) {
		rc = same_bytes(fd, data, seg, &same);
		if (rc || same)
			return rc;
		rc = unlink_final(s, seg->entry);
		if (!rc)
			rc = cp_stage_file(s, seg->entry, &fd);
		if (rc)
			return rc;
	}
	return write_at(fd, data, seg->len, seg->file_off);
}

int cp_stage_write(struct cp_stage *s, uint64_t block, const void *data,
		   struct cp_err *err)
{
	uint64_t off, end;
	uint32_t len;
	int rc;

	cp_layout_block(s->layout, block, &off, &len);
	XXH3_64bits_reset(s->hash);
	for (end = off + len; off < end;) {
		struct cp_seg seg =
			cp_layout_at(s->layout, off, cp_hash_piece(end - off));

		XXH3_64bits_update(s->hash, data, seg.len);
		rc = write_seg(s, &seg, data);
		if (rc)
			return cp_fail_sys(err, rc, "writing %s",
					   s->m->v[seg.entry].path);
		data = (const char *)data + seg.len;
		off += seg.len;
	}
	if (!s->state.hash[block])
		s->have++;
	rc = cp_state_set(&s->state, block, cp_block_hash_end(s->hash));
	return rc ? cp_fail_sys(err, rc, "writing the state file") : 0;
}

/* The hash of what is there of a block. */
static int hash_block(struct cp_stage *s, uint64_t block, uint64_t *hash)
{
	uint64_t off, end;
	uint32_t len;
	char *p = s->buf;

	cp_layout_block(s->layout, block, &off, &len);
	for (end = off + len; off < end;) {
		struct cp_seg seg = cp_layout_at(s->layout, off, end - off);
		int fd = -1, rc = cp_stage_file(s, seg.entry, &fd);

		if (!rc)
			rc = read_at(fd, p, seg.len, seg.file_off);
		if (rc)
			return rc;
		p += seg.len;
		off += seg.len;
	}
	*hash = cp_block_hash(s->buf, len);
	return 0;
}

/* Does part of the block lie in a file that is in place? */
static bool touches_linked(const struct cp_stage *s, uint64_t block)
{
	uint64_t off, end;
	uint32_t len;

	cp_layout_block(s->layout, block, &off, &len);
	for (end = off + len; off < end;) {
		struct cp_seg seg = cp_layout_at(s->layout, off, end - off);

		if (s->linked[seg.entry])
			return true;
		off += seg.len;
	}
	return false;
}

/* What the state file claims, and what is in place, is read: only what is
 * there counts. */
static int recount(struct cp_stage *s)
{
	for (uint64_t b = 0; b < s->state.blocks; b++) {
		uint64_t claim = s->state.hash[b], hash = 0;
		int rc;

		if (!claim && !touches_linked(s, b))
			continue;
		rc = hash_block(s, b, &hash);
		if (rc && rc != -ENODATA)
			return rc;
		if (claim && hash != claim)
			hash = 0;
		if (hash != claim) {
			rc = cp_state_set(&s->state, b, hash);
			if (rc)
				return rc;
		}
		s->have += !!hash;
	}
	return 0;
}

int64_t cp_stage_compare(struct cp_stage *s, uint64_t first,
			 const uint64_t *sums, uint64_t n)
{
	int64_t lacking = 0;

	skein_assert(first <= s->state.blocks && n <= s->state.blocks - first);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t hash = s->state.hash[first + i];

		if (hash && hash == sums[i])
			continue;
		lacking++;
		if (hash) {
			int rc = cp_state_set(&s->state, first + i, 0);

			if (rc)
				return rc;
			s->have--;
		}
	}
	return lacking;
}

int cp_file_hash(int fd, void *buf, size_t buf_len, uint8_t hash[CP_ID_LEN])
{
	XXH3_state_t *x = XXH3_createState();
	XXH128_canonical_t c;
	off_t off = 0;
	ssize_t n;

	if (!x)
		return -ENOMEM;
	XXH3_128bits_reset(x);
	while ((n = pread(fd, buf, buf_len, off)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			n = -errno;
			break;
		}
		XXH3_128bits_update(x, buf, (size_t)n);
		off += n;
	}
	if (!n) {
		XXH128_canonicalFromHash(&c, XXH3_128bits_digest(x));
		memcpy(hash, c.digest, CP_ID_LEN);
	}
	XXH3_freeState(x);
	return (int)n;
}

int cp_stage_hash(struct cp_stage *s, uint32_t entry, uint8_t hash[CP_ID_LEN],
		  struct cp_err *err)
{
	int fd = -1, rc = cp_stage_file(s, entry, &fd);

	if (!rc) {
		/* from the disk, where the kernel lets us: not from its cache;
		 * of small files the seeks would cost more than that tells */
		if (s->m->v[entry].size > CP_STAGE_SMALL)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		rc = cp_file_hash(fd, s->buf, s->m->block_size, hash);
	}
	return rc ? cp_fail_sys(err, rc, "reading %s back", s->m->v[entry].path)
		  : 0;
}

static int reserve(const struct cp_entry *e, int fd)
{
	if (e->size && ftruncate(fd, (off_t)e->size))
		return -errno;
	for (uint32_t i = 0; i < e->extents && e->size > CP_STAGE_SMALL; i++) {
		int rc;

		do
			rc = fallocate(fd, 0, (off_t)e->extent[i].off,
				       (off_t)e->extent[i].len);
		while (rc && errno == EINTR);
		if (rc && errno == EOPNOTSUPP)
			return 0; /* then it is known when it is written */
		if (rc)
			return -errno;
	}
	return 0;
}

static bool is_zero(const char *p, size_t len)
{
	return !len || (!*p && !memcmp(p, p + 1, len - 1));
}

/* Does nothing but zeros lie in [at, end) of the file, or behind its end? */
static bool zero_between(const struct cp_stage *s, int fd, uint64_t at,
			 uint64_t end)
{
	while (at < end) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		size_t len = s->m->block_size;
		ssize_t n;

		if (data < 0 && errno == ENXIO)
			return true;
		/* a file system that cannot tell: all of it is read */
		if (data > (off_t)at)
			at = (uint64_t)data;
		if (at >= end)
			return true;
		if (len > end - at)
			len = end - at;
		n = pread(fd, s->buf, len, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return !n;
		if (!is_zero(s->buf, (size_t)n))
			return false;
		at += (uint64_t)n;
	}
	return true;
}

/* Is all zero that the copy has as a hole? Its blocks say nothing of that. */
static bool holes_empty(const struct cp_stage *s, const struct cp_entry *e,
			int fd)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i <= e->extents; i++) {
		const struct cp_extent *x = &e->extent[i];

		if (!zero_between(s, fd, at, i < e->extents ? x->off : e->size))
			return false;
		at = i < e->extents ? x->off + x->len : e->size;
	}
	return true;
}

/* Is it the entry's final file by all that can be seen? Of a file with other
 * names the mode would change under these, too; and what is another's keeps
 * its mode. */
static bool in_place(const struct cp_entry *e, const struct stat *st,
		     nlink_t links)
{
	return S_ISREG(st->st_mode) && (uint64_t)st->st_size == e->size &&
	       (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec ==
		       e->mtime_ns &&
	       st->st_nlink == links && (st->st_uid == geteuid() || !geteuid());
}

/* The same once it is linked: another may have taken its place before. */
static bool linked_right(struct cp_stage *s, uint32_t entry)
{
	const struct cp_entry *e = &s->m->v[entry];
	struct stat st;
	int fd;

	return !cp_stage_file(s, entry, &fd) && !fstat(fd, &st) &&
	       in_place(e, &st, 2) && holes_empty(s, e, fd);
}

/* A file that is in place: linked into the stage. */
static bool link_final(struct cp_stage *s, struct cp_parents *p, uint32_t entry,
		       const char *staged)
{
	const struct cp_entry *e = &s->m->v[entry];
	struct stat st;
	const char *name;
	int at;

	if (cp_parents_of(p, e->path, &at, &name) ||
	    fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !in_place(e, &st, 1) || linkat(at, name, s->dir, staged, 0))
		return false;
	s->linked[entry] = 1;
	if (linked_right(s, entry))
		return true;
	s->linked[entry] = 0;
	forget_file(s, entry);
	unlinkat(s->dir, staged, 0);
	return false;
}

static int make_file(struct cp_stage *s, struct cp_parents *p, uint32_t entry,
		     bool resume)
{
	const struct cp_entry *e = &s->m->v[entry];
	char name[16];
	struct stat st;
	bool there;
	int fd, rc = 0;

	cp_stage_file_name(name, entry);
	there = !fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW);
	/* What a crashed copy has linked here may be anybody's by now, under
	 * another name: it is not written, and looked for anew. */
	if (there && (st.st_nlink > 1 || !resume)) {
		if (unlinkat(s->dir, name, 0))
			return -errno;
		there = false;
	}
	if (resume && !there && link_final(s, p, entry, name))
		return 0;
	fd = openat(s->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	if (fd < 0)
		return -errno;
	if (resume && !holes_empty(s, e, fd) && ftruncate(fd, 0))
		rc = -errno;
	rc = rc ? rc : reserve(e, fd);
	close(fd);
	return rc;
}

/* Is there room for the small files, each rounded up as file systems do? */
static int check_small(struct cp_stage *s, struct cp_err *err)
{
	struct statvfs st;
	uint64_t need = 0;

	if (fstatvfs(s->dir, &st) || !st.f_frsize)
		return 0; /* then it is known when it is written */
	for (size_t i = 0; i < s->m->n; i++) {
		const struct cp_entry *e = &s->m->v[i];

		if (e->type == CP_FILE && e->size <= CP_STAGE_SMALL)
			need += (e->size + st.f_frsize - 1) / st.f_frsize;
	}
	if (need > st.f_bavail)
		return cp_fail(err, -ENOSPC,
			       "making room for small files: %llu bytes are "
			       "wanted, %llu there",
			       (unsigned long long)need * st.f_frsize,
			       (unsigned long long)st.f_bavail * st.f_frsize);
	return 0;
}

static int make_files(struct cp_stage *s, bool resume, struct cp_err *err)
{
	struct cp_parents p;
	/* what was begun has its room already */
	int rc = resume ? 0 : check_small(s, err);

	cp_parents_init(&p, s->target);
	for (size_t i = 0; i < s->m->n && !rc; i++) {
		const struct cp_entry *e = &s->m->v[i];

		if (e->type != CP_FILE)
			continue;
		rc = make_file(s, &p, (uint32_t)i, resume);
		if (rc)
			cp_fail_sys(err, rc, "making room for %s (%llu bytes)",
				    e->path, (unsigned long long)e->size);
	}
	cp_parents_fini(&p);
	return rc;
}

static int fill_stage(struct cp_stage *s, const struct cp_stage_attr *attr,
		      struct cp_err *err)
{
	int rc = make_files(s, attr->resume, err);

	if (rc)
		return rc;
	rc = cp_state_open(&s->state, s->dir, attr->id, s->m->block_size,
			   cp_layout_blocks(s->layout), attr->resume);
	if (rc)
		return cp_fail_sys(err, rc, "making the state file");
	if (attr->resume) {
		rc = recount(s);
		if (rc) {
			cp_state_close(&s->state);
			return cp_fail_sys(err, rc, "reading what is there");
		}
	}
	return 0;
}

int cp_stage_open(struct cp_stage *s, const struct cp_stage_attr *attr,
		  struct cp_err *err)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->m = attr->m;
	s->layout = attr->layout;
	for (unsigned i = 0; i < CP_STAGE_OPEN; i++)
		s->open[i].fd = -1;
	s->linked = calloc(1, s->m->n + 1);
	s->buf = malloc(s->m->block_size);
	s->hash = XXH3_createState();
	if (!s->linked || !s->buf || !s->hash) {
		rc = cp_fail(err, -ENOMEM, "no memory");
		goto err_free;
	}
	rc = cp_stage_enter(s, attr, err);
	if (rc)
		goto err_free;
	rc = fill_stage(s, attr, err);
	if (rc)
		goto err_leave;
	return 0;
err_leave:
	cp_stage_settle(s);
	/* of an earlier copy, it may still be wanted */
	if (!attr->resume)
		cp_stage_remove(s->target, s->name, s->dir);
	close(s->dir);
	close(s->target);
err_free:
	XXH3_freeState(s->hash);
	free(s->buf);
	free(s->linked);
	return rc;
}

void cp_stage_close(struct cp_stage *s, bool keep)
{
	cp_stage_settle(s);
	cp_state_close(&s->state);
	if (!keep)
		cp_stage_remove(s->target, s->name, s->dir);
	close(s->dir);
	close(s->target);
	XXH3_freeState(s->hash);
	free(s->buf);
	free(s->linked);
}
