/* SPDX-License-Identifier: MIT */
/*
 * quota.h - limits for a client of a node service, and for all clients of a
 * user. Counting only: no I/O, no clock.
 *
 * Thread rule: that of the service.
 */
#ifndef SKEIN_VQP_NODE_QUOTA_H
#define SKEIN_VQP_NODE_QUOTA_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

enum quota_kind {
	QUOTA_MEMORY,	/* bytes; a user's until peers have forgotten it */
	QUOTA_REQUESTS, /* on the engine */
	QUOTA_VQPS,
	QUOTA_PORTS,
	QUOTA_KINDS,
};

struct quota_user {
	struct list_node link; /* skein_node.users */
	uint32_t uid;
	uint64_t used[QUOTA_KINDS];
};

/* Of a client; all zero: no limit. */
struct quota {
	const uint64_t *max; /* QUOTA_KINDS of them */
	unsigned user_times; /* a user may have max so many times */
	struct quota_user *user;
	uint64_t used[QUOTA_KINDS];
	unsigned refused; /* bits: 2 * kind, + 1 for the user's limit */
};

/* False: refused, nothing is counted. */
bool quota_take(struct quota *q, enum quota_kind kind, uint64_t n);
void quota_give(struct quota *q, enum quota_kind kind, uint64_t n);

#endif
