/* SPDX-License-Identifier: MIT */
/*
 * ledger.h - keeps the calls and the atomics that threads made on handles that
 * they share, and how each ended.
 *
 * A call names its client, its thread and its place among the calls of that
 * thread; so does its response. It ends exactly once, unless its process was
 * killed. It was executed once if it succeeded, never if it was not sent, at
 * most once in any case. Calls of one session (a thread on a handle) are
 * executed and answered in the order in which they were made, except calls that
 * a thread other than the dispatcher executes or answers.
 *
 * Each atomic adds one, so two that succeed never find the same value; each
 * swap brings in a value of its own, which at most one other swap replaces. The
 * final values of the words show that every atomic that succeeded was carried
 * out once, and every one with an unknown outcome at most once. Atomics keep
 * the order of real time: an atomic sees every atomic that had ended before it
 * began. The words end with their process: a new life begins with zeros.
 *
 * Pure: no I/O, and no memory of the simulated processes.
 */
#ifndef SKEIN_SIM_LEDGER_H
#define SKEIN_SIM_LEDGER_H

#include "sim/fifo.h"

#include <skein/skein.h>
#include <stddef.h>

#define LEDGER_CALLS 60000u
#define LEDGER_SESSIONS 20000u
#define LEDGER_LIVES 128u /* of servers' processes */
#define LEDGER_WORDS 2u	  /* of each kind, in a life */
#define LEDGER_ADDS 8192u /* to one word */
#define LEDGER_SWAPS 40000u
#define LEDGER_NONE UINT32_MAX

enum ledger_how {
	LEDGER_INLINE, /* by the dispatcher */
	LEDGER_POOL,   /* by a thread of a pool */
	LEDGER_LATER,  /* deferred: executed in order, answered in any */
	LEDGER_HOWS
};

/* A request and a response begin with this; the rest is a pattern of uid. */
struct ledger_tag {
	uint32_t uid, seq;
	uint32_t resp_len;
	uint16_t client, thread;
};

struct ledger_call {
	struct ledger_tag tag;
	uint8_t issued, done, executed, orphan;
	uint8_t how, outcome;
	int32_t status;
	uint32_t session; /* 0: none, and so no order */
};

struct ledger_session {
	struct fifo executed, answered;
};

enum ledger_outcome {
	LEDGER_DONE,
	LEDGER_NEVER,  /* it was not carried out, and never will be */
	LEDGER_UNKNOWN /* it may have been, or may yet be */
};

struct ledger_word {
	uint32_t ok, never, begun; /* adds */
	uint64_t least;		   /* that an add may find which begins now */
	uint64_t sum;		   /* in the end */
	uint8_t seen[LEDGER_ADDS / 8];
	uint32_t taken; /* the tick at which a swap had taken the zero away */
	uint64_t top;	/* in the end */
};

struct ledger_life {
	bool over;
	struct ledger_word words[LEDGER_WORDS];
};

/* Number v - 1 brings in v. */
struct ledger_swap {
	uint32_t life;
	uint32_t compare;
	uint8_t word;
	enum ledger_outcome outcome;
	uint32_t begun;	  /* the tick */
	uint32_t taken;	  /* the tick at which one that succeeded ended */
	bool maybe_taken; /* by an atomic with an unknown outcome */
};

struct ledger {
	struct report *rep;
	struct ledger_call calls[LEDGER_CALLS];
	struct ledger_session sessions[LEDGER_SESSIONS];
	struct ledger_life lives[LEDGER_LIVES];
	struct ledger_swap swaps[LEDGER_SWAPS];
	uint32_t n_calls, n_sessions, n_lives, n_swaps;
	uint32_t ticks;	     /* one for each begin and end of a swap */
	uint64_t atomics[3]; /* by outcome */
};

/* 0 when there are no more. */
uint32_t ledger_session(struct ledger *l);
/* A call is about to be made; resp_len has room for at least a tag. Returns its
 * uid, or LEDGER_NONE. */
uint32_t ledger_call(struct ledger *l, const struct ledger_tag *tag,
		     uint32_t session, enum ledger_how how);
/* The call was refused, so the ledger forgets it; the thread makes another
 * one. */
void ledger_call_refused(struct ledger *l, uint32_t uid);
/* Its len bytes, at least a tag's. */
void ledger_request(const struct ledger *l, uint32_t uid, void *buf,
		    size_t len);
/* A handler has got this request. Returns its uid, or LEDGER_NONE when the
 * bytes are no such request. */
uint32_t ledger_executed(struct ledger *l, const void *data, size_t len);
/* Its response, of tag.resp_len bytes. */
void ledger_response(const struct ledger *l, uint32_t uid, void *buf);
void ledger_ended(struct ledger *l, uint32_t uid,
		  const struct skein_rpc_result *res, const void *data);
void ledger_client_killed(struct ledger *l, unsigned client);

/* A server's process begins. Returns the number of this life, from 1; 0: the
 * ledger has no room for more lives. */
uint32_t ledger_life(struct ledger *l);
/* The life ends with these sums and tops in its words. */
void ledger_life_over(struct ledger *l, uint32_t life, const uint64_t *sums,
		      const uint64_t *tops);
/* A fetch-and-add of 1 begins; the end of this atomic needs *least. False:
 * there were enough adds. */
bool ledger_add(struct ledger *l, uint32_t life, unsigned word,
		uint64_t *least);
void ledger_add_ended(struct ledger *l, uint32_t life, unsigned word,
		      enum ledger_outcome outcome, uint64_t least,
		      uint64_t old);
/* A compare-and-swap of `compare` begins. Returns the new value; 0: there were
 * enough swaps. */
uint64_t ledger_swap(struct ledger *l, uint32_t life, unsigned word,
		     uint64_t compare);
void ledger_swap_ended(struct ledger *l, uint64_t value,
		       enum ledger_outcome outcome, uint64_t old);

/* Judges all calls and atomics once they have ended. memory: allocations were
 * made to fail. */
void ledger_judge(struct ledger *l, bool memory);
void ledger_figures(const struct ledger *l);

#endif
