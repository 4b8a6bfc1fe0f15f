/* SPDX-License-Identifier: MIT */
/*
 * part.c - skein_mcast_have() and skein_mcast_resume(): what a member has, from
 * the application to the engine and back. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "conn/mem/mem_handle.h"
#include "mcast/state.h"

static size_t words_of(uint32_t blocks)
{
	return ((size_t)blocks + 63) / 64;
}

/* Sets exactly the bits of `blocks` blocks. */
static void bits_all(uint64_t *bits, uint32_t blocks)
{
	memset(bits, 0xff, words_of(blocks) * sizeof(*bits));
	if (blocks % 64)
		bits[blocks / 64] = (1ull << blocks % 64) - 1;
}

int skein_mcast_have(struct skein_mcast *g, struct skein_mcast_msg *msg,
		     uint64_t *bits, size_t words)
{
	const struct mcast_left *left = &g->eng.left;
	size_t need;

	if (!atomic_load_explicit(&g->left, memory_order_acquire))
		return -ENOENT;
	*msg = left->msg;
	need = words_of(msg->blocks);
	if (!bits)
		return 0;
	if (words < need)
		return -ENOSPC;
	if (left->whole)
		bits_all(bits, msg->blocks);
	else if (left->have)
		memcpy(bits, left->have, need * sizeof(*bits));
	else
		memset(bits, 0, need * sizeof(*bits));
	return 0;
}

/* --- resume ------------------------------------------------------------- */

/* A part that is not in memory. */
static bool store_right(const struct skein_mcast *g,
			const struct skein_mcast_part *p)
{
	const struct skein_mcast_ops *ops = &g->attr.ops;

	if (p->mem || (p->have && !p->len) || !ops->block)
		return false;
	if (p->store == SKEIN_MCAST_REREAD)
		return ops->fill;
	return p->store == SKEIN_MCAST_CONSUMED && g->attr.rank;
}

static int part_right(const struct skein_mcast *g,
		      const struct skein_mcast_part *p)
{
	uint64_t most = (uint64_t)g->attr.block_size * SKEIN_MCAST_BLOCKS_MAX;

	if (g->attr.flags & SKEIN_MCAST_NO_CHECKSUM ||
	    (p->mem && p->mem->ctx != g->mx->ctx) ||
	    (!p->mem && !p->store && (p->len || p->have)) ||
	    (p->store && !store_right(g, p)))
		return -EINVAL;
	if (p->len > most)
		return -EFBIG;
	if (p->mem && (p->off > skein_mem_len(p->mem) ||
		       p->len > skein_mem_len(p->mem) - p->off))
		return -ERANGE;
	return 0;
}

/* Finds the runs of c->have. Blocks in no run are treated as not there. */
static int find_runs(struct skein_mcast *g, struct mcast_claim *c,
		     uint32_t blocks)
{
	uint32_t max = mcast_runs_max(g->attr.count);
	size_t len = words_of(blocks) * sizeof(*c->have);

	if (max > blocks / 2 + 1)
		max = blocks / 2 + 1;
	c->runs = env_alloc(mcast_env(g), max * sizeof(*c->runs));
	if (!c->runs)
		return -ENOMEM;
	c->n_runs = mcast_runs_of(c->have, blocks, c->runs, max);
	memset(c->have, 0, len);
	for (uint32_t i = 0; i < c->n_runs; i++)
		mcast_run_set(c->have, &c->runs[i]);
	return 0;
}

static void read_runs(struct skein_mcast *g, struct mcast_claim *c,
		      const struct skein_mcast_msg *msg, const uint8_t *object)
{
	uint64_t seed = mcast_seed(g->list, 0);

	for (uint32_t i = 0; i < c->n_runs; i++) {
		struct mcast_run *r = &c->runs[i];

		for (uint32_t b = r->first; b < r->first + r->count; b++) {
			c->sums[b] = mcast_sum(
				object + (uint64_t)b * msg->block_size,
				mcast_block_len(msg, b), seed, b);
			r->digest = mcast_digest_add(r->digest, c->sums[b], b);
		}
	}
}

static int claim_read(struct skein_mcast *g, struct mcast_claim *c,
		      const struct skein_mcast_part *p)
{
	struct skein_env *env = mcast_env(g);
	struct skein_mcast_msg msg;
	size_t words;
	int rc;

	mcast_msg_set(&g->eng, &msg, 0, p->len, NULL);
	words = words_of(msg.blocks);
	c->have = env_alloc(env, words * sizeof(*c->have));
	if (!c->have)
		return -ENOMEM;
	if (p->store != SKEIN_MCAST_CONSUMED) {
		c->sums = env_alloc(env, msg.blocks * sizeof(*c->sums));
		if (!c->sums)
			return -ENOMEM;
	}
	if (p->whole)
		bits_all(c->have, msg.blocks);
	else
		memcpy(c->have, p->have, words * sizeof(*c->have));
	rc = find_runs(g, c, msg.blocks);
	if (rc == 0 && p->mem)
		read_runs(g, c, &msg,
			  (uint8_t *)skein_mem_addr(p->mem) + p->off);
	return rc;
}

int mcast_part_take(struct skein_mcast *g, const struct skein_mcast_part *user)
{
	struct skein_mcast_part p;
	struct mcast_claim c;
	bool knows;
	int rc = ctx_attr_copy(&p, sizeof(p), user);

	if (rc == 0)
		rc = part_right(g, &p);
	if (rc)
		return rc;
	knows = p.mem || p.whole || p.len;
	c = (struct mcast_claim){.knows = knows,
				 .begun = knows,
				 .store = p.store,
				 .size = p.len,
				 .tag = p.tag};
	g->resumed = p.mem;
	g->resumed_off = p.off;
	if (p.len && (p.whole || p.have))
		rc = claim_read(g, &c, &p);
	if (rc == 0)
		return mcast_resume_init(&g->eng, &c);
	env_free(mcast_env(g), c.have);
	env_free(mcast_env(g), c.sums);
	env_free(mcast_env(g), c.runs);
	return rc;
}

void mcast_part_start(struct skein_mcast *g)
{
	struct mcast_claim *c = &g->eng.resume->claim;
	int rc;

	if (!g->resumed || !c->size)
		return;
	rc = mem_keys(g->resumed, &c->buf.lkey, &c->buf.rkey);
	c->buf.addr = (uint8_t *)skein_mem_addr(g->resumed) + g->resumed_off;
	if (rc)
		mcast_eng_fail(&g->eng, g->attr.rank, rc, g->attr.rank);
}

int skein_mcast_resume(struct skein_ctx *ctx,
		       const struct skein_mcast_attr *attr,
		       const struct skein_mcast_part *part,
		       struct skein_mcast **group)
{
	return part ? mcast_group_open(ctx, attr, part, group) : -EINVAL;
}
