/* SPDX-License-Identifier: MIT */
/*
 * polls.c - which connections of an engine a round looks at.
 *
 * A step from one group to the next is a swap with the entry at the border.
 */
#include "conn/polls.h"

#include <errno.h>

#include "base/assert.h"
#include "base/pow2.h"

static void swap(struct polls *p, unsigned i, unsigned k)
{
	struct polls_entry e = p->e[i];

	p->e[i] = p->e[k];
	p->e[k] = e;
	*p->e[i].at = i + 1;
	*p->e[k].at = k + 1;
}

static enum conn_quiet group(const struct polls *p, unsigned i)
{
	if (i < p->active)
		return CONN_ACTIVE;
	return i < p->swept ? CONN_SWEPT : CONN_NOTIFIED;
}

void polls_move(struct polls *p, unsigned i, enum conn_quiet to)
{
	enum conn_quiet from = group(p, i);

	if (from == CONN_ACTIVE && to != CONN_ACTIVE) {
		swap(p, i, --p->active);
		i = p->active;
	}
	if (from != CONN_NOTIFIED && to == CONN_NOTIFIED)
		swap(p, i, --p->swept);
	if (from == CONN_NOTIFIED && to != CONN_NOTIFIED) {
		swap(p, i, p->swept);
		i = p->swept++;
	}
	if (from != CONN_ACTIVE && to == CONN_ACTIVE)
		swap(p, i, p->active++);
}

static int reserve(struct polls *p, struct skein_env *env)
{
	unsigned cap = p->cap ? p->cap * 2 : 16;
	struct polls_entry *e;

	if (p->n < p->cap)
		return 0;
	e = env_alloc(env, cap * sizeof(*e));
	if (!e)
		return -ENOMEM;
	if (p->n)
		memcpy(e, p->e, p->n * sizeof(*e));
	env_free(env, p->e);
	p->e = e;
	p->cap = cap;
	return 0;
}

int polls_add(struct polls *p, struct skein_env *env,
	      const struct polls_entry *e)
{
	int rc = reserve(p, env);

	if (rc)
		return rc;
	skein_assert(!*e->at);
	p->e[p->n] = *e;
	*e->at = ++p->n;
	polls_move(p, p->n - 1, CONN_ACTIVE);
	return 0;
}

void polls_del(struct polls *p, uint32_t *at)
{
	if (!*at)
		return;
	polls_move(p, *at - 1, CONN_NOTIFIED);
	swap(p, *at - 1, p->n - 1);
	p->n--;
	*at = 0;
}

void polls_rest(struct polls *p, uint64_t now_ns)
{
	struct polls_entry *e;
	enum conn_quiet to;

	/* From the end: what takes the place of one that goes was asked. */
	for (unsigned i = p->active; i-- > 0;) {
		e = &p->e[i];
		if (now_ns - e->moved_ns < POLLS_SILENT_NS || !e->module->rest)
			continue;
		to = e->module->rest(e->conn, e->state, &e->word);
		if (to != CONN_ACTIVE)
			polls_move(p, i, to);
	}
}

unsigned polls_sweep(struct polls *p, unsigned n, uint64_t now_ns)
{
	unsigned found = 0, i = p->next;

	if (n > p->swept - p->active)
		n = p->swept - p->active;
	for (; n; n--, i++) {
		if (i >= p->swept || i < p->active)
			i = p->active;
		if (__builtin_expect(!polls_has_word(&p->e[i]), 1))
			continue;
		/* Its place is taken by one that this lap has seen. */
		p->e[i].moved_ns = now_ns;
		polls_move(p, i, CONN_ACTIVE);
		found++;
	}
	p->next = i;
	return found;
}

void polls_fini(struct polls *p, struct skein_env *env)
{
	env_free(env, p->e);
	*p = (struct polls){0};
}
