/* SPDX-License-Identifier: MIT */
/*
 * lru.h - a NIC's cache: it holds keys only and drops the least recently used
 * key. A NIC has one for each kind of entry. One thread only.
 */
#ifndef SKEIN_DEV_SIM_LRU_H
#define SKEIN_DEV_SIM_LRU_H

#include <stdbool.h>
#include <stdint.h>

struct lru_entry {
	uint64_t key;
	uint32_t hash_next;    /* index, plus one */
	uint32_t older, newer; /* index, plus one */
};

struct lru {
	struct lru_entry *e;
	uint32_t *buckets; /* index, plus one */
	uint32_t cap, n, mask;
	uint32_t oldest, newest;
	uint64_t hits, misses;
};

/* -ENOMEM */
int lru_init(struct lru *c, uint32_t cap);
void lru_fini(struct lru *c);
/* Was key there? It is now, and the newest. */
bool lru_touch(struct lru *c, uint64_t key);

#endif
