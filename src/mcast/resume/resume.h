/* SPDX-License-Identifier: MIT */
/*
 * resume.h - a group whose first message is one that another group did not
 * finish: docs/protocol/mcast.md, section 8.
 *
 * Members tell each other what they have: up the tree, to the root, which
 * compares it with what it has itself, and down again. Then all know the same,
 * and each has its part of the plan of resume/plan.h; xfer.c moves the blocks.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_RESUME_H
#define SKEIN_MCAST_RESUME_H

#include "mcast/port.h"
#include "mcast/resume/plan.h"

struct mcast_eng;
struct mcast_nb;

/* Blocks that the root looks at in a round, and some, when it compares: a few
 * hundred us. */
#define MCAST_COMPARE_LOOKS (1u << 16)

/* What this member has. have and sums are the port's memory. */
struct mcast_claim {
	bool knows; /* how large the object is */
	bool begun; /* buf is where it is (of 0 bytes: nowhere) */
	/* Not in memory: blocks come and go through the ring. */
	enum skein_mcast_store store;
	uint64_t size;
	struct mcast_buf buf;
	void *tag;
	uint64_t *have; /* bits; NULL: nothing */
	uint64_t *sums; /* of the blocks of have; NULL with it, and
				 * when they are consumed */
	/* The same as have, with digests; of SKEIN_MCAST_REREAD the engine makes
	 * them, and the sums, of what fill() says. */
	struct mcast_run *runs;
	uint32_t n_runs;
};

/* What a neighbour is saying, and what it has been told: tables in turn. */
struct mcast_exchange {
	bool talks; /* a table has begun */
	uint32_t rank, got;
	uint32_t at, run; /* next: the at-th table, run 0 is its head */
	bool sum_sent;
};

/* How far the root has come to compare what all say with what it has. */
struct mcast_compare {
	uint64_t *upto; /* digests before the first, the STRIDE-th, ... block */
	uint32_t at;	/* so many of them are there */
	/* The next run to look at, and how many before it are right. */
	uint32_t member, run, kept;
};

struct mcast_resume {
	struct mcast_claim claim;
	struct mcast_table *tables; /* [n] */
	uint32_t *parents;	    /* [n] */
	uint32_t *order;	    /* [n]: ranks, as their tables came up */
	uint32_t n_order;	    /* of them: mine is the first */
	uint32_t below;		    /* members of my part of the tree */
	uint32_t n_all;		    /* tables that are as all will have them */
	struct mcast_exchange *exchanges; /* [n_nbs] */
	struct skein_mcast_msg msg;	  /* the object, with the plan */
	struct mcast_resume_plan plan;
	bool has_plan; /* it is made, or being made */
	bool started;  /* it is the message under way, or was */
	struct mcast_resume_iter granting, sending, feeding;
	/* the next one is being looked for */
	bool seek_grant, seek_send, seek_feed;
	bool believed; /* what was consumed is in no digest of mine */
	/* What is there is read: the run, the block in it, one under way. */
	uint32_t read_at, read_in;
	bool asked;
	struct mcast_compare compare;
	bool sum_known;
	uint64_t sum; /* the root's digest */
};

/* Behind mcast_eng_init(); what claim names is the engine's from now on, in
 * any case. 0, -ENOMEM. */
int mcast_resume_init(struct mcast_eng *e, const struct mcast_claim *claim);
void mcast_resume_fini(struct mcast_eng *e);

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
/* This member's table is what the claim says: it may be told. 0, -ENOMEM. */
int mcast_resume_own_table(struct mcast_eng *e);

/* Of an object of so many bytes. */
uint32_t mcast_resume_blocks(const struct mcast_eng *e, uint64_t size);

/* resume/tables.c: HAVE, RUN and SUM come in. */
void mcast_resume_record(struct mcast_eng *e, struct mcast_nb *nb,
			 const struct mcast_rec *rec);
/* ... and go out. Returns how many. */
int mcast_resume_say(struct mcast_eng *e);
/* Has somebody something to hear? */
bool mcast_resume_says(const struct mcast_eng *e);

/* resume/stream.c: what is there is read by fill(). */
bool mcast_resume_reading(const struct mcast_eng *e);
bool mcast_resume_read_works(const struct mcast_eng *e);
int mcast_resume_read(struct mcast_eng *e);
void mcast_resume_read_done(struct mcast_eng *e, uint32_t block, int status);
/* The next send that is asked of fill() is wanted; may it be asked? */
void mcast_resume_next_feed(struct mcast_eng *e);
bool mcast_resume_may_feed(const struct mcast_eng *e);

#endif
