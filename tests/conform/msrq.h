/* SPDX-License-Identifier: MIT */
/*
 * msrq.h - the reference model of shared receive queues: the rules that no
 * single connection can check. Which receive a QP took is known from its
 * completions, so each connection is explained as ever (search.c), with what it
 * took in place of a queue of its own; here is what holds for all of them.
 */
#ifndef SKEIN_TESTS_CONFORM_MSRQ_H
#define SKEIN_TESTS_CONFORM_MSRQ_H

#include "model.h"

struct msrq_recv {
	uint64_t id;
	const struct wr *w;
	int ev;			  /* of its post, -1: before this epoch */
	int taken;		  /* the event of its completion */
	bool is_taken, was_taken; /* by now; before this epoch */
};

struct msrq_side {
	int n, observed; /* posted; completed and polled */
	struct msrq_recv recv[MSRQ_RECVS];
	int lost;      /* a RESET took so many with it, at most */
	bool open_now; /* in this epoch, what was not taken may hold anything */
	struct msrq_sure sure;
	uint32_t limit;	    /* that was set last; 0: none */
	bool maybe_reached; /* its event may have been made */
	bool late;	    /* ... and may come yet: nobody waits for it */
	bool err[PAIRS];    /* the QP was in ERR at the end */
	uint8_t mem[LANE];  /* at the end */
};

struct msrq {
	const struct program *p;
	struct granted granted[2];
	struct msrq_side s[2];
	char *why;
	size_t why_len;
};

void msrq_init(struct msrq *u, const struct program *p, granted_all granted);
/* Posts and completions of the epoch; now: the pairs as they were. */
bool msrq_before(struct msrq *u, const struct epoch *e,
		 struct m_pair *const now[PAIRS], char *why, size_t len);
/* Gives a pair what its QPs took. */
bool msrq_lend(struct msrq *u, const struct epoch *e, struct m_pair *m);
/* Events and memory, when the pairs are explained. */
bool msrq_after(struct msrq *u, const struct epoch *e,
		struct m_pair *const next[PAIRS]);

#endif
