/* SPDX-License-Identifier: MIT */
/*
 * resume.h - a group whose first message is one that another group did not
 * finish: docs/protocol/mcast.md, section 8.
 *
 * Members tell each other what they have: up the tree, to the root, which
 * compares it with what it has itself, and down again. Then all know the same,
 * and each has its part of the plan of resume_plan.h; xfer.c moves the blocks.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_RESUME_H
#define SKEIN_MCAST_RESUME_H

#include "mcast/port.h"
#include "mcast/resume_plan.h"

struct mcast_eng;
struct mcast_nb;

/* What this member has. have and sums are the port's memory. */
struct mcast_claim {
	bool knows; /* how large the object is */
	bool begun; /* buf is where it is (of 0 bytes: nowhere) */
	uint64_t size;
	struct mcast_buf buf;
	void *tag;
	uint64_t *have;		/* bits; NULL: nothing */
	uint64_t *sums;		/* of the blocks of have; NULL with it */
	struct mcast_run *runs; /* the same as have, with digests */
	uint32_t n_runs;
};

/* What a neighbour is saying, and what it has been told: tables in turn. */
struct mcast_share {
	bool talks; /* a table has begun */
	uint32_t rank, got;
	uint32_t at, run; /* next: the at-th table, run 0 is its head */
	bool sum_told;
};

struct mcast_resume {
	struct mcast_claim claim;
	struct mcast_table *tables; /* [n] */
	uint32_t *parents;	    /* [n] */
	uint32_t *order;	    /* [n]: ranks, as their tables came up */
	uint32_t n_order;	    /* of them: mine is the first */
	uint32_t below;		    /* members of my part of the tree */
	uint32_t n_all;		    /* tables that are as all will have them */
	struct mcast_share *shares; /* [n_nbs] */
	struct mcast_resume_plan plan;
	bool has_plan;
	bool started; /* it is the message under way, or was */
	struct mcast_resume_iter granting, sending;
	bool seek_grant, seek_send; /* the next one is being looked for */
	bool sum_known;
	uint64_t sum; /* the root's digest */
};

/* Behind mcast_eng_init(); what claim names is the engine's from now on, in
 * any case. 0, -ENOMEM. */
int mcast_resume_init(struct mcast_eng *e, const struct mcast_claim *claim);
void mcast_resume_fini(struct mcast_eng *e);

/* HAVE, RUN and SUM. */
void mcast_resume_record(struct mcast_eng *e, struct mcast_nb *nb,
			 const struct mcast_rec *rec);
/* Tells, begins, looks for the next blocks. Returns what moved. */
int mcast_resume_step(struct mcast_eng *e);
bool mcast_resume_has_work(const struct mcast_eng *e);
/* The object is not under way yet: members still tell what they have. */
bool mcast_resume_pending(const struct mcast_eng *e);
/* Is the message under way the resumed one? */
bool mcast_resume_active(const struct mcast_eng *e);
/* ... and all here, with the root's digest? */
bool mcast_resume_whole(const struct mcast_eng *e);
/* A failure comes before it is under way. */
int mcast_resume_end(struct mcast_eng *e, int status);
/* The next receive, or send, is wanted. */
void mcast_resume_next_grant(struct mcast_eng *e);
void mcast_resume_next_send(struct mcast_eng *e);

#endif
