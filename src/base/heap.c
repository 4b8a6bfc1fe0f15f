/* SPDX-License-Identifier: MIT */
/*
 * heap.c - see heap.h. Merging the children of a removed root goes in two
 * passes, as in the paper of Fredman, Sedgewick, Sleator and Tarjan: pairs from
 * the left, then all of them from the right. No recursion.
 */
#include "base/assert.h"
#include "base/heap.h"

/* Two roots, either of which may be NULL; the smaller one becomes the root. */
static struct heap_node *meld(struct heap_node *a, struct heap_node *b)
{
	struct heap_node *t;

	if (!a || !b)
		return a ? a : b;
	if (b->key < a->key) {
		t = a;
		a = b;
		b = t;
	}
	b->prev = a;
	b->next = a->child;
	if (b->next)
		b->next->prev = b;
	a->child = b;
	a->next = a->prev = NULL;
	return a;
}

static struct heap_node *meld_siblings(struct heap_node *first)
{
	struct heap_node *a, *b, *next, *pairs = NULL, *root = NULL;

	for (a = first; a; a = next) {
		b = a->next;
		next = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = meld(a, b);
		a->next = pairs; /* a stack: the second pass is backwards */
		pairs = a;
	}
	for (a = pairs; a; a = next) {
		next = a->next;
		a->next = NULL;
		root = meld(root, a);
	}
	return root;
}

void heap_push(struct heap *h, struct heap_node *n, uint64_t key)
{
	skein_assert(!n->linked);
	*n = (struct heap_node){.key = key, .linked = true};
	h->root = meld(h->root, n);
}

struct heap_node *heap_first(const struct heap *h)
{
	return h->root;
}

uint64_t heap_first_key(const struct heap *h)
{
	return h->root ? h->root->key : UINT64_MAX;
}

static void cut(struct heap_node *n)
{
	if (n->prev->child == n)
		n->prev->child = n->next;
	else
		n->prev->next = n->next;
	if (n->next)
		n->next->prev = n->prev;
	n->next = n->prev = NULL;
}

void heap_del(struct heap *h, struct heap_node *n)
{
	struct heap_node *below;

	if (!n->linked)
		return;
	below = meld_siblings(n->child);
	if (n == h->root) {
		h->root = below;
	} else {
		cut(n);
		h->root = meld(h->root, below);
	}
	*n = (struct heap_node){.key = n->key};
}

struct heap_node *heap_pop(struct heap *h)
{
	struct heap_node *n = h->root;

	if (n)
		heap_del(h, n);
	return n;
}

void heap_move(struct heap *h, struct heap_node *n, uint64_t key)
{
	heap_del(h, n);
	heap_push(h, n, key);
}
