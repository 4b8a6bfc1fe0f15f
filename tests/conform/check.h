/* SPDX-License-Identifier: MIT */
/*
 * check.h - is what a device did allowed? Takes the epochs of a program in
 * order; each must be explained by the reference model, pair by pair, and its
 * completions must have come by the right CQ with the right events.
 */
#ifndef SKEIN_TESTS_CONFORM_CHECK_H
#define SKEIN_TESTS_CONFORM_CHECK_H

#include "msrq.h"
#include "mud.h"

struct check {
	const struct program *p;
	struct m_pair *now[PAIRS], *next[PAIRS];
	struct mud *ud, *ud_next;
	struct msrq *srq, *srq_next; /* NULL: the program has none */
	int armed[2][CQS]; /* -1 no, 0 for any, 1 for solicited ones */
	/* armings that may still bring an event; two at most are owed */
	int wishes[2][CQS];
	bool thorough; /* nothing more will come: search for long */
	unsigned used; /* as in struct m_pair, of all so far */
	char why[200];
};

void check_init(struct check *c, const struct program *p, granted_all granted,
		unsigned quirks);
void check_fini(struct check *c);
/* False: c is as before, and c->why says what cannot be. */
bool check_epoch(struct check *c, const struct epoch *e);

#endif
