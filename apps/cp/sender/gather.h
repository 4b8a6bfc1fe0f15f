/* SPDX-License-Identifier: MIT */
/*
 * gather.h - which targets a copy begins with. Targets answer, refuse or are
 * silent, and a target that is not there does not hold up the others
 * (skein-cp(1), --wait-for).
 *
 * An engine: what happened and when goes in, the decision comes out. No I/O, no
 * clock, no allocation but the caller's array. Thread rule: one thread.
 */
#ifndef CP_SENDER_GATHER_H
#define CP_SENDER_GATHER_H

#include <stddef.h>
#include <stdint.h>

enum cp_wait_for {
	CP_WAIT_ANY,  /* one that answers is enough */
	CP_WAIT_MOST, /* more than half of them */
	CP_WAIT_ALL,
};

/* Of a target. */
enum cp_there {
	CP_THERE_TRYING, /* a connection is under way */
	CP_THERE_PAUSE,	 /* one has failed: the next begins at again_ns */
	CP_THERE_YES,
	CP_THERE_NO, /* takes no part */
};

struct cp_candidate {
	enum cp_there there;
	int err; /* of the last attempt */
	uint64_t again_ns;
	uint64_t pause_ns; /* the next one */
};

enum cp_gathered {
	CP_GATHER_WAIT,	 /* for an event, or until cp_gather_next() */
	CP_GATHER_BEGIN, /* with those that are there */
	CP_GATHER_FAIL,	 /* too few are there */
};

struct cp_gather {
	enum cp_wait_for wait_for;
	struct cp_candidate *v; /* n; the caller's */
	size_t n;
	uint64_t greeting_end_ns; /* enough are there: no longer than that */
	uint64_t end_ns;	  /* in any case */
};

/* All are tried from now on. greeting_ns: 0: as long as timeout_ns. */
void cp_gather_init(struct cp_gather *g, enum cp_wait_for wait_for,
		    struct cp_candidate *v, size_t n, uint64_t now_ns,
		    uint64_t greeting_ns, uint64_t timeout_ns);
/* Target i is connected. */
void cp_gather_ready(struct cp_gather *g, size_t i);
/* Its attempt has failed. It is tried again where that may help: PAUSE; else
 * NO. */
void cp_gather_failed(struct cp_gather *g, size_t i, int err, uint64_t now_ns);
/* Its pause is over: a new attempt is under way. */
void cp_gather_again(struct cp_gather *g, size_t i);
/* What is to be done now. */
enum cp_gathered cp_gather_decide(const struct cp_gather *g, uint64_t now_ns);
/* When cp_gather_decide() says something else by time alone, or a pause ends. */
uint64_t cp_gather_next(const struct cp_gather *g, uint64_t now_ns);
/* How many must be there. */
size_t cp_gather_need(const struct cp_gather *g);

#endif
