/* SPDX-License-Identifier: MIT */
/*
 * numbers.c - the connections of a control link by their numbers; see numbers.h.
 *
 * Numbers follow one another, so their low bits spread them well.
 */
#include "conn/peer/numbers.h"

#include "base/assert.h"
#include "env/env.h"

static struct numbers_entry **head(struct numbers *t, uint16_t number)
{
	return t->heads ? &t->heads[number & t->mask] : &t->one;
}

static void push(struct numbers_entry **at, struct numbers_entry *e)
{
	e->next = *at;
	*at = e;
}

static void move_all(struct numbers *to, struct numbers_entry *from)
{
	struct numbers_entry *next;

	for (; from; from = next) {
		next = from->next;
		push(head(to, from->number), from);
	}
}

static void grow(struct numbers *t, struct skein_env *env)
{
	unsigned cap = t->heads ? 2 * (t->mask + 1) : 8;
	struct numbers more = {.n = t->n, .mask = cap - 1};

	more.heads = env_alloc(env, cap * sizeof(struct numbers_entry *));
	if (!more.heads)
		return;
	for (unsigned i = 0; t->heads && i <= t->mask; i++)
		move_all(&more, t->heads[i]);
	move_all(&more, t->one);
	env_free(env, t->heads);
	*t = more;
}

void numbers_add(struct numbers *t, struct skein_env *env,
		 struct numbers_entry *e)
{
	if (t->n > t->mask)
		grow(t, env);
	push(head(t, e->number), e);
	t->n++;
}

void numbers_del(struct numbers *t, struct numbers_entry *e)
{
	struct numbers_entry **link = head(t, e->number);

	while (*link != e) {
		skein_assert(*link);
		link = &(*link)->next;
	}
	*link = e->next;
	t->n--;
}

struct numbers_entry *numbers_find(struct numbers *t, uint16_t number)
{
	struct numbers_entry *e = *head(t, number);

	while (e && e->number != number)
		e = e->next;
	return e;
}

void numbers_fini(struct numbers *t, struct skein_env *env)
{
	env_free(env, t->heads);
	*t = (struct numbers){0};
}
