/* SPDX-License-Identifier: MIT */
/*
 * calls.h - the window of outstanding calls, oldest first, and their
 * deadlines.
 *
 * Calls are numbered from 0 and never renumbered; [head, tail) are under way
 * or ended but still holding response space (dead: timed out). Answers come in
 * order, so the window is a ring of slots. Deadlines need no heap: earliest_ns
 * is a lower bound, lowered by each call with one comparison, and the window
 * is looked through only when that time has come. Pure.
 */
#ifndef SKEIN_RPC_CALLS_H
#define SKEIN_RPC_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include <skein/rpc.h>

/* One call under way. Half a line. */
struct rpc_call {
	skein_rpc_done_fn *done; /* NULL: dead, its end has been told */
	void *arg;
	uint64_t deadline_ns;
	uint32_t resp_max;
	uint16_t lines; /* of response space */
	uint16_t spare;
};
_Static_assert(sizeof(struct rpc_call) == 32 || sizeof(void *) != 8,
	       "half a line");

struct rpc_calls {
	struct rpc_call *slots;
	uint64_t mask; /* slots - 1 */
	uint64_t head, tail;
	uint64_t sent;	 /* those before it have left */
	uint64_t seen;	 /* those before it were made before the last round */
	uint64_t now_ns; /* of the last round */
	uint64_t earliest_ns; /* no deadline is before it */
};

/* A round this much after the last one: the calls made in between got their
 * deadline from a clock that was so much behind, and get the difference. */
#define RPC_CALLS_STALE_NS (100 * 1000ull)

static inline struct rpc_call *rpc_calls_at(struct rpc_calls *c, uint64_t n)
{
	return &c->slots[n & c->mask];
}

static inline bool rpc_calls_full(const struct rpc_calls *c)
{
	return c->tail - c->head > c->mask;
}

/* Not full. Returns the new call's number. */
static inline uint64_t rpc_calls_add(struct rpc_calls *c,
				     skein_rpc_done_fn *done, void *arg,
				     uint64_t timeout_ns, uint32_t resp_max,
				     uint16_t lines)
{
	struct rpc_call *call = rpc_calls_at(c, c->tail);
	uint64_t deadline = c->now_ns + timeout_ns;

	if (deadline < timeout_ns)
		deadline = UINT64_MAX;
	call->done = done;
	call->arg = arg;
	call->deadline_ns = deadline;
	call->resp_max = resp_max;
	call->lines = lines;
	if (deadline < c->earliest_ns)
		c->earliest_ns = deadline;
	return c->tail++;
}

/* slots: a power of two, zeroed or not; the caller's memory. */
void rpc_calls_init(struct rpc_calls *c, struct rpc_call *slots, uint64_t n,
		    uint64_t now_ns);

/* A round begins. */
void rpc_calls_round(struct rpc_calls *c, uint64_t now_ns);

/* The next call at or after *at whose deadline has come (then *at is its
 * number), alive. False: none; earliest_ns is exact again if the walk began at
 * head. Start a walk with *at = head and rpc_calls_walk(). */
void rpc_calls_walk(struct rpc_calls *c);
bool rpc_calls_expired(struct rpc_calls *c, uint64_t now_ns, uint64_t end,
		       uint64_t *at);

#endif
