/* SPDX-License-Identifier: MIT */
/* pilaf.c - see pilaf.h. */
#include "sim/rfrpc/pilaf.h"

#include "base/prng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOVES_MAX 500u /* of one insertion */

static uint32_t place(const struct pilaf *t, uint64_t key, unsigned way)
{
	return (uint32_t)(prng_mix(prng_mix(t->seed + way) ^ key) % t->slots);
}

static struct pilaf_slot *slot_at(const struct pilaf *t, uint32_t i)
{
	return (struct pilaf_slot *)(void *)t->base + i;
}

static size_t extent_off(const struct pilaf *t, uint32_t extent)
{
	return t->slots * sizeof(struct pilaf_slot) +
	       (extent - 1) * sizeof(struct pilaf_extent);
}

static struct pilaf_extent *extent_at(const struct pilaf *t, uint32_t extent)
{
	return (void *)(t->base + extent_off(t, extent));
}

size_t pilaf_bytes(uint32_t slots, uint32_t keys)
{
	return slots * sizeof(struct pilaf_slot) +
	       keys * sizeof(struct pilaf_extent);
}

static uint32_t slot_sum(uint32_t extent)
{
	return (uint32_t)prng_mix(extent + 1ull);
}

static uint64_t extent_sum(const struct pilaf_extent *e)
{
	uint64_t sum = prng_mix(e->key[0]) ^ e->key[1];

	for (unsigned i = 0; i < 4; i++)
		sum = prng_mix(sum ^ e->value[i]);
	return sum;
}

/* --- the server's ------------------------------------------------------ */

static void extent_fill(struct pilaf_extent *e, uint64_t key)
{
	*e = (struct pilaf_extent){.key = {key, ~key}};
	e->sum = extent_sum(e);
}

/* The key of extent n is n - 1. */
static int insert(struct pilaf *t, uint32_t extent, struct prng *r)
{
	for (unsigned i = 0; i < MOVES_MAX; i++) {
		struct pilaf_slot *s;
		uint32_t out;

		for (unsigned way = 0; way < PILAF_WAYS; way++) {
			s = slot_at(t, place(t, extent - 1, way));
			if (s->extent)
				continue;
			*s = (struct pilaf_slot){extent, slot_sum(extent)};
			return 0;
		}
		s = slot_at(t, place(t, extent - 1,
				     (unsigned)prng_below(r, PILAF_WAYS)));
		out = s->extent;
		*s = (struct pilaf_slot){extent, slot_sum(extent)};
		extent = out;
	}
	return -ENOSPC;
}

int pilaf_fill(struct pilaf *t)
{
	struct prng r;
	int rc = t->slots ? 0 : -EINVAL;

	prng_init(&r, t->seed);
	for (uint32_t i = 0; i < t->slots; i++)
		*slot_at(t, i) = (struct pilaf_slot){0, slot_sum(0)};
	for (uint32_t i = 1; i <= t->keys && !rc; i++) {
		extent_fill(extent_at(t, i), i - 1);
		rc = insert(t, i, &r);
	}
	return rc;
}

void pilaf_put(struct pilaf *t, uint64_t key, uint64_t version, unsigned part)
{
	struct pilaf_extent *e = extent_at(t, (uint32_t)key + 1);

	for (unsigned i = 0; i < (part ? 4 : 2); i++)
		e->value[i] = version;
	if (part)
		e->sum = extent_sum(e);
}

/* --- the client's ------------------------------------------------------ */

void pilaf_get_begin(struct pilaf_get *g, const struct pilaf *t, uint64_t key)
{
	*g = (struct pilaf_get){.t = t, .key = key};
}

uint64_t pilaf_get_next(const struct pilaf_get *g, uint32_t *len)
{
	*len = g->extent ? sizeof(struct pilaf_extent)
			 : sizeof(struct pilaf_slot);
	return g->extent ? extent_off(g->t, g->extent)
			 : place(g->t, g->key, g->way) *
				   sizeof(struct pilaf_slot);
}

static enum pilaf_step next_way(struct pilaf_get *g)
{
	g->extent = 0;
	return ++g->way < PILAF_WAYS ? PILAF_MORE : PILAF_MISSING;
}

static enum pilaf_step took_slot(struct pilaf_get *g, const void *bytes)
{
	struct pilaf_slot s;

	memcpy(&s, bytes, sizeof(s));
	if (s.sum != slot_sum(s.extent) || s.extent > g->t->keys) {
		g->torn++;
		return PILAF_MORE;
	}
	g->extent = s.extent;
	return s.extent ? PILAF_MORE : next_way(g);
}

static enum pilaf_step took_extent(struct pilaf_get *g, const void *bytes)
{
	struct pilaf_extent e;

	memcpy(&e, bytes, sizeof(e));
	if (e.sum != extent_sum(&e)) {
		g->torn++;
		return PILAF_MORE;
	}
	if (e.key[0] != g->key || e.key[1] != ~g->key)
		return next_way(g);
	for (unsigned i = 1; i < 4; i++)
		if (e.value[i] != e.value[0])
			return PILAF_WRONG;
	g->version = e.value[0];
	return PILAF_FOUND;
}

enum pilaf_step pilaf_get_took(struct pilaf_get *g, const void *bytes)
{
	g->reads++;
	return g->extent ? took_extent(g, bytes) : took_slot(g, bytes);
}
