/* SPDX-License-Identifier: MIT */
/*
 * calls.h - the window of outstanding calls, oldest first, and their deadlines.
 * Pure.
 *
 * Calls are numbered from 0 and never renumbered. [head, tail) are under way,
 * or ended and still holding response space (dead: timed out). Most answers
 * come in order, so the window is a ring of slots. tail and the slots from it
 * on are the sending side's (client.h); the slots that it has published are the
 * owner's.
 *
 * A call's time begins with the first round that sees it: the clock is read
 * once a round, and a thread that makes calls does not read it. Deadlines need
 * no heap: earliest_ns is a lower bound, lowered by each call with one
 * comparison, and the owner looks through the window only when that time has
 * come.
 */
#ifndef SKEIN_RPC_CLIENT_CALLS_H
#define SKEIN_RPC_CLIENT_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <skein/rpc.h>

/* One call under way. Half a line. */
struct rpc_call {
	skein_rpc_done_fn *done; /* NULL: dead, done() has run */
	void *arg;
	/* how long the call may take; once a round has seen it, when that time
	 * ends */
	uint64_t deadline_ns;
	uint32_t resp_max;
	uint16_t lines;	 /* of response space; and flags, below */
	uint16_t thread; /* number of the caller's thread record */
};
_Static_assert(sizeof(struct rpc_call) == 32 || sizeof(void *) != 8,
	       "half a line");

/* What a caller wants to cancel, and a test of whether a call is that. */
struct rpc_wanted {
	bool (*is)(const struct rpc_wanted *w, skein_rpc_done_fn *done,
		   const void *arg);
	skein_rpc_done_fn *done;
	const void *arg;
};

/* Answered before an older call: it waits in the window for that. */
#define RPC_CALL_ANSWERED (1u << 15)
/* The answer in this slot's reservation is fetched, unless it is recalled. */
#define RPC_CALL_FETCH (1u << 14)
#define RPC_CALL_LINES(call) ((call)->lines & (RPC_CALL_FETCH - 1))

/* The owner's side of the window. */
struct rpc_calls {
	struct rpc_call *slots;
	uint64_t mask; /* slots - 1 */
	/* Written by the owner alone: release, when it is through with the
	 * slots before it. The sending side acquires it before it uses them
	 * anew. */
	_Atomic(uint64_t) head;
	uint64_t seen;	      /* calls before this have their deadline */
	uint64_t now_ns;      /* of the round */
	uint64_t earliest_ns; /* no deadline is before it */
};

static inline struct rpc_call *rpc_calls_at(const struct rpc_calls *c,
					    uint64_t n)
{
	return &c->slots[n & c->mask];
}

/* The owner reads what it alone writes. */
static inline uint64_t rpc_calls_head(const struct rpc_calls *c)
{
	return atomic_load_explicit(&c->head, memory_order_relaxed);
}

/* n slots: a power of two, zeroed or not; the caller's memory. */
void rpc_calls_init(struct rpc_calls *c, struct rpc_call *slots, uint64_t n);

void rpc_calls_see(struct rpc_calls *c, uint64_t now_ns, uint64_t end);

/* A round begins. end: the owner looks at calls before this number. */
static inline void rpc_calls_round(struct rpc_calls *c, uint64_t now_ns,
				   uint64_t end)
{
	c->now_ns = now_ns;
	if (c->seen != end)
		rpc_calls_see(c, now_ns, end);
}

/* Call n is about to leave the window. It may have been made and overtaken in
 * this round. */
static inline void rpc_calls_leaves(struct rpc_calls *c, uint64_t n)
{
	if (n >= c->seen)
		rpc_calls_see(c, c->now_ns, n + 1);
}

/* The next live call at or after *at with a deadline that has come; *at becomes
 * its number. False: none; earliest_ns is exact again if the walk began at
 * head. A walk starts with *at = head and rpc_calls_walk(). */
void rpc_calls_walk(struct rpc_calls *c);
bool rpc_calls_expired(struct rpc_calls *c, uint64_t now_ns, uint64_t end,
		       uint64_t *at);

#endif
