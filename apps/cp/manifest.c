/* SPDX-License-Identifier: MIT */
/*
 * manifest.c - entries, their order, checks and encoding; see manifest.h.
 */
#include "cp/manifest.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
	MAGIC = 0x70634b53, /* "SKcp" */
	VERSION = 1,
	HEAD_LEN = 16,
	ENTRY_LEN = 14, /* without path and what depends on the type */
	EXTENT_LEN = 16,
	MEM_LEN = 1 << 18,
	MODE_MASK = 0777,
};

/* Strings and extents live as long as the manifest: taken from large pieces. */
struct cp_manifest_mem {
	struct cp_manifest_mem *next;
	size_t used, len;
	uint64_t data[];
};

static void *take(struct cp_manifest *m, size_t len)
{
	struct cp_manifest_mem *mem = m->mem;
	void *p;

	len = (len + 7) & ~(size_t)7;
	if (!mem || mem->len - mem->used < len) {
		size_t room = len > MEM_LEN ? len : MEM_LEN;

		mem = malloc(sizeof(*mem) + room);
		if (!mem)
			return NULL;
		mem->len = room;
		mem->used = 0;
		mem->next = m->mem;
		m->mem = mem;
	}
	p = (char *)mem->data + mem->used;
	mem->used += len;
	return p;
}

static char *take_str(struct cp_manifest *m, const char *s, size_t len)
{
	char *p = take(m, len + 1);

	if (!p)
		return NULL;
	memcpy(p, s, len);
	p[len] = 0;
	return p;
}

bool cp_path_ok(const char *path, size_t len)
{
	size_t begin = 0, depth = 0;

	if (!len || len > CP_PATH_MAX || memchr(path, 0, len))
		return false;
	for (size_t i = 0; i <= len; i++) {
		size_t n = i - begin;

		if (i < len && path[i] != '/')
			continue;
		if (!n || n > CP_NAME_MAX || ++depth > CP_DEPTH_MAX)
			return false;
		if (path[begin] == '.' &&
		    (n == 1 || (n == 2 && path[begin + 1] == '.')))
			return false;
		begin = i + 1;
	}
	return true;
}

static unsigned rank(char c)
{
	return c == '/' ? 1 : c ? (unsigned char)c + 1u : 0;
}

int cp_path_cmp(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return (int)rank(*a) - (int)rank(*b);
}

/* NULL, or what is wrong with an entry taken by itself. */
static const char *wrong(const struct cp_entry *e)
{
	uint64_t end = 0;

	if (!cp_path_ok(e->path, e->path_len))
		return "its path is none";
	if (e->mode & ~MODE_MASK)
		return "its mode has more than nine bits";
	if (e->type == CP_LINK)
		return e->link && *e->link && strlen(e->link) <= CP_PATH_MAX
			       ? NULL
			       : "it points nowhere";
	if (e->type == CP_DIR)
		return NULL;
	if (e->type != CP_FILE)
		return "its type is unknown";
	if (e->size > INT64_MAX)
		return "it is too large";
	for (uint32_t i = 0; i < e->extents; i++) {
		const struct cp_extent *x = &e->extent[i];

		if (!x->len || x->off < end || x->off > e->size ||
		    x->len > e->size - x->off)
			return "its data lies outside of it";
		end = x->off + x->len;
	}
	return NULL;
}

static int grow(struct cp_manifest *m)
{
	size_t room = m->room ? 2 * m->room : 64;
	struct cp_entry *v;

	if (m->n < m->room)
		return 0;
	if (m->n == CP_ENTRIES_MAX)
		return -E2BIG;
	v = realloc(m->v, room * sizeof(*v));
	if (!v)
		return -ENOMEM;
	m->v = v;
	m->room = room;
	return 0;
}

static int count_stream(struct cp_manifest *m, const struct cp_entry *e)
{
	uint64_t len = m->stream_len;

	for (uint32_t i = 0; i < e->extents; i++) {
		if (e->extent[i].len > CP_STREAM_MAX - len)
			return -E2BIG;
		len += e->extent[i].len;
	}
	m->stream_len = len;
	return 0;
}

/* The entry is right, and its strings are the manifest's. */
static int append(struct cp_manifest *m, const struct cp_entry *e)
{
	int rc = grow(m);

	if (!rc && e->type == CP_FILE)
		rc = count_stream(m, e);
	if (!rc)
		m->v[m->n++] = *e;
	return rc;
}

int cp_manifest_add(struct cp_manifest *m, const struct cp_entry *entry,
		    struct cp_err *err)
{
	struct cp_entry e = *entry;
	const char *why = wrong(&e);
	int rc;

	if (why)
		return cp_fail(err, -EINVAL, "%s: %s", e.path, why);
	e.path = take_str(m, e.path, e.path_len);
	if (!e.path)
		return cp_fail(err, -ENOMEM, "no memory");
	if (e.type == CP_LINK) {
		e.link = take_str(m, e.link, strlen(e.link));
		if (!e.link)
			return cp_fail(err, -ENOMEM, "no memory");
	}
	if (e.type == CP_FILE && e.extents) {
		struct cp_extent *x = take(m, e.extents * sizeof(*x));

		if (!x)
			return cp_fail(err, -ENOMEM, "no memory");
		memcpy(x, e.extent, e.extents * sizeof(*x));
		e.extent = x;
	}
	rc = append(m, &e);
	if (rc)
		return cp_fail_sys(err, rc, "%s", e.path);
	return 0;
}

static bool below(const char *path, const struct cp_entry *dir)
{
	return !strncmp(path, dir->path, dir->path_len) &&
	       path[dir->path_len] == '/';
}

/* Each entry follows the one before it, and its parent is a directory that
 * came before it: dirs[] are those that are open. 0, or -EINVAL. */
static int in_order(const struct cp_entry *e, const struct cp_entry *before,
		    const struct cp_entry **dirs, size_t *depth,
		    const char **why)
{
	const char *slash = strrchr(e->path, '/');

	*why = "comes twice or out of order";
	if (before && cp_path_cmp(before->path, e->path) >= 0)
		return -EINVAL;
	while (*depth && !below(e->path, dirs[*depth - 1]))
		--*depth;
	*why = "lies below something that is no directory of this copy";
	if (slash && (!*depth ||
		      dirs[*depth - 1]->path_len != (size_t)(slash - e->path)))
		return -EINVAL;
	if (e->type == CP_DIR)
		dirs[(*depth)++] = e;
	return 0;
}

static int check_order(const struct cp_manifest *m, int code,
		       struct cp_err *err)
{
	/* paths are at most that deep, so are stacks of them */
	const struct cp_entry *dirs[CP_DEPTH_MAX + 1];
	const char *why = NULL;
	size_t depth = 0;

	for (size_t i = 0; i < m->n; i++)
		if (in_order(&m->v[i], i ? &m->v[i - 1] : NULL, dirs, &depth,
			     &why))
			return cp_fail(err, code, "entry %zu, %s: %s", i,
				       m->v[i].path, why);
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return cp_path_cmp(((const struct cp_entry *)a)->path,
			   ((const struct cp_entry *)b)->path);
}

int cp_manifest_finish(struct cp_manifest *m, struct cp_err *err)
{
	if (m->n)
		qsort(m->v, m->n, sizeof(*m->v), by_path);
	return check_order(m, -EINVAL, err);
}

static size_t entry_len(const struct cp_entry *e)
{
	size_t len = ENTRY_LEN + (size_t)e->path_len;

	if (e->type == CP_FILE)
		len += 12 + (size_t)EXTENT_LEN * e->extents;
	else if (e->type == CP_LINK)
		len += 2 + strlen(e->link);
	return len;
}

static void put_entry(struct bytes_out *out, const struct cp_entry *e)
{
	bytes_put_u8(out, (uint8_t)e->type);
	bytes_put_u8(out, 0);
	bytes_put_u16(out, e->mode);
	bytes_put_u64(out, (uint64_t)e->mtime_ns);
	bytes_put_u16(out, e->path_len);
	bytes_put_mem(out, e->path, e->path_len);
	if (e->type == CP_LINK) {
		bytes_put_u16(out, (uint16_t)strlen(e->link));
		bytes_put_mem(out, e->link, strlen(e->link));
	} else if (e->type == CP_FILE) {
		bytes_put_u64(out, e->size);
		bytes_put_u32(out, e->extents);
		for (uint32_t i = 0; i < e->extents; i++) {
			bytes_put_u64(out, e->extent[i].off);
			bytes_put_u64(out, e->extent[i].len);
		}
	}
}

int cp_manifest_encode(const struct cp_manifest *m, void **buf, size_t *len)
{
	struct bytes_out out;
	size_t need = HEAD_LEN;
	void *p;

	for (size_t i = 0; i < m->n; i++)
		need += entry_len(&m->v[i]);
	if (need > CP_MANIFEST_MAX)
		return -E2BIG;
	p = malloc(need);
	if (!p)
		return -ENOMEM;
	out = bytes_out(p, need);
	bytes_put_u32(&out, MAGIC);
	bytes_put_u16(&out, VERSION);
	bytes_put_u16(&out, 0);
	bytes_put_u32(&out, (uint32_t)m->n);
	bytes_put_u32(&out, m->block_size);
	for (size_t i = 0; i < m->n; i++)
		put_entry(&out, &m->v[i]);
	*buf = p;
	*len = need;
	return 0;
}

static int get_link(struct bytes_in *in, struct cp_manifest *m,
		    struct cp_entry *e)
{
	uint16_t len = bytes_get_u16(in);
	const char *p = (const char *)bytes_get(in, len);

	if (!p || memchr(p, 0, len))
		return -EBADMSG;
	e->link = take_str(m, p, len);
	return e->link ? 0 : -ENOMEM;
}

static int get_extents(struct bytes_in *in, struct cp_manifest *m,
		       struct cp_entry *e)
{
	struct cp_extent *x;

	e->size = bytes_get_u64(in);
	e->extents = bytes_get_u32(in);
	if (in->failed || e->extents > bytes_left(in) / EXTENT_LEN)
		return -EBADMSG;
	if (!e->extents)
		return 0;
	x = take(m, e->extents * sizeof(*x));
	if (!x)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->extents; i++) {
		x[i].off = bytes_get_u64(in);
		x[i].len = bytes_get_u64(in);
	}
	e->extent = x;
	return 0;
}

static int get_entry(struct bytes_in *in, struct cp_manifest *m)
{
	struct cp_entry e = {.type = (enum cp_type)bytes_get_u8(in)};
	const char *path;
	uint8_t zero;
	int rc = 0;

	zero = bytes_get_u8(in);
	e.mode = bytes_get_u16(in);
	e.mtime_ns = (int64_t)bytes_get_u64(in);
	e.path_len = bytes_get_u16(in);
	path = (const char *)bytes_get(in, e.path_len);
	if (!path || zero || !cp_path_ok(path, e.path_len))
		return -EBADMSG;
	e.path = take_str(m, path, e.path_len);
	if (!e.path)
		return -ENOMEM;
	if (e.type == CP_LINK)
		rc = get_link(in, m, &e);
	else if (e.type == CP_FILE)
		rc = get_extents(in, m, &e);
	if (!rc && (in->failed || wrong(&e)))
		rc = -EBADMSG;
	return rc ? rc : append(m, &e);
}

static int get_head(struct bytes_in *in, struct cp_manifest *m, uint32_t *n)
{
	uint32_t magic = bytes_get_u32(in);
	uint16_t version = bytes_get_u16(in), zero = bytes_get_u16(in);

	*n = bytes_get_u32(in);
	m->block_size = bytes_get_u32(in);
	if (in->failed || magic != MAGIC || version != VERSION || zero ||
	    *n > CP_ENTRIES_MAX || *n > bytes_left(in) / ENTRY_LEN)
		return -EBADMSG;
	if (m->block_size < CP_BLOCK_MIN || m->block_size > CP_BLOCK_MAX ||
	    (m->block_size & (m->block_size - 1)))
		return -EBADMSG;
	return 0;
}

int cp_manifest_decode(const void *buf, size_t len, struct cp_manifest *m,
		       struct cp_err *err)
{
	struct bytes_in in = bytes_in(buf, len);
	struct cp_manifest new = {0};
	uint32_t n = 0, i = 0;
	int rc = get_head(&in, &new, &n);

	if (rc)
		return cp_fail(err, rc, "the manifest's head is wrong");
	for (; !rc && i < n; i++)
		rc = get_entry(&in, &new);
	if (!rc && bytes_left(&in))
		rc = -EBADMSG;
	if (rc)
		cp_fail_sys(err, rc, "the manifest is wrong at entry %u", i);
	else
		rc = check_order(&new, -EBADMSG, err);
	if (rc) {
		cp_manifest_fini(&new);
		return rc;
	}
	*m = new;
	return 0;
}

void cp_manifest_id(const void *buf, size_t len, uint8_t id[CP_ID_LEN])
{
	XXH128_canonical_t c;

	XXH128_canonicalFromHash(&c, XXH3_128bits(buf, len));
	memcpy(id, c.digest, CP_ID_LEN);
}

uint64_t cp_manifest_blocks(const struct cp_manifest *m)
{
	return (m->stream_len + m->block_size - 1) / m->block_size;
}

void cp_manifest_fini(struct cp_manifest *m)
{
	while (m->mem) {
		struct cp_manifest_mem *mem = m->mem;

		m->mem = mem->next;
		free(mem);
	}
	free(m->v);
	*m = (struct cp_manifest){0};
}
