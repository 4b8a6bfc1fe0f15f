/* SPDX-License-Identifier: MIT */
/*
 * quota.c - see quota.h.
 */
#include "vqp/node/quota.h"

static bool fits(uint64_t used, uint64_t max, uint64_t n)
{
	return n <= max && used <= max - n;
}

bool quota_take(struct quota *q, enum quota_kind kind, uint64_t n)
{
	unsigned of_user;

	if (!q->max)
		return true;
	of_user = fits(q->used[kind], q->max[kind], n);
	if (of_user &&
	    fits(q->user->used[kind], q->max[kind] * q->user_times, n)) {
		q->used[kind] += n;
		q->user->used[kind] += n;
		return true;
	}
	q->refused |= 1u << (2 * (unsigned)kind + of_user);
	return false;
}

void quota_give(struct quota *q, enum quota_kind kind, uint64_t n)
{
	if (!q->max)
		return;
	q->used[kind] -= n;
	q->user->used[kind] -= n;
}
