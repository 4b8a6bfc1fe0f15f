/* SPDX-License-Identifier: MIT */
/*
 * credit.c - the counts of both ends.
 */
#include "rpc/sched/credit.h"

#include "base/assert.h"

#include <skein/error.h>
#include <string.h>

void credit_init(struct credit *k, uint32_t c)
{
	memset(k, 0, sizeof(*k));
	k->c = k->left = c;
	k->active = true;
}

/* At most 2 C messages lie between two questions, so no count runs over. */
static uint32_t median(const struct credit *k)
{
	uint32_t degree, before = 0;

	for (degree = 1; degree < CREDIT_DEGREES; degree++) {
		before += k->degrees[degree];
		if (before >= (k->messages + 1) / 2)
			break;
	}
	return k->messages ? degree : 1;
}

uint32_t credit_ask(struct credit *k)
{
	uint32_t degree = median(k);

	k->asked = true;
	k->messages = 0;
	memset(k->degrees, 0, sizeof(k->degrees));
	return degree;
}

void credit_granted(struct credit *k, uint32_t n)
{
	k->left += n;
	k->active = true;
	k->asked = false;
}

void credit_declined(struct credit *k)
{
	k->active = false;
	k->asked = false;
}

void credit_grantor_init(struct credit_grantor *g, uint32_t c)
{
	*g = (struct credit_grantor){
		.c = c, .left = c, .active = true, .keep = true};
}

int credit_used(struct credit_grantor *g, uint32_t n)
{
	if (n > g->left)
		return -SKEIN_EPEER;
	g->left -= n;
	return 0;
}

int credit_asked(struct credit_grantor *g, uint32_t degree, uint32_t *granted)
{
	/* Messages that the client sent before it asked were counted before its
	 * question. */
	if (!g->active || g->left > g->c / 2 || !degree)
		return -SKEIN_EPEER;
	g->util += degree < CREDIT_DEGREES ? degree : CREDIT_DEGREES;
	g->active = g->keep;
	*granted = g->keep ? g->c : 0;
	g->left += *granted;
	return 0;
}

uint32_t credit_activate(struct credit_grantor *g)
{
	if (g->active)
		return 0;
	g->active = true;
	g->left += g->c;
	return g->c;
}
