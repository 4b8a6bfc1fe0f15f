/* SPDX-License-Identifier: MIT */
/*
 * books.h - what is known of each vqp of the scenario "vqp", at both of its
 * ends, and of each node's trouble; and what must hold of them.
 *
 * An error on a vqp is allowed if one of its two nodes was in trouble while the
 * vqp was there, or a little before. Trouble is what may break a queue pair:
 * a death, a link that is down, a QP that breaks, memory that is short, a long
 * pause. A slow node or link is none.
 */
#ifndef SKEIN_SIM_VQP_BOOKS_H
#define SKEIN_SIM_VQP_BOOKS_H

#include "sim/faults.h"
#include "sim/party.h"

#define RECORDS_MAX 8192u

/* One vqp, from its look-up on. */
struct record {
	unsigned from, to;	     /* actors */
	uint32_t from_life, to_life; /* of their processes */
	uint64_t born_ns;
	uint32_t word;	  /* the first one of its two */
	uint64_t written; /* WRITEs posted */
	uint64_t adds;
	/* messages, and answers to them */
	uint64_t sent, popped, answers, answered;
	bool failed; /* it has ended in an error */
	bool connected;
	bool ended;	 /* its vqp is freed */
	bool unanswered; /* the far end has freed its vqp: answers may be lost */
};

/* What a message brings. */
struct payload {
	uint64_t record, n;
};

struct books {
	struct report *rep;
	struct record *records; /* RECORDS_MAX */
	uint32_t n_records;
	/* when the last trouble of each actor was over; 0: it had none */
	uint64_t trouble_ns[PARTY_ACTORS_MAX];
	bool trouble; /* anybody had some */
};

/* NULL: there are enough. */
struct record *books_record(struct books *b);
void books_trouble(struct books *b, unsigned actor, enum fault kind,
		   uint64_t now_ns, uint64_t until_ns);
/* May a vqp of this record have no error? */
bool books_sound(const struct books *b, const struct record *r);
/* A message, or an answer (of the vqp of this record), has been taken at an
 * actor's process. */
void books_popped(struct books *b, const struct payload *p, unsigned actor,
		  uint32_t life);
void books_answered(struct books *b, struct record *r, const struct payload *p);
/* The far end is told that the vqp is freed; `lives`: its process does. */
void books_ended(struct books *b, const struct record *r, bool lives);
/* All messages of the vqp are there, or it does not matter any more. */
bool books_arrived(const struct books *b, const struct record *r);
/* The vqp of this record is in error. */
void books_failed(struct books *b, struct record *r, const char *what,
		  int status);

#endif
