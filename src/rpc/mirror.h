/* SPDX-License-Identifier: MIT */
/*
 * mirror.h - the serving end's memory of the answers that it built and did not
 * send, for the caller to READ: docs/protocol/rpc.md, "Fetching and recall".
 *
 * A recall asks for all of them to be replied; those that the caller has taken
 * are behind its Head by then.
 *
 * Thread rule: as server.h.
 */
#ifndef SKEIN_RPC_MIRROR_H
#define SKEIN_RPC_MIRROR_H

#include "rpc/port.h"

struct rpc_mirror_msg {
	uint32_t pos; /* low half */
	uint32_t len;
};

struct rpc_mirror {
	uint64_t recalled; /* reservations before it are replied */
	bool resend;	   /* what was built is to be replied */
	bool sums;	   /* our QP has no ordered_read */
	uint32_t mask, first, last;
	struct rpc_mirror_msg built[]; /* oldest first */
};

/* For a response space of so many lines; -> NULL without memory. */
struct rpc_mirror *rpc_mirror_new(struct skein_env *env, uint32_t resp_lines,
				  bool sums);

/* The message at `at`, whose pairs are in place, can be fetched from now on, at
 * pos. req_head: Head of the request ring, and what follows it in the header. 0, or
 * -SKEIN_EPEER: the caller's Head is not where it must be. */
int rpc_mirror_seal(struct rpc_mirror *m, struct rpc_port *port, uint8_t *at,
		    uint64_t pos, uint32_t len, unsigned count,
		    uint64_t req_head, uint64_t caller_head);

/* A recall has come; end: behind the last reservation. */
void rpc_mirror_recall(struct rpc_mirror *m, uint64_t end);
/* Replies what it was asked for. 0, -EAGAIN when some is left, or an error. */
int rpc_mirror_resend(struct rpc_mirror *m, struct rpc_port *port,
		      uint64_t caller_head);

#endif
