/* SPDX-License-Identifier: MIT */
/*
 * linear.h - is one key's history of several writers linearizable? Is there an
 * order of its operations, each within the time between its begin and its end,
 * in which a map would have given the same answers?
 *
 * The search is Wing and Gong's, with the states remembered that led to nothing
 * (Lowe). An operation of unknown outcome, because its client died, may
 * have happened at any time since its begin, or never.
 *
 * Pure.
 */
#ifndef SKEIN_SIM_LINEAR_H
#define SKEIN_SIM_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

#define LINEAR_OPS 512u /* of a key */
#define LINEAR_OPEN UINT64_MAX

enum linear_kind {
	LINEAR_GET,
	LINEAR_INSERT,
	LINEAR_UPDATE,
	LINEAR_DELETE,
};

struct linear_op {
	enum linear_kind kind;
	/* Not 0. Of a GET: what it found, 0: nothing. */
	uint32_t value;
	bool failed;	/* there was a value (INSERT), or none */
	uint64_t begin; /* of its call */
	uint64_t end;	/* LINEAR_OPEN: nobody knows */
};

/* ops are in the order of their begins. 0; -EILSEQ: no such order; -E2BIG: more
 * than LINEAR_OPS; -ENOMEM. */
int linear_check(const struct linear_op *ops, unsigned n);

#endif
