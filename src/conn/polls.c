/* SPDX-License-Identifier: MIT */
/*
 * polls.c - which connections of an engine a round looks at.
 *
 * An entry goes to the next group by a swap with the entry at the border.
 */
#include "conn/polls.h"

#include <errno.h>

static void swap(struct polls *p, unsigned i, unsigned k)
{
	struct polls_entry *e = p->e[i];

	p->e[i] = p->e[k];
	p->e[k] = e;
	p->e[i]->at = i + 1;
	e->at = k + 1;
}

static enum conn_quiet group(const struct polls *p, unsigned i)
{
	if (i < p->active)
		return CONN_ACTIVE;
	return i < p->swept ? CONN_SWEPT : CONN_NOTIFIED;
}

void polls_move(struct polls *p, struct polls_entry *e, enum conn_quiet to)
{
	enum conn_quiet from = group(p, e->at - 1);

	if (from == CONN_ACTIVE && to != CONN_ACTIVE)
		swap(p, e->at - 1, --p->active);
	if (from != CONN_NOTIFIED && to == CONN_NOTIFIED)
		swap(p, e->at - 1, --p->swept);
	if (from == CONN_NOTIFIED && to != CONN_NOTIFIED)
		swap(p, e->at - 1, p->swept++);
	if (from == CONN_ACTIVE || to != CONN_ACTIVE)
		return;
	swap(p, e->at - 1, p->active++);
	if (e->module->active)
		e->module->active(e->conn, e->state);
}

static int reserve(struct polls *p, struct skein_env *env)
{
	unsigned cap = p->cap ? p->cap * 2 : 16;
	struct polls_entry **e;

	if (p->n < p->cap)
		return 0;
	e = env_alloc(env, cap * sizeof(struct polls_entry *));
	if (!e)
		return -ENOMEM;
	if (p->n)
		memcpy(e, p->e, p->n * sizeof(struct polls_entry *));
	env_free(env, p->e);
	p->e = e;
	p->cap = cap;
	return 0;
}

int polls_add(struct polls *p, struct skein_env *env, struct polls_entry *e)
{
	int rc = reserve(p, env);

	if (rc)
		return rc;
	p->e[p->n] = e;
	e->at = ++p->n;
	polls_move(p, e, CONN_ACTIVE);
	return 0;
}

void polls_del(struct polls *p, struct polls_entry *e)
{
	if (!e->at)
		return;
	polls_move(p, e, CONN_NOTIFIED);
	swap(p, e->at - 1, --p->n);
	e->at = 0;
}

unsigned polls_rest(struct polls *p, uint64_t now_ns)
{
	struct polls_entry *e;
	enum conn_quiet to;
	unsigned went = 0;

	/* From the end: the entry that takes a free place was asked before. */
	for (unsigned i = p->active; i-- > 0;) {
		e = p->e[i];
		if (now_ns - e->moved_ns < POLLS_SILENT_NS || !e->module->rest)
			continue;
		to = e->module->rest(e->conn, e->state, &e->word);
		if (to == CONN_ACTIVE)
			continue;
		if (p->left)
			p->left(e);
		polls_move(p, e, to);
		went++;
	}
	return went;
}

/* Looks at n entries from i on; the caller knows that entry i has news. */
static __attribute__((noinline)) unsigned found(struct polls *p, unsigned i,
						unsigned n, uint64_t now_ns)
{
	struct polls_entry *e;
	unsigned count = 0;

	for (; n; n--, i++) {
		if (i == p->swept)
			i = p->active;
		e = p->e[i];
		if (!polls_has_word(e))
			continue;
		/* The entry that takes its place was looked at in this lap. */
		e->moved_ns = now_ns;
		polls_move(p, e, CONN_ACTIVE);
		count++;
	}
	p->next = i;
	return count;
}

unsigned polls_sweep(struct polls *p, unsigned n, uint64_t now_ns)
{
	unsigned i = p->next, end = p->swept;

	if (n > end - p->active)
		n = end - p->active;
	if (i >= end || i < p->active)
		i = p->active;
	for (; n; n--) {
		if (__builtin_expect(polls_has_word(p->e[i]), 0))
			return found(p, i, n, now_ns);
		if (++i == end)
			i = p->active;
	}
	p->next = i;
	return 0;
}

void polls_fini(struct polls *p, struct skein_env *env)
{
	env_free(env, p->e);
	*p = (struct polls){0};
}
