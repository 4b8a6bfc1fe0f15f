/* SPDX-License-Identifier: MIT */
/*
 * qpsched.c - equation 3.1 with its bounds.
 *
 * A proportional share may be below one QP, or above what a sender has. Such
 * shares are set to their bound, which changes the shares of the others: so it
 * takes several passes. A pass settles either the shares that were raised or
 * those that were cut: the kind that makes the sum miss the budget. So no
 * sender is settled that would come off its bound again.
 *
 * Pure.
 */
#include "rpc/sched/qpsched.h"

#include <stdbool.h>
#include <stddef.h>

/* Shares are computed with so many bits behind the point. */
#define FRACTION 16
#define ONE (1ull << FRACTION)

struct pot {
	uint64_t budget; /* QPs to be shared */
	uint64_t util;	 /* of the senders that share them */
};

static uint64_t share(const struct pot *p, const struct qpsched_sender *s)
{
	return (uint64_t)(((unsigned __int128)s->util * p->budget << FRACTION) /
			  p->util);
}

static uint64_t bounded(const struct qpsched_sender *s, uint64_t v)
{
	uint64_t most = (uint64_t)s->qps << FRACTION;

	if (v < ONE)
		return ONE;
	return v > most ? most : v;
}

static void settle(struct pot *p, struct qpsched_sender *s, uint32_t aqp)
{
	s->aqp = aqp;
	s->settled = true;
	p->budget -= aqp < p->budget ? aqp : p->budget;
	p->util -= s->util;
}

/* One pass: true when a sender was set to a bound. */
static bool settle_bounded(struct pot *p, struct qpsched_sender *s, unsigned n)
{
	uint64_t sum = 0, v, budget = p->budget << FRACTION;
	struct pot was = *p;
	bool any = false;
	unsigned i;

	for (i = 0; i < n; i++)
		if (!s[i].settled)
			sum += bounded(&s[i], share(&was, &s[i]));
	for (i = 0; i < n; i++) {
		if (s[i].settled)
			continue;
		v = share(&was, &s[i]);
		if (v < ONE && sum >= budget)
			settle(p, &s[i], 1);
		else if (v > (uint64_t)s[i].qps << FRACTION && sum <= budget)
			settle(p, &s[i], s[i].qps);
		any |= s[i].settled;
	}
	return any;
}

/* The sender that has lost most by rounding down. */
static struct qpsched_sender *most_rest(struct qpsched_sender *s, unsigned n)
{
	struct qpsched_sender *best = NULL;
	unsigned i;

	for (i = 0; i < n; i++)
		if (!s[i].settled && s[i].aqp < s[i].qps &&
		    (!best || s[i].rest > best->rest))
			best = &s[i];
	return best;
}

static void settle_rest(struct pot *p, struct qpsched_sender *s, unsigned n)
{
	struct qpsched_sender *best;
	uint64_t left = p->budget, v;
	unsigned i;

	for (i = 0; i < n; i++) {
		if (s[i].settled)
			continue;
		v = share(p, &s[i]);
		s[i].aqp = (uint32_t)(v >> FRACTION);
		s[i].rest = (uint32_t)(v & (ONE - 1));
		left -= s[i].aqp;
	}
	while (left-- && (best = most_rest(s, n))) {
		best->aqp++;
		best->settled = true;
	}
}

void qpsched_share(struct qpsched_sender *s, unsigned n, unsigned max_aqp)
{
	struct pot p = {.budget = max_aqp};
	unsigned i, working = 0;

	for (i = 0; i < n; i++) {
		s[i].aqp = 1;
		s[i].settled = !s[i].util;
		working += !s[i].settled;
		p.util += s[i].util;
	}
	/* the QPs of dormant senders */
	p.budget -= p.budget < n - working ? p.budget : n - working;
	if (p.budget < working)
		return; /* too many senders: one QP for each */
	while (p.util && settle_bounded(&p, s, n))
		;
	if (p.util)
		settle_rest(&p, s, n);
}

uint64_t qpsched_newcomer_util(const struct qpsched_sender *s, unsigned n)
{
	uint64_t sum = 0;
	unsigned i, working = 0;

	for (i = 0; i < n; i++) {
		sum += s[i].util;
		working += s[i].util != 0;
	}
	return working ? (sum + working / 2) / working : 1;
}
