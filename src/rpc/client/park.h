/* SPDX-License-Identifier: MIT */
/*
 * park.h - calls that left the window before their answer came. Pure but for
 * its memory.
 *
 * Answers may come in any order. A call that half a window of later ones have
 * overtaken would hold up the calls to come: so it is moved here, and its slot
 * is free. Calls are found by number; there are few.
 *
 * Thread rule: the owner of the connection's engine.
 */
#ifndef SKEIN_RPC_CLIENT_PARK_H
#define SKEIN_RPC_CLIENT_PARK_H

#include "rpc/client/calls.h"

struct skein_env;

struct rpc_parked {
	struct rpc_call call;
	uint32_t seq;
};

struct rpc_park {
	struct skein_env *env; /* NULL: there is no room */
	struct rpc_parked *at;
	uint32_t n, room;
};

/* False when memory is short. */
bool rpc_park_add(struct rpc_park *p, const struct rpc_call *call, uint64_t n);
/* The call of this number, or NULL. */
struct rpc_call *rpc_park_find(struct rpc_park *p, uint32_t seq);
/* The oldest call that is wanted, or NULL. */
struct rpc_call *rpc_park_match(struct rpc_park *p,
				const struct rpc_wanted *wanted);
/* Its answer has come. */
void rpc_park_del(struct rpc_park *p, struct rpc_call *call);
/* The next call, from *i on, with a deadline that has come: as
 * rpc_calls_expired(). */
struct rpc_call *rpc_park_expired(struct rpc_park *p, uint64_t now_ns,
				  uint32_t *i, uint64_t *earliest_ns);
void rpc_park_fini(struct rpc_park *p);

#endif
