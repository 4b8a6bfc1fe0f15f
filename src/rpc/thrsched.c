/* SPDX-License-Identifier: MIT */
/*
 * thrsched.c - algorithm 1, and the median that it sorts by.
 */
#include "rpc/thrsched.h"

#include <stdbool.h>
#include <stdlib.h>

static uint32_t part_begin(unsigned part)
{
	if (part < 8)
		return part;
	return (4u + part % 4) << (part / 4 - 1);
}

void thrsched_sizes_halve(struct thrsched_sizes *z)
{
	unsigned i;

	for (z->n = 0, i = 0; i < THRSCHED_SIZES; i++)
		z->n += z->count[i] /= 2;
}

uint32_t thrsched_sizes_median(const struct thrsched_sizes *z)
{
	uint32_t before = 0;
	unsigned part;

	if (!z->n)
		return 0;
	for (part = 0; before + z->count[part] < (z->n + 1) / 2; part++)
		before += z->count[part];
	return part_begin(part);
}

static int compare(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int by_load(const void *pa, const void *pb)
{
	const struct thrsched_thread *a = pa, *b = pb;
	int c = compare(!a->bytes, !b->bytes); /* the idle come last */

	if (!c)
		c = compare(a->median, b->median);
	if (!c)
		c = compare(a->requests, b->requests);
	return c ? c : compare(a->id, b->id);
}

static bool is_active(const uint32_t *active, unsigned n, uint32_t qp)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (active[i] == qp)
			return true;
	return false;
}

/* The active QP with the fewest of the idle threads. */
static uint32_t emptiest(const struct thrsched_thread *idle, unsigned n_idle,
			 const uint32_t *active, unsigned n)
{
	unsigned i, j, count, least = UINT32_MAX;
	uint32_t best = active[0];

	for (i = 0; i < n; i++) {
		for (count = 0, j = 0; j < n_idle; j++)
			count += idle[j].qp == active[i];
		if (count < least) {
			least = count;
			best = active[i];
		}
	}
	return best;
}

void thrsched_map(struct thrsched_thread *t, unsigned n, const uint32_t *active,
		  unsigned n_active)
{
	uint64_t total = 0, load = 0;
	unsigned i, at = 0, busy;

	qsort(t, n, sizeof(*t), by_load);
	for (busy = 0; busy < n && t[busy].bytes; busy++)
		total += t[busy].bytes;
	for (i = 0; i < busy; i++) {
		t[i].qp = active[at];
		load += t[i].bytes;
		/* load >= total / n_active, without its rounding */
		if (load >= (total + n_active - 1) / n_active &&
		    at + 1 < n_active) {
			at++;
			load = 0;
		}
	}
	for (i = busy; i < n; i++)
		if (!is_active(active, n_active, t[i].qp))
			t[i].qp =
				emptiest(t + busy, n - busy, active, n_active);
}
