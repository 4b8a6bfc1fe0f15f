/* SPDX-License-Identifier: MIT */
/*
 * resume/resume.h - a group with a first message that another group
 * did not finish: docs/protocol/mcast.md, section 8.
 *
 *	resume.c	the root compares; the object begins; its plan
 *	tables.c	members exchange what they have
 *	stream.c	members that do not have the object in memory
 *	plan.c		which block goes where
 *
 * Members send tables of what they have up the tree. The root compares them
 * with what it has itself and sends the result down. Then all members know the
 * same, each computes its part of the plan, and xfer.c moves the blocks.
 *
 * Thread rule: the owner of the context's default engine.
 */
#ifndef SKEIN_MCAST_RESUME_H
#define SKEIN_MCAST_RESUME_H

#include "mcast/port.h"
#include "mcast/resume/plan.h"

struct mcast_eng;
struct mcast_nb;

/* Blocks that the root looks at in one round while it compares: a few hundred
 * us. */
#define MCAST_COMPARE_LOOKS (1u << 16)

/* What this member has. have, sums and runs are memory of the port. */
struct mcast_claim {
	bool knows; /* it knows the object's size */
	/* buf is valid: the application has said where the object is */
	bool begun;
	/* Where the object is if it is not in memory: blocks go through the
	 * ring. */
	enum skein_mcast_store store;
	uint64_t size;
	struct mcast_buf buf;
	void *tag;
	uint64_t *have; /* a bit per block; NULL: it has none */
	/* checksums of these blocks; NULL if have is NULL or the blocks are
	 * consumed */
	uint64_t *sums;
	/* The same as have, with digests. For SKEIN_MCAST_REREAD the engine
	 * computes sums and digests from what fill() supplies. */
	struct mcast_run *runs;
	uint32_t n_runs;
};

/* Tables from and to one neighbour, one after another. */
struct mcast_exchange {
	bool talks; /* a table is coming: its head has come */
	uint32_t rank, got;
	uint32_t at, run; /* what is sent next: table `at`; run 0 is its head */
	bool sum_sent;
};

/* How far the root has come in comparing tables with what it has. */
struct mcast_compare {
	uint64_t *upto; /* [i]: digest of the blocks before block i * STRIDE */
	uint32_t at;	/* valid entries of upto */
	/* The next run to compare, and how many runs before it are right. */
	uint32_t member, run, kept;
};

struct mcast_resume {
	struct mcast_claim claim;
	struct mcast_table *tables; /* [n] */
	uint32_t *parents;	    /* [n] */
	/* [n]: ranks in the order in which their tables came up */
	uint32_t *order;
	/* valid entries; the first is this member */
	uint32_t n_order;
	/* members in this member's part of the tree, with itself */
	uint32_t below;
	/* tables that are final: [0, n_all) by rank */
	uint32_t n_all;
	struct mcast_exchange *exchanges; /* [n_nbs] */
	struct skein_mcast_msg msg;	  /* the object */
	struct mcast_resume_plan plan;
	bool has_plan; /* plan is being made, or is made */
	bool started;  /* the object is the message under way, or was */
	struct mcast_resume_iter granting, sending, feeding;
	/* the next item is not found yet */
	bool seek_grant, seek_send, seek_feed;
	/* this member's digest lacks consumed blocks: it takes the root's */
	bool believed;
	/* While fill() reads what the member has: the run, the block in the
	 * run, and whether fill() is at work. */
	uint32_t read_at, read_in;
	bool asked;
	struct mcast_compare compare;
	bool sum_known;
	uint64_t sum; /* the root's digest */
};

/* After mcast_eng_init(). The engine owns what claim points to from now on,
 * also on failure. 0, -ENOMEM. */
int mcast_resume_init(struct mcast_eng *e, const struct mcast_claim *claim);
void mcast_resume_fini(struct mcast_eng *e);

/* Exchanges tables, begins, looks for the next items. Returns how many things
 * moved. */
int mcast_resume_step(struct mcast_eng *e);
bool mcast_resume_has_work(const struct mcast_eng *e);
/* Has the object not begun yet? */
bool mcast_resume_pending(const struct mcast_eng *e);
/* Is the message under way the resumed one? */
bool mcast_resume_active(const struct mcast_eng *e);
/* ... and are all its blocks here, with the root's digest? */
bool mcast_resume_whole(const struct mcast_eng *e);
/* A failure before the object has begun. */
int mcast_resume_end(struct mcast_eng *e, int status);
/* Finds the next receive (send). */
void mcast_resume_next_grant(struct mcast_eng *e);
void mcast_resume_next_send(struct mcast_eng *e);
/* This member's table is final and may be sent. 0, -ENOMEM. */
int mcast_resume_own_table(struct mcast_eng *e);

/* The number of blocks of an object of `size` bytes. */
uint32_t mcast_resume_blocks(const struct mcast_eng *e, uint64_t size);

/* tables.c: a HAVE, RUN or SUM has come. */
void mcast_resume_record(struct mcast_eng *e, struct mcast_nb *nb,
			 const struct mcast_rec *rec);
/* Sends records. Returns how many. */
int mcast_resume_say(struct mcast_eng *e);
/* Is there one to send? */
bool mcast_resume_says(const struct mcast_eng *e);

/* stream.c: fill() reads what is there. */
bool mcast_resume_reading(const struct mcast_eng *e);
bool mcast_resume_read_works(const struct mcast_eng *e);
int mcast_resume_read(struct mcast_eng *e);
void mcast_resume_read_done(struct mcast_eng *e, uint32_t block, int status);
/* The next send for which fill() supplies the block; may it be asked for
 * now? */
void mcast_resume_next_feed(struct mcast_eng *e);
bool mcast_resume_may_feed(const struct mcast_eng *e);

#endif
