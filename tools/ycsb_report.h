/* SPDX-License-Identifier: MIT */
/*
 * ycsb_report.h - what `skein ycsb` found, and how it prints it.
 */
#ifndef SKEIN_TOOLS_YCSB_REPORT_H
#define SKEIN_TOOLS_YCSB_REPORT_H

#include "kv/ycsb/ycsb.h"

#include <stdbool.h>

#define YCSB_MIXES_MAX 16u
#define YCSB_TARGETS_MAX 4u
#define YCSB_ROUNDS_MAX 4096u

/* One workload on one target. */
struct ycsb_cell {
	struct ycsb_tally tally;
	double rates[YCSB_ROUNDS_MAX]; /* of each round */
};

struct ycsb_report {
	const struct ycsb_params *params;
	unsigned threads, window;
	uint64_t rate; /* 0: a closed loop */
	const char *arrival;
	unsigned target_count, mix_count;
	struct ycsb_target *targets[YCSB_TARGETS_MAX];
	const char *addrs[YCSB_TARGETS_MAX];
	const struct ycsb_mix *mixes[YCSB_MIXES_MAX];
	unsigned rounds[YCSB_MIXES_MAX]; /* that were run */
	struct ycsb_cell *cells;	 /* mix by mix, target by target */
	struct ycsb_tally *loads;	 /* target by target */
	bool loaded;
};

static inline struct ycsb_cell *ycsb_report_cell(const struct ycsb_report *r,
						 unsigned mix, unsigned target)
{
	return &r->cells[mix * r->target_count + target];
}

/* How many times as many operations a second as the base did: the median over
 * the rounds, each beside its neighbour. */
double ycsb_report_ratio(const struct ycsb_report *r, unsigned mix,
			 unsigned target, unsigned base);

/* A table for people. */
void ycsb_report_table(const struct ycsb_report *r);
/* A line for each workload and target, separated by tabs: workload, transport,
 * operations a second, p50 and p99 in us, ratio to each further target. */
void ycsb_report_rows(const struct ycsb_report *r);
/* One object on stdout. 0, -EIO, -ENOMEM. */
int ycsb_report_json(const struct ycsb_report *r);

#endif
