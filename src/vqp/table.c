/* SPDX-License-Identifier: MIT */
/*
 * table.c - the meta server: memory that nodes READ and write, a DC target
 * through which they READ it if the device has DC, and a listener for the
 * nodes' own connections.
 * Its CPU answers nothing; it clears records that are not renewed, by its own
 * clock, and mends the head.
 */
#include "vqp/pool.h"

#include <errno.h>
#include <string.h>

#define NODES 4096u
#define NODES_MAX (1u << 20)

/* What the sweep knows of a place. */
struct place {
	uint8_t last[META_RECORD];
	uint64_t since_ns;
};

struct skein_meta {
	struct skein_ctx *ctx;
	struct skein_env *env;
	struct dev *dev;
	struct skein_listener *listener;
	struct skein_mem *mem;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *dct;
	uint8_t head[META_RECORD]; /* as it stands in the table */
	uint32_t places;
	struct place *place;
	uint64_t swept_ns, garbage;
	int nodes;
};

static int target_make(struct skein_meta *m, uint64_t key)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = 2, .max_sge = 1}};
	const struct dev_ops *ops = m->dev->ops;
	int err;

	if (!m->dev->caps.dc)
		return 0;
	err = ops->create_cq(m->dev, 16, NULL, NULL, &m->cq);
	if (!err)
		err = ops->create_srq(m->dev, m->ctx->pd, &a, &m->srq);
	/* READs alone: nodes write through their own connections */
	if (!err)
		err = ops->create_dct(m->dev, m->ctx->pd, m->cq, m->srq, key,
				      IBV_ACCESS_REMOTE_READ, NULL, &m->dct);
	return err;
}

static int table_make(struct skein_meta *m, unsigned nodes)
{
	struct meta_head h = {.key = env_random_u64(m->env)};
	int err;

	m->places = 2;
	while (m->places < 2 * nodes)
		m->places *= 2;
	m->place = env_alloc(m->env, m->places * sizeof(*m->place));
	if (!m->place)
		return -ENOMEM;
	err = skein_mem_new(m->ctx, (size_t)(1 + m->places) * META_RECORD,
			    &m->mem);
	if (!err)
		err = target_make(m, h.key);
	if (err)
		return err;
	memcpy(h.gid, m->dev->gid.gid.raw, sizeof(h.gid));
	h.dctn = m->dct ? m->dct->qp_num : 0;
	h.places = m->places;
	meta_head_encode(&h, m->head);
	memcpy(skein_mem_addr(m->mem), m->head, META_RECORD);
	return skein_mem_share(m->mem, META_NAME,
			       SKEIN_MEM_READ | SKEIN_MEM_WRITE);
}

int skein_meta_open(struct skein_ctx *ctx, const char *addr, unsigned nodes,
		    struct skein_meta **meta)
{
	struct skein_listener_attr attr = {.size = sizeof(attr),
					   .pooled = SKEIN_POOLED_NO};
	struct skein_meta *m;
	int err;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	if (nodes > NODES_MAX)
		return -ERANGE;
	m = env_alloc(ctx->env, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->ctx = ctx;
	m->env = ctx->env;
	m->dev = ctx->dev;
	err = table_make(m, nodes ? nodes : NODES);
	if (!err)
		err = skein_listener_open(ctx, addr ? addr : META_DEFAULT,
					  &attr, &m->listener);
	if (err) {
		skein_meta_close(m);
		return err;
	}
	*meta = m;
	return 0;
}

void skein_meta_close(struct skein_meta *m)
{
	const struct dev_ops *ops;

	if (!m || ctx_forked(m->ctx))
		return;
	ops = m->dev->ops;
	if (m->listener)
		skein_listener_close(m->listener);
	if (m->dct)
		ops->destroy_qp(m->dev, m->dct);
	if (m->srq)
		ops->destroy_srq(m->dev, m->srq);
	if (m->cq)
		ops->destroy_cq(m->dev, m->cq);
	if (m->mem)
		skein_mem_free(m->mem);
	env_free(m->env, m->place);
	env_free(m->env, m);
}

const char *skein_meta_addr(struct skein_meta *m)
{
	return skein_listener_addr(m->listener);
}

/* Clears a place that has not changed for a while: its node is gone, or was
 * never there. */
static void place_sweep(struct skein_meta *m, uint32_t i, uint64_t now)
{
	uint8_t *r = (uint8_t *)skein_mem_addr(m->mem) +
		     (size_t)(1 + i) * META_RECORD;
	struct place *p = &m->place[i];
	struct meta_node n;
	int err;

	if (memcmp(r, p->last, META_RECORD)) {
		memcpy(p->last, r, META_RECORD);
		p->since_ns = now;
	}
	err = meta_decode(p->last, &n);
	if (err == -ENOENT)
		return;
	if (now - p->since_ns < META_GONE_NS) {
		m->nodes += !err;
		return;
	}
	m->garbage += err == -EBADMSG;
	memset(r, 0, META_RECORD);
}

/* Any node can write there. */
static void head_mend(struct skein_meta *m)
{
	if (!memcmp(skein_mem_addr(m->mem), m->head, META_RECORD))
		return;
	memcpy(skein_mem_addr(m->mem), m->head, META_RECORD);
	m->garbage++;
}

int skein_meta_progress(struct skein_meta *m, uint64_t *garbage)
{
	uint64_t now;
	uint32_t i;

	if (ctx_forked(m->ctx))
		return -SKEIN_EFORKED;
	now = env_now_ns(m->env);
	if (!m->swept_ns || now - m->swept_ns >= META_RENEW_NS / 2) {
		m->swept_ns = now;
		m->nodes = 0;
		head_mend(m);
		for (i = 0; i < m->places; i++)
			place_sweep(m, i, now);
	}
	if (garbage)
		*garbage = m->garbage;
	return m->nodes;
}
