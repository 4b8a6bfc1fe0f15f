/* SPDX-License-Identifier: MIT */
/*
 * bufs.c - registered memory for payloads that do not fit into a message.
 *
 * A buffer is a region of its own. A new one costs system calls and
 * registration, here and at the end that maps it: so freed buffers are kept, as
 * many as calls of mixed sizes have under way. (One call after the other needs
 * two of each size: a result that is being built, and one that the peer may
 * still read.) Sizes are powers of two, so that a kept buffer fits the next
 * payload; very large sizes are multiples.
 *
 * Thread rule: the engine's owner, unless a comment says any thread.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/list.h"
#include "base/pow2.h"
#include "conn/ctx.h"
#include "env/env.h"
#include "rpc/state.h"

#define LEN_MIN (64u << 10)
#define FIT_MAX 4u
/* From here on sizes are multiples: doubling would waste too much. */
#define LEN_MULTIPLE (64u << 20)

struct region_buf {
	struct rpc_buf buf;
	struct skein_env *env;
	struct mem_region *region;
};

static struct region_buf *region_buf(struct rpc_buf *buf)
{
	return container_of(buf, struct region_buf, buf);
}

uint32_t rpc_bufs_lkey(const struct rpc_buf *buf)
{
	return container_of(buf, const struct region_buf, buf)->region->mr->lkey;
}

/* Takes the smallest kept buffer that fits. A buffer some sizes too large is
 * still better than a new one, which the other end would have to map as
 * well. */
static struct rpc_buf *spare_take(struct rpc_bufs *bufs, size_t len)
{
	struct rpc_buf **link, **best = NULL, *buf;

	for (link = &bufs->spare; (buf = *link); link = &buf->next)
		if (buf->len >= len && buf->len / FIT_MAX <= len &&
		    (!best || buf->len < (*best)->len))
			best = link;
	if (!best)
		return NULL;
	buf = *best;
	*best = buf->next;
	bufs->spares--;
	bufs->spare_len -= buf->len;
	return buf;
}

/* rpc_bufs_fill() makes its memory. Any thread. */
static struct rpc_buf *buf_new(struct skein_ctx *ctx, size_t len)
{
	struct region_buf *b = env_alloc(ctx->env, sizeof(*b));

	if (!b)
		return NULL;
	if (mem_region_reserve(ctx->dev, ctx->pd, "skein-rpc-large", len,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
			       conn_region_id(ctx), &b->region)) {
		env_free(ctx->env, b);
		return NULL;
	}
	b->env = ctx->env;
	b->buf.addr = b->region->addr;
	b->buf.len = len;
	b->buf.rkey = b->region->mr->rkey;
	b->buf.region = b->region->id;
	return &b->buf;
}

/* Any thread. */
static void buf_free(struct rpc_buf *buf)
{
	struct skein_env *env = region_buf(buf)->env;

	mem_region_free(region_buf(buf)->region);
	env_free(env, region_buf(buf));
}

/* By the engine's owner, piece by piece. */
static void buf_end(struct rpc_conn *rc, struct rpc_buf *buf)
{
	struct skein_env *env = region_buf(buf)->env;

	conn_region_end(rc->conn, region_buf(buf)->region);
	env_free(env, region_buf(buf));
}

int rpc_bufs_fill(struct rpc_buf *buf, size_t len)
{
	return mem_region_fill(region_buf(buf)->region, len);
}

void rpc_bufs_let(struct rpc_conn *rc, struct rpc_buf *buf)
{
	rc->bufs.used_len -= buf->len;
	buf->end = buf_free;
}

static size_t size_for(size_t len)
{
	if (len <= LEN_MULTIPLE)
		return doubled_to(LEN_MIN, len);
	return (len + LEN_MULTIPLE - 1) / LEN_MULTIPLE * LEN_MULTIPLE;
}

struct rpc_buf *rpc_bufs_get(struct rpc_conn *rc, size_t len, bool to_read)
{
	struct rpc_bufs *bufs = &rc->bufs;
	struct rpc_buf *buf;
	size_t size = size_for(len);

	if (bufs->used_len + size > rc->ctx->conf.large_max)
		return NULL;
	buf = spare_take(bufs, size);
	if (!buf)
		buf = buf_new(conn_ctx(rc->conn), size);
	if (!buf)
		return NULL;
	bufs->used_len += buf->len;
	if (!to_read && rpc_bufs_fill(buf, len)) {
		rpc_bufs_put(rc, buf);
		return NULL;
	}
	buf->room = to_read ? 0 : len;
	return buf;
}

struct rpc_buf *rpc_bufs_new(void *arg, size_t len)
{
	struct rpc_buf *buf = buf_new(arg, size_for(len));

	if (!buf)
		return NULL;
	buf->end = buf_free;
	buf->room = len;
	if (!rpc_bufs_fill(buf, len))
		return buf;
	buf_free(buf);
	return NULL;
}

int rpc_bufs_adopt(struct rpc_conn *rc, struct rpc_buf *buf)
{
	struct rpc_bufs *bufs = &rc->bufs;

	buf->end = NULL;
	if (bufs->used_len + buf->len > rc->ctx->conf.large_max) {
		buf_end(rc, buf);
		return -ENOMEM;
	}
	bufs->used_len += buf->len;
	return 0;
}

/* Frees the buffer that was kept longest. */
static void spare_drop(struct rpc_conn *rc)
{
	struct rpc_bufs *bufs = &rc->bufs;
	struct rpc_buf **link = &bufs->spare, *buf;

	skein_assert(*link);
	while ((*link)->next)
		link = &(*link)->next;
	buf = *link;
	*link = NULL;
	bufs->spares--;
	bufs->spare_len -= buf->len;
	buf_end(rc, buf);
}

void rpc_bufs_put(struct rpc_conn *rc, struct rpc_buf *buf)
{
	struct rpc_bufs *bufs = &rc->bufs;

	bufs->used_len -= buf->len;
	buf->next = bufs->spare;
	bufs->spare = buf;
	bufs->spares++;
	bufs->spare_len += buf->len;
	/* The newest size stays: the oldest goes first. */
	while (bufs->spares > RPC_BUFS_KEEP ||
	       bufs->spare_len > RPC_BUFS_KEEP_LEN)
		spare_drop(rc);
}

void rpc_bufs_fini(struct rpc_conn *rc)
{
	struct rpc_buf *buf;

	skein_assert(!rc->bufs.used_len);
	while ((buf = rc->bufs.spare)) {
		rc->bufs.spare = buf->next;
		buf_end(rc, buf);
	}
	rc->bufs = (struct rpc_bufs){0};
}
