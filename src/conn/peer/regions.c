/* SPDX-License-Identifier: MIT */
/*
 * regions.c - announcements of named regions over a control link, both ways.
 * docs/protocol/control.md, "Regions".
 *
 * A peer that becomes ready is told all shared regions, and later each share
 * and each withdrawal. It acknowledges withdrawals in order. ctx->mems keeps
 * withdrawn regions at its end, in the order of their withdrawal: one number
 * (seq_acked) says which of them a peer knows. A withdrawal waits for every
 * peer that was ready when it was made.
 *
 * Thread rule: the engine's owner; under ctx->lock for what other engines read.
 * No peer is closed under the lock.
 */
#include "conn/state.h"
#include "conn/mem/mem_handle.h"

#include <errno.h>

static int send_add(struct conn_peer *peer, const struct skein_mem *mem)
{
	uint8_t buf[CTLFRAME_HEAD + 36 + CTLFRAME_NAME_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct ctlframe_region r = {
		.seq = mem->share_seq,
		.addr = (uint64_t)(uintptr_t)mem->region->addr,
		.len = mem->region->len,
		.rkey = mem->shared->rkey,
		.id = mem->region->id,
		.access = mem->access,
	};

	memcpy(r.name, mem->name, sizeof(r.name));
	ctlframe_put_region(&out, &r);
	return conn_link_send(&peer->link, buf, out.pos);
}

static int send_del(struct conn_peer *peer, const struct skein_mem *mem)
{
	uint8_t buf[CTLFRAME_HEAD + 12];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	ctlframe_put_del(&out, mem->withdraw_seq, mem->region->id);
	return conn_link_send(&peer->link, buf, out.pos);
}

/* Sends the shares and withdrawals after number `since`. */
static int send_since(struct conn_peer *peer, uint64_t since)
{
	struct skein_mem *mem;
	struct list_node *n;
	int rc = 0;

	list_for_each(n, &peer->ctx->mems) {
		mem = container_of(n, struct skein_mem, ctx_link);
		if (mem->share_seq > since && !mem->withdraw_seq)
			rc = send_add(peer, mem);
		else if (mem->withdraw_seq > since)
			rc = send_del(peer, mem);
		if (rc)
			return rc;
	}
	return 0;
}

static void sent(struct conn_peer *peer, int rc)
{
	/* Other errors: the input finds that the socket is lost. */
	if (rc == -ENOMEM || rc == -ENOBUFS)
		conn_peer_down(peer, rc, "its regions could not be announced");
}

void conn_peer_announce(struct conn_peer *peer)
{
	struct skein_ctx *ctx = peer->ctx;
	int rc;

	if (peer->phase != PEER_READY)
		return;
	env_mutex_lock(ctx->env, &ctx->lock);
	rc = send_since(peer, peer->seq_sent);
	peer->seq_sent = atomic_load(&ctx->region_seq);
	env_mutex_unlock(ctx->env, &ctx->lock);
	sent(peer, rc);
}

void conn_peer_regions_up(struct conn_peer *peer)
{
	struct skein_ctx *ctx = peer->ctx;
	struct skein_mem *mem;
	struct list_node *n;
	int rc = 0;

	env_mutex_lock(ctx->env, &ctx->lock);
	list_for_each(n, &ctx->mems) {
		mem = container_of(n, struct skein_mem, ctx_link);
		if (rc == 0 && mem->share_seq && !mem->withdraw_seq)
			rc = send_add(peer, mem);
	}
	peer->seq_sent = peer->seq_acked = atomic_load(&ctx->region_seq);
	list_add_tail(&ctx->peers, &peer->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	sent(peer, rc);
}

/* A peer has acknowledged the withdrawals after `from`, up to `to`. Under the
 * lock. */
static void acked(struct skein_ctx *ctx, uint64_t from, uint64_t to)
{
	struct skein_mem *mem;
	struct list_node *n;

	list_for_each(n, &ctx->mems) {
		mem = container_of(n, struct skein_mem, ctx_link);
		if (mem->withdraw_seq > from && mem->withdraw_seq <= to)
			atomic_fetch_sub_explicit(&mem->waiting, 1,
						  memory_order_release);
	}
}

void conn_peer_regions_down(struct conn_peer *peer)
{
	struct conn_remote_region *r;
	struct skein_ctx *ctx = peer->ctx;
	struct list_node *n;

	env_mutex_lock(ctx->env, &ctx->lock);
	list_del(&peer->ctx_link);
	acked(ctx, peer->seq_acked, UINT64_MAX);
	env_mutex_unlock(ctx->env, &ctx->lock);
	while ((n = list_pop_head(&peer->regions))) {
		r = container_of(n, struct conn_remote_region, link);
		env_free(ctx->env, r);
	}
	peer->n_regions = 0;
}

/* --- theirs ------------------------------------------------------------ */

static struct conn_remote_region *find_id(struct conn_peer *peer, uint32_t id)
{
	struct conn_remote_region *r;
	struct list_node *n;

	list_for_each(n, &peer->regions) {
		r = container_of(n, struct conn_remote_region, link);
		if (r->id == id)
			return r;
	}
	return NULL;
}

static int take_add(struct conn_peer *peer, const struct ctlframe *f)
{
	struct conn_remote_region *r;
	struct ctlframe_region v;
	struct list_node *n, *next;

	if (ctlframe_get_region(f, &v) || find_id(peer, v.id) ||
	    peer->n_regions == PEER_REGIONS_MAX)
		return -EPROTO;
	r = env_alloc(peer->eng->env, sizeof(*r));
	if (!r) {
		conn_peer_down(peer, -ENOMEM, "no memory for its regions");
		return 0;
	}
	r->id = v.id;
	r->access = v.access;
	r->addr = v.addr;
	r->len = v.len;
	r->rkey = v.rkey;
	memcpy(r->name, v.name, sizeof(r->name));
	list_add_tail(&peer->regions, &r->link);
	peer->n_regions++;
	list_for_each_safe(n, next, &peer->conns)
		mem_finds_look(container_of(n, struct skein_conn, peer_link));
	return 0;
}

static int take_del(struct conn_peer *peer, const struct ctlframe *f)
{
	uint8_t buf[CTLFRAME_HEAD + 8];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct conn_remote_region *r;
	uint64_t seq;
	uint32_t id;

	if (ctlframe_get_del(f, &seq, &id))
		return -EPROTO;
	r = find_id(peer, id);
	if (r) {
		list_del(&r->link);
		env_free(peer->eng->env, r);
		peer->n_regions--;
	}
	/* else: the peer has withdrawn it before it announced it */
	ctlframe_put_ack(&out, seq);
	conn_peer_send(peer, &out);
	return 0;
}

static int take_ack(struct conn_peer *peer, const struct ctlframe *f)
{
	struct skein_ctx *ctx = peer->ctx;
	uint64_t seq;
	int rc = 0;

	if (ctlframe_get_ack(f, &seq))
		return -EPROTO;
	env_mutex_lock(ctx->env, &ctx->lock);
	if (seq <= peer->seq_acked || seq > peer->seq_sent) {
		rc = -EPROTO;
	} else {
		acked(ctx, peer->seq_acked, seq);
		peer->seq_acked = seq;
	}
	env_mutex_unlock(ctx->env, &ctx->lock);
	return rc;
}

int conn_peer_region_frame(struct conn_peer *peer, const struct ctlframe *f)
{
	switch (f->type) {
	case CTLFRAME_REGION_ADD:
		return take_add(peer, f);
	case CTLFRAME_REGION_DEL:
		return take_del(peer, f);
	default:
		return take_ack(peer, f);
	}
}
