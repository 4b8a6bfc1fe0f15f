/* SPDX-License-Identifier: MIT */
/*
 * calls.c - the window of outstanding calls: what is off the hot path.
 */
#include "base/assert.h"
#include "rpc/calls.h"

void rpc_calls_init(struct rpc_calls *c, struct rpc_call *slots, uint64_t n,
		    uint64_t now_ns)
{
	skein_assert(n && !(n & (n - 1)));
	*c = (struct rpc_calls){.slots = slots,
				.mask = n - 1,
				.now_ns = now_ns,
				.earliest_ns = UINT64_MAX};
}

static void add_time(struct rpc_call *call, uint64_t ns)
{
	if (call->deadline_ns > UINT64_MAX - ns)
		call->deadline_ns = UINT64_MAX;
	else
		call->deadline_ns += ns;
}

void rpc_calls_round(struct rpc_calls *c, uint64_t now_ns)
{
	uint64_t gap = now_ns - c->now_ns;

	if (now_ns <= c->now_ns)
		gap = 0;
	/* earliest_ns stays where it is: a lower bound still. */
	if (gap >= RPC_CALLS_STALE_NS)
		for (uint64_t n = c->seen; n < c->tail; n++)
			add_time(rpc_calls_at(c, n), gap);
	c->now_ns += gap;
	c->seen = c->tail;
}

void rpc_calls_walk(struct rpc_calls *c)
{
	c->earliest_ns = UINT64_MAX;
}

bool rpc_calls_expired(struct rpc_calls *c, uint64_t now_ns, uint64_t end,
		       uint64_t *at)
{
	struct rpc_call *call;
	uint64_t n;

	for (n = *at; n < end; n++) {
		call = rpc_calls_at(c, n);
		if (!call->done)
			continue;
		if (call->deadline_ns <= now_ns) {
			*at = n;
			return true;
		}
		if (call->deadline_ns < c->earliest_ns)
			c->earliest_ns = call->deadline_ns;
	}
	return false;
}
