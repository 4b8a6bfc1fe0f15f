/* SPDX-License-Identifier: MIT */
/*
 * thrsched.c - algorithm 1, and the median that it sorts by.
 */
#include "rpc/sched/thrsched.h"

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

/* The active QP with the fewest idle threads. */
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

/* What a map makes of QPs. */
struct judgement {
	uint64_t most;	/* bytes of the fullest QP */
	unsigned used;	/* QPs that have threads */
	unsigned mixed; /* QPs with small and large requests */
	bool rests;	/* some thread is on a QP that is not active */
};

/* t: busy threads in the order of QPs. */
static struct judgement judge(const struct thrsched_thread *t, unsigned n,
			      const uint32_t *active, unsigned n_active)
{
	struct judgement j = {0};
	uint32_t small, large;
	uint64_t load;
	unsigned i, k;

	for (i = 0; i < n; i = k) {
		load = 0;
		j.used++;
		small = large = t[i].median;
		for (k = i; k < n && t[k].qp == t[i].qp; k++) {
			load += t[k].bytes;
			small = t[k].median < small ? t[k].median : small;
			large = t[k].median > large ? t[k].median : large;
		}
		j.most = load > j.most ? load : j.most;
		j.mixed += large / 2 > small;
		j.rests |= !is_active(active, n_active, t[i].qp);
	}
	return j;
}

static int by_qp(const void *pa, const void *pb)
{
	const struct thrsched_thread *a = pa, *b = pb;
	int c = compare(a->qp, b->qp);

	return c ? c : compare(a->id, b->id);
}

/* Algorithm 1, for threads in its order: a thread belongs to the QP where the
 * middle of its bytes falls. */
static void fill(struct thrsched_thread *t, unsigned n, uint64_t total,
		 const uint32_t *active, unsigned n_active)
{
	uint64_t before = 0;
	unsigned i, at = 0;

	for (i = 0; i < n; i++) {
		/* before + bytes / 2 >= total / n_active * (at + 1) */
		if (at + 1 < n_active && (2 * before + t[i].bytes) * n_active >=
						 2 * total * (at + 1))
			at++;
		t[i].qp = active[at];
		before += t[i].bytes;
	}
}

/* A thread that goes to another QP has to wait, so a map stays while it is
 * nearly as good as a new one. */
static void map_busy(struct thrsched_thread *t, unsigned n, uint64_t total,
		     const uint32_t *active, unsigned n_active)
{
	struct judgement is, was;
	unsigned i;

	qsort(t, n, sizeof(*t), by_qp);
	was = judge(t, n, active, n_active);
	for (i = 0; i < n; i++)
		t[i].was = t[i].qp;
	qsort(t, n, sizeof(*t), by_load);
	fill(t, n, total, active, n_active);
	is = judge(t, n, active, n_active);
	if (was.rests || was.used < is.used || was.mixed > is.mixed ||
	    was.most > is.most * 3 / 2)
		return;
	for (i = 0; i < n; i++)
		t[i].qp = t[i].was;
}

void thrsched_map(struct thrsched_thread *t, unsigned n, const uint32_t *active,
		  unsigned n_active)
{
	uint64_t total = 0;
	unsigned i, busy;

	qsort(t, n, sizeof(*t), by_load);
	for (busy = 0; busy < n && t[busy].bytes; busy++)
		total += t[busy].bytes;
	map_busy(t, busy, total, active, n_active);
	for (i = busy; i < n; i++)
		if (!is_active(active, n_active, t[i].qp))
			t[i].qp =
				emptiest(t + busy, n - busy, active, n_active);
}
