/* SPDX-License-Identifier: MIT */
/*
 * list.h - an intrusive, circular, doubly linked list.
 *
 * The head is a node too. A node that is in no list is zeroed or points to
 * itself; list_del() leaves it pointing to itself, so deleting twice is
 * harmless. No locks.
 */
#ifndef SKEIN_BASE_LIST_H
#define SKEIN_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
	struct list_node *next, *prev;
};

#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void list_init(struct list_node *n)
{
	n->next = n->prev = n;
}

static inline bool list_empty(const struct list_node *head)
{
	return head->next == head || !head->next;
}

/* Is n in a list? n is no head. */
static inline bool list_linked(const struct list_node *n)
{
	return n->next && n->next != n;
}

static inline void list_add_tail(struct list_node *head, struct list_node *n)
{
	n->next = head;
	n->prev = head->prev;
	head->prev->next = n;
	head->prev = n;
}

static inline void list_add_head(struct list_node *head, struct list_node *n)
{
	list_add_tail(head->next, n);
}

static inline void list_del(struct list_node *n)
{
	if (!n->next)
		return;
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

static inline struct list_node *list_pop_head(struct list_node *head)
{
	struct list_node *n = head->next;

	if (list_empty(head))
		return NULL;
	list_del(n);
	return n;
}

#define list_for_each(pos, head) \
	for (pos = (head)->next; pos != (head); pos = pos->next)

/* pos may be deleted inside the loop; no other node may. */
#define list_for_each_safe(pos, tmp, head)                       \
	for (pos = (head)->next, tmp = pos->next; pos != (head); \
	     pos = tmp, tmp = pos->next)

#endif
