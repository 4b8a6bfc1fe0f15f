/* SPDX-License-Identifier: MIT */
/*
 * thrsched.h - the sender's thread scheduler (FLOCK, section 3.4.2, algorithm
 * 1): which thread sends on which of the active QPs. Pure.
 *
 * Threads, sorted by the median size of their requests, then by the number of
 * them, fill one QP after the other up to an equal part of all bytes: small
 * requests come together, where they combine, and do not wait behind large
 * ones. The paper's algorithm can run past the last QP: here the last QP takes
 * what is left. It also gives each QP a part of a thread too much, so the last
 * QPs may get no threads: here the parts are those of the sum. A map stays
 * unless it is much worse than a new one. A thread that sent nothing since the
 * last time stays if its QP is active, else it goes to the QP with the fewest
 * such threads.
 */
#ifndef SKEIN_RPC_SCHED_THRSCHED_H
#define SKEIN_RPC_SCHED_THRSCHED_H

#include <stdint.h>

/* Sizes of requests, for their median: by powers of two in four parts each, so
 * that it is at most a quarter too small. */
#define THRSCHED_SIZES 128u

struct thrsched_sizes {
	uint32_t n;
	uint16_t count[THRSCHED_SIZES];
};

/* A count has reached its limit: halves all, so older sizes count half. */
void thrsched_sizes_halve(struct thrsched_sizes *z);

/* 0 to 7 have a part each, then four to every power of two. */
static inline unsigned thrsched_part(uint32_t size)
{
	unsigned log;

	if (size < 8)
		return size;
	log = 31u - (unsigned)__builtin_clz(size);
	return 4 * (log - 1) + (size >> (log - 2) & 3);
}

static inline void thrsched_sizes_add(struct thrsched_sizes *z, uint32_t size)
{
	unsigned part = thrsched_part(size);

	if (__builtin_expect(z->count[part] == UINT16_MAX, 0))
		thrsched_sizes_halve(z);
	z->count[part]++;
	z->n++;
}

/* The lower median, rounded down to where its part begins; 0 when empty. */
uint32_t thrsched_sizes_median(const struct thrsched_sizes *z);

struct thrsched_thread {
	uint32_t id; /* breaks ties, so the caller's order does not matter */
	uint32_t median;   /* bytes of a request */
	uint32_t requests; /* since the last time */
	uint32_t qp;	   /* in: its QP; out: its next one */
	uint32_t was;	   /* for thrsched_map() */
	uint64_t bytes;	   /* since the last time */
};

/* Sorts t; active: the numbers of n_active QPs, at least one. */
void thrsched_map(struct thrsched_thread *t, unsigned n, const uint32_t *active,
		  unsigned n_active);

#endif
