/* SPDX-License-Identifier: MIT */
/*
 * park.c - calls that left the window before their answer came.
 */
#include "rpc/client/park.h"

#include "base/list.h"
#include "env/env.h"

#define ROOM_FIRST 16u

static bool grow(struct rpc_park *p)
{
	uint32_t room = p->room ? 2 * p->room : ROOM_FIRST;
	struct rpc_parked *at;

	at = p->env ? env_alloc(p->env, room * sizeof(*at)) : NULL;
	if (!at)
		return false;
	for (uint32_t i = 0; i < p->n; i++)
		at[i] = p->at[i];
	env_free(p->env, p->at);
	p->at = at;
	p->room = room;
	return true;
}

bool rpc_park_add(struct rpc_park *p, const struct rpc_call *call, uint64_t n)
{
	if (p->n == p->room && !grow(p))
		return false;
	p->at[p->n++] = (struct rpc_parked){*call, (uint32_t)n};
	return true;
}

struct rpc_call *rpc_park_find(struct rpc_park *p, uint32_t seq)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->at[i].seq == seq)
			return &p->at[i].call;
	return NULL;
}

struct rpc_call *rpc_park_match(struct rpc_park *p,
				const struct rpc_wanted *wanted)
{
	struct rpc_parked *oldest = NULL, *at;

	for (at = p->at; at != p->at + p->n; at++)
		if (wanted->is(wanted, at->call.done, at->call.arg) &&
		    (!oldest || (int32_t)(at->seq - oldest->seq) < 0))
			oldest = at;
	return oldest ? &oldest->call : NULL;
}

void rpc_park_del(struct rpc_park *p, struct rpc_call *call)
{
	*container_of(call, struct rpc_parked, call) = p->at[--p->n];
}

struct rpc_call *rpc_park_expired(struct rpc_park *p, uint64_t now_ns,
				  uint32_t *i, uint64_t *earliest_ns)
{
	struct rpc_call *call;

	for (; *i < p->n; ++*i) {
		call = &p->at[*i].call;
		if (!call->done)
			continue;
		if (call->deadline_ns <= now_ns)
			return call;
		if (call->deadline_ns < *earliest_ns)
			*earliest_ns = call->deadline_ns;
	}
	return NULL;
}

void rpc_park_fini(struct rpc_park *p)
{
	if (p->env)
		env_free(p->env, p->at);
	*p = (struct rpc_park){.env = p->env};
}
