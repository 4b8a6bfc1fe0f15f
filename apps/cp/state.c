/* SPDX-License-Identifier: MIT */
/*
 * state.c - which blocks are there; see state.h.
 */
#include "cp/state.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	MAGIC = 0x73634b53, /* "SKcs" */
	VERSION = 1,
};

void cp_state_encode(uint8_t head[CP_STATE_HEAD], const uint8_t *id,
		     uint32_t block_size, uint64_t blocks)
{
	struct bytes_out out = bytes_out(head, CP_STATE_HEAD);

	bytes_put_u32(&out, MAGIC);
	bytes_put_u16(&out, VERSION);
	bytes_put_u16(&out, 0);
	bytes_put_mem(&out, id, CP_ID_LEN);
	bytes_put_u32(&out, block_size);
	bytes_put_u32(&out, 0);
	bytes_put_u64(&out, blocks);
	skein_assert(!out.failed && out.pos == CP_STATE_HEAD);
}

bool cp_state_decode(const uint8_t head[CP_STATE_HEAD], const uint8_t *id,
		     uint32_t block_size, uint64_t blocks)
{
	uint8_t want[CP_STATE_HEAD];

	cp_state_encode(want, id, block_size, blocks);
	return !memcmp(head, want, CP_STATE_HEAD);
}

static int read_all(int fd, void *buf, size_t len, off_t off)
{
	char *p = buf;

	while (len) {
		ssize_t n = pread(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_all(int fd, const void *buf, size_t len, off_t off)
{
	const char *p = buf;

	while (len) {
		ssize_t n = pwrite(fd, p, len, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		off += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The claims of a file that is this copy's; else -ENODATA. */
static int load(struct cp_state *s)
{
	uint8_t head[CP_STATE_HEAD], raw[8];
	size_t len = s->blocks * sizeof(*s->hash);
	struct bytes_in in;
	struct stat st;
	int rc;

	if (fstat(s->fd, &st))
		return -errno;
	if (st.st_size != (off_t)(CP_STATE_HEAD + len))
		return -ENODATA;
	rc = read_all(s->fd, head, sizeof(head), 0);
	if (rc)
		return rc;
	if (!cp_state_decode(head, s->id, s->block_size, s->blocks))
		return -ENODATA;
	rc = read_all(s->fd, s->hash, len, CP_STATE_HEAD);
	for (uint64_t i = 0; !rc && i < s->blocks; i++) {
		memcpy(raw, &s->hash[i], sizeof(raw));
		in = bytes_in(raw, sizeof(raw));
		s->hash[i] = bytes_get_u64(&in);
	}
	return rc;
}

static int fresh(struct cp_state *s)
{
	uint8_t head[CP_STATE_HEAD];
	off_t len = (off_t)(CP_STATE_HEAD + s->blocks * sizeof(*s->hash));

	memset(s->hash, 0, s->blocks * sizeof(*s->hash));
	if (ftruncate(s->fd, 0) || ftruncate(s->fd, len))
		return -errno;
	if (fallocate(s->fd, 0, 0, len) && errno != EOPNOTSUPP)
		return -errno;
	cp_state_encode(head, s->id, s->block_size, s->blocks);
	return write_all(s->fd, head, sizeof(head), 0);
}

int cp_state_open(struct cp_state *s, int dir, const uint8_t *id,
		  uint32_t block_size, uint64_t blocks, bool keep)
{
	int rc;

	*s = (struct cp_state){
		.blocks = blocks,
		.block_size = block_size,
		.hash = calloc(blocks + 1, sizeof(*s->hash)),
	};
	memcpy(s->id, id, CP_ID_LEN);
	if (!s->hash)
		return -ENOMEM;
	s->fd = openat(dir, "state", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
		       0600);
	if (s->fd < 0) {
		rc = -errno;
		goto err_free;
	}
	rc = keep ? load(s) : -ENODATA;
	if (rc == -ENODATA)
		rc = fresh(s);
	if (rc)
		goto err_close;
	return 0;
err_close:
	close(s->fd);
err_free:
	free(s->hash);
	return rc;
}

int cp_state_set(struct cp_state *s, uint64_t block, uint64_t hash)
{
	uint8_t raw[8];
	struct bytes_out out = bytes_out(raw, sizeof(raw));

	skein_assert(block < s->blocks);
	s->hash[block] = hash;
	bytes_put_u64(&out, hash);
	return write_all(s->fd, raw, sizeof(raw),
			 (off_t)(CP_STATE_HEAD + block * sizeof(raw)));
}

void cp_state_close(struct cp_state *s)
{
	close(s->fd);
	free(s->hash);
}
