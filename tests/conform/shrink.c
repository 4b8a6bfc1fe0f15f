/* SPDX-License-Identifier: MIT */
/*
 * shrink.c - see shrink.h.
 */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

/* The same failure: the same words, whatever the numbers. */
static bool alike(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (*a && strchr("0123456789", *a))
			a++;
		while (*b && strchr("0123456789", *b))
			b++;
		if (*a != *b)
			return false;
		if (!*a || *a == '(')
			return true;
	}
}

static bool arms(const struct program *p)
{
	int i;

	for (i = 0; i < p->n; i++)
		if (p->step[i].kind == STEP_ARM)
			return true;
	return false;
}

static bool still(struct world *w, struct program *p, struct program *try,
		  struct outcome *o)
{
	struct outcome got;

	program_run(w, try, NULL, NULL, &got);
	if (got.ok || !alike(got.why, o->why))
		return false;
	*p = *try;
	*o = got;
	return true;
}

/* Leaves out n steps from at on. An arming belongs right behind a SYNC. */
static bool cut_steps(struct program *try, int at, int n)
{
	bool keep_syncs = arms(try);
	int i, to = at;

	for (i = at; i < at + n; i++)
		if (keep_syncs && try->step[i].kind == STEP_SYNC)
			try->step[to++] = try->step[i];
	if (to == at + n)
		return false;
	memmove(&try->step[to], &try->step[at + n],
		(size_t)(try->n - at - n) * sizeof(try->step[0]));
	try->n -= at + n - to;
	return true;
}

static bool shrink_steps(struct world *w, struct program *p,
			 struct program *try, struct outcome *o)
{
	bool any = false;
	int n, at;

	for (n = p->n / 2; n > 0; n /= 2)
		for (at = p->n - n; at >= 0; at -= n) {
			if (at + n > p->n)
				continue;
			*try = *p;
			if (cut_steps(try, at, n) && still(w, p, try, o))
				any = true;
		}
	return any;
}

static void shrink_lists(struct world *w, struct program *p,
			 struct program *try, struct outcome *o)
{
	int i, k;

	for (i = 0; i < p->n; i++)
		for (k = p->step[i].n - 1; k >= 0 && p->step[i].n > 1; k--) {
			struct step *s = &try->step[i];

			*try = *p;
			memmove(&s->wr[k], &s->wr[k + 1],
				(size_t)(s->n - k - 1) * sizeof(s->wr[0]));
			s->n--;
			still(w, p, try, o);
		}
}

void program_shrink(struct world *w, struct program *p, struct outcome *o)
{
	struct program *try = malloc(sizeof(*try));
	uint64_t patience = w->patience_ns;

	w->patience_ns /= 8;
	while (shrink_steps(w, p, try, o))
		;
	shrink_lists(w, p, try, o);
	w->patience_ns = patience;
	free(try);
}
