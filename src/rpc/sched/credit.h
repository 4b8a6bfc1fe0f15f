/* SPDX-License-Identifier: MIT */
/*
 * credit.h - credits of one QP (FLOCK, section 3.4.1), both ends. Pure.
 *
 * A credit is the right to post one message of requests, however many it has,
 * or one memory operation. A QP begins with C. When half of them are spent, the
 * sender asks for C more, and reports the median combining degree since it last
 * asked. The receiver grants them, or declines: then the QP is inactive at both
 * ends, until the receiver makes it active again by C new ones. Credits left at
 * that time stay valid at both ends, and are used then. So at quiescence
 * granted = used + left, the same at both ends, in whatever order messages
 * crossed.
 *
 * FLOCK's text has credits for "requests", which "decrease after posting the
 * request"; what is posted is a message. docs/design/combining.md says why.
 */
#ifndef SKEIN_RPC_SCHED_CREDIT_H
#define SKEIN_RPC_SCHED_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"

#define CREDIT_C 32u
#define CREDIT_DEGREES 64u /* larger ones count as that */

/* The sender's. */
struct credit {
	uint32_t c;
	uint32_t left;
	bool active, asked;
	uint32_t messages; /* since the last question */
	uint16_t degrees[CREDIT_DEGREES + 1];
};

void credit_init(struct credit *k, uint32_t c);
/* How many posts, of `want`, may be made now. */
static inline uint32_t credit_room(const struct credit *k, uint32_t want)
{
	if (!k->active)
		return 0;
	return want < k->left ? want : k->left;
}
/* A message of n requests leaves, for one credit. There is one. */
static inline void credit_spend(struct credit *k, uint32_t n)
{
	uint32_t degree = n < CREDIT_DEGREES ? n : CREDIT_DEGREES;

	skein_assert_debug(n && credit_room(k, 1));
	k->left--;
	k->degrees[degree]++;
	k->messages++;
}
/* A memory operation leaves, for one credit, after `before` others of the same
 * list. The list counts as a message of so many requests (FLOCK, section
 * 3.5). */
static inline void credit_spend_wr(struct credit *k, uint32_t before)
{
	uint32_t was = before < CREDIT_DEGREES ? before : CREDIT_DEGREES;
	uint32_t is = was < CREDIT_DEGREES ? was + 1 : was;

	skein_assert_debug(credit_room(k, 1));
	k->left--;
	if (before && k->degrees[was])
		k->degrees[was]--;
	else
		k->messages++;
	k->degrees[is]++;
}
/* Is it time to ask? */
static inline bool credit_low(const struct credit *k)
{
	return k->active && !k->asked && k->left <= k->c / 2;
}
/* One request may leave, and it is not time to ask behind it. */
static inline bool credit_plain(const struct credit *k)
{
	return k->active && k->left > (k->asked ? 0 : k->c / 2 + 1);
}
/* The question leaves. Returns the median degree that it reports, at least
 * 1. */
uint32_t credit_ask(struct credit *k);
/* n credits came, asked for or not: the QP is active. */
void credit_granted(struct credit *k, uint32_t n);
void credit_declined(struct credit *k);

/* The receiver's. */
struct credit_grantor {
	uint32_t c;
	uint32_t left; /* messages or operations that may still come */
	bool active;
	bool keep;     /* the scheduler's: grant when the client asks */
	uint64_t util; /* U of the QP: sum of the degrees reported since it was
		        * read */
};

void credit_grantor_init(struct credit_grantor *g, uint32_t c);
/* n messages or operations came; -SKEIN_EPEER: more than the client has credits
 * for. A QP that was declined still brings what was under way. */
int credit_used(struct credit_grantor *g, uint32_t n);
/* A question came. *granted: how many to grant, 0 to decline. -SKEIN_EPEER: the
 * QP is inactive or has more than half left, and must not ask. */
int credit_asked(struct credit_grantor *g, uint32_t degree, uint32_t *granted);
/* The scheduler wants an inactive QP active: how many to grant. */
uint32_t credit_activate(struct credit_grantor *g);

#endif
