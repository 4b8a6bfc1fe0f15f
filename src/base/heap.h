/* SPDX-License-Identifier: MIT */
/*
 * heap.h - an intrusive pairing heap, ordered by deadline.
 *
 * push O(1), pop and delete O(log n) amortised, no allocation. Nodes of equal
 * key come out in an order that depends on the calls alone, so the simulator's
 * runs repeat; it is not the order of insertion. No locks.
 */
#ifndef SKEIN_BASE_HEAP_H
#define SKEIN_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed when in no heap. */
struct heap_node {
	uint64_t key;
	struct heap_node *child; /* the first child */
	struct heap_node *next;	 /* the next sibling */
	/* the previous sibling; for a first child its parent */
	struct heap_node *prev;
	bool linked;
};

/* Zeroed when empty. */
struct heap {
	struct heap_node *root;
};

void heap_push(struct heap *h, struct heap_node *n, uint64_t key);
/* The node of the smallest key, or NULL; stays in the heap. */
struct heap_node *heap_first(const struct heap *h);
struct heap_node *heap_pop(struct heap *h);
/* Harmless for a node in no heap. */
void heap_del(struct heap *h, struct heap_node *n);
/* Moves n, which may be in no heap, to another key. */
void heap_move(struct heap *h, struct heap_node *n, uint64_t key);
/* The smallest key, or UINT64_MAX (ENV_NEVER). */
uint64_t heap_first_key(const struct heap *h);

#endif
