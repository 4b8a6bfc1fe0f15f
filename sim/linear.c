/* SPDX-License-Identifier: MIT */
/* linear.c - see linear.h. */
#include "sim/linear.h"

#include "base/prng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORDS (LINEAR_OPS / 64)

/* Which operations have happened, and what is there then. */
struct state {
	uint64_t done[WORDS];
	uint32_t value;
	bool used;
};

struct search {
	const struct linear_op *ops;
	unsigned n;
	struct state now;
	struct state *seen; /* open addressing */
	size_t cap, count;
};

static bool is_done(const struct state *s, unsigned i)
{
	return s->done[i / 64] >> i % 64 & 1;
}

static uint64_t hash_of(const struct state *s)
{
	uint64_t h = s->value;

	for (unsigned i = 0; i < WORDS; i++)
		h = prng_mix(h ^ s->done[i]);
	return h;
}

static bool equal(const struct state *a, const struct state *b)
{
	return a->value == b->value &&
	       !memcmp(a->done, b->done, sizeof(a->done));
}

static struct state *place(struct search *s, const struct state *st)
{
	size_t i = hash_of(st) & (s->cap - 1);

	while (s->seen[i].used && !equal(&s->seen[i], st))
		i = (i + 1) & (s->cap - 1);
	return &s->seen[i];
}

static int grow(struct search *s)
{
	struct state *was = s->seen;
	size_t cap = s->cap;

	s->cap = cap ? 2 * cap : 1024;
	s->seen = calloc(s->cap, sizeof(*s->seen));
	if (!s->seen) {
		s->seen = was;
		s->cap = cap;
		return -ENOMEM;
	}
	for (size_t i = 0; i < cap; i++)
		if (was[i].used)
			*place(s, &was[i]) = was[i];
	free(was);
	return 0;
}

/* 1: not seen before. */
static int remember(struct search *s)
{
	struct state *at;

	if (2 * s->count >= s->cap && grow(s))
		return -ENOMEM;
	at = place(s, &s->now);
	if (at->used)
		return 0;
	*at = s->now;
	at->used = true;
	s->count++;
	return 1;
}

/* Could a map that has `value` answer so? *next: what it has then. */
static bool may(const struct linear_op *op, uint32_t value, uint32_t *next)
{
	*next = value;
	switch (op->kind) {
	case LINEAR_GET:
		return op->value == value;
	case LINEAR_INSERT:
		if (op->failed)
			return value;
		*next = op->value;
		return !value;
	case LINEAR_UPDATE:
		if (!op->failed)
			*next = op->value;
		return op->failed == !value;
	case LINEAR_DELETE:
		*next = 0;
		return op->failed == !value;
	}
	return false;
}

/* All operations with a known end have happened? */
static bool complete(const struct search *s)
{
	for (unsigned i = 0; i < s->n; i++)
		if (!is_done(&s->now, i) && s->ops[i].end != LINEAR_OPEN)
			return false;
	return true;
}

/* 1: found; 0: no order from here. */
static int search_from(struct search *s)
{
	uint64_t limit = LINEAR_OPEN;
	uint32_t was = s->now.value, next;
	int rc = remember(s);

	if (rc <= 0)
		return rc;
	if (complete(s))
		return 1;
	/* What has ended before another one began comes before it. */
	for (unsigned i = 0; i < s->n; i++)
		if (!is_done(&s->now, i) && s->ops[i].end < limit)
			limit = s->ops[i].end;
	for (unsigned i = 0; i < s->n && s->ops[i].begin <= limit; i++) {
		if (is_done(&s->now, i) || !may(&s->ops[i], was, &next))
			continue;
		s->now.done[i / 64] |= 1ull << i % 64;
		s->now.value = next;
		rc = search_from(s);
		if (rc)
			return rc;
		s->now.done[i / 64] &= ~(1ull << i % 64);
		s->now.value = was;
	}
	return 0;
}

int linear_check(const struct linear_op *ops, unsigned n)
{
	struct search s = {.ops = ops, .n = n};
	int rc;

	if (n > LINEAR_OPS)
		return -E2BIG;
	rc = search_from(&s);
	free(s.seen);
	return rc < 0 ? rc : rc ? 0 : -EILSEQ;
}
