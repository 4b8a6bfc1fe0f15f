/* SPDX-License-Identifier: MIT */
/*
 * hist.c - see hist.h. Values below 2 << HIST_BITS have a bucket each; above,
 * a bucket spans 1 << exp values, exp being what is left of the value's length
 * beyond 8 bits.
 */
#include <string.h>

#include "base/hist.h"

void hist_init(struct hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min_ns = UINT64_MAX;
}

static unsigned bucket_exp(uint64_t ns)
{
	/* The set bit keeps clz defined and small values at exponent 0. */
	return 63u - (unsigned)__builtin_clzll(ns | 1ull << HIST_BITS) -
	       HIST_BITS;
}

static unsigned bucket_of(uint64_t ns)
{
	unsigned exp = bucket_exp(ns);

	return (exp << HIST_BITS) + (unsigned)(ns >> exp);
}

/* The largest value that falls into the bucket. */
static uint64_t bucket_end(unsigned i)
{
	unsigned exp;

	if (i < 2u << HIST_BITS)
		return i;
	exp = (i >> HIST_BITS) - 1;
	return ((uint64_t)(i - (exp << HIST_BITS)) + 1) * (1ull << exp) - 1;
}

void hist_record_n(struct hist *h, uint64_t ns, uint64_t n)
{
	if (!n)
		return;
	if (ns > HIST_MAX_NS)
		ns = HIST_MAX_NS;
	h->count += n;
	h->sum_ns += ns * n;
	if (ns < h->min_ns)
		h->min_ns = ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	h->buckets[bucket_of(ns)] += n;
}

void hist_record(struct hist *h, uint64_t ns)
{
	hist_record_n(h, ns, 1);
}

void hist_record_corrected(struct hist *h, uint64_t ns, uint64_t interval_ns)
{
	hist_record(h, ns);
	if (!interval_ns)
		return;
	if (ns > HIST_MAX_NS)
		ns = HIST_MAX_NS;
	while (ns > interval_ns) {
		ns -= interval_ns;
		hist_record(h, ns);
	}
}

void hist_merge(struct hist *into, const struct hist *from)
{
	unsigned i;

	into->count += from->count;
	into->sum_ns += from->sum_ns;
	if (from->min_ns < into->min_ns)
		into->min_ns = from->min_ns;
	if (from->max_ns > into->max_ns)
		into->max_ns = from->max_ns;
	for (i = 0; i < HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

uint64_t hist_percentile(const struct hist *h, double percent)
{
	uint64_t want, seen = 0, v;
	unsigned i;

	if (!h->count)
		return 0;
	if (percent >= 100.0)
		return h->max_ns;
	if (percent <= 0.0)
		return h->min_ns;
	want = (uint64_t)((double)h->count * percent / 100.0);
	/* Rounded up: 99 % of 150 values are 149 of them, not 148. */
	if ((double)want < (double)h->count * percent / 100.0)
		want++;
	for (i = 0; i < HIST_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen >= want)
			break;
	}
	v = i < HIST_BUCKETS ? bucket_end(i) : h->max_ns;
	if (v > h->max_ns)
		v = h->max_ns;
	return v < h->min_ns ? h->min_ns : v;
}

uint64_t hist_mean(const struct hist *h)
{
	return h->count ? h->sum_ns / h->count : 0;
}
