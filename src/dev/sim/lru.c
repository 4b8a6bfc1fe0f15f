/* SPDX-License-Identifier: MIT */
/*
 * lru.c - a NIC's cache; see lru.h. Entries lie in an array and are found by a
 * hash of their keys, so a run does not depend on addresses of memory.
 */
#include "dev/sim/lru.h"

#include "base/pow2.h"
#include "base/prng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int lru_init(struct lru *c, uint32_t cap)
{
	uint32_t buckets = pow2_at_least(cap);

	memset(c, 0, sizeof(*c));
	c->e = calloc(cap, sizeof(*c->e));
	c->buckets = calloc(buckets, sizeof(*c->buckets));
	if (!c->e || !c->buckets) {
		lru_fini(c);
		return -ENOMEM;
	}
	c->cap = cap;
	c->mask = buckets - 1;
	return 0;
}

void lru_fini(struct lru *c)
{
	free(c->e);
	free(c->buckets);
	c->e = NULL;
	c->buckets = NULL;
}

static uint32_t *bucket(struct lru *c, uint64_t key)
{
	return &c->buckets[prng_mix(key) & c->mask];
}

static void unlink_age(struct lru *c, uint32_t i)
{
	struct lru_entry *e = &c->e[i - 1];

	*(e->older ? &c->e[e->older - 1].newer : &c->oldest) = e->newer;
	*(e->newer ? &c->e[e->newer - 1].older : &c->newest) = e->older;
}

static void make_newest(struct lru *c, uint32_t i)
{
	struct lru_entry *e = &c->e[i - 1];

	e->newer = 0;
	e->older = c->newest;
	*(c->newest ? &c->e[c->newest - 1].newer : &c->oldest) = i;
	c->newest = i;
}

static void unlink_hash(struct lru *c, uint32_t i)
{
	uint32_t *p = bucket(c, c->e[i - 1].key);

	while (*p != i)
		p = &c->e[*p - 1].hash_next;
	*p = c->e[i - 1].hash_next;
}

bool lru_touch(struct lru *c, uint64_t key)
{
	uint32_t *b = bucket(c, key), i = *b;

	while (i && c->e[i - 1].key != key)
		i = c->e[i - 1].hash_next;
	if (i) {
		c->hits++;
		unlink_age(c, i);
		make_newest(c, i);
		return true;
	}
	c->misses++;
	if (c->n < c->cap) {
		i = ++c->n;
	} else {
		i = c->oldest;
		unlink_age(c, i);
		unlink_hash(c, i);
	}
	c->e[i - 1].key = key;
	c->e[i - 1].hash_next = *b;
	*b = i;
	make_newest(c, i);
	return false;
}
