/* SPDX-License-Identifier: MIT */
/*
 * calls.c - the window of outstanding calls: the parts off the hot path.
 */
#include "base/assert.h"
#include "rpc/client/calls.h"

void rpc_calls_init(struct rpc_calls *c, struct rpc_call *slots, uint64_t n)
{
	skein_assert(n && !(n & (n - 1)));
	*c = (struct rpc_calls){
		.slots = slots, .mask = n - 1, .earliest_ns = UINT64_MAX};
}

void rpc_calls_see(struct rpc_calls *c, uint64_t now_ns, uint64_t end)
{
	uint64_t n = rpc_calls_head(c);
	struct rpc_call *call;

	/* Calls before head have ended, and their slots may be in use again.
	 * Calls before `seen` have their deadline. */
	if (n < c->seen)
		n = c->seen;
	for (; n != end; n++) {
		call = rpc_calls_at(c, n);
		call->deadline_ns += now_ns;
		if (call->deadline_ns < now_ns)
			call->deadline_ns = UINT64_MAX;
		if (call->deadline_ns < c->earliest_ns)
			c->earliest_ns = call->deadline_ns;
	}
	c->seen = end;
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
