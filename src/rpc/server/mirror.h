/* SPDX-License-Identifier: MIT */
/*
 * mirror.h - the answers that the serving end has built and not sent: the
 * caller READs them. docs/protocol/rpc.md, "Fetching and recall".
 *
 * A recall asks the server to send all of them. Answers that the caller has
 * taken are behind its Head by then, and are not sent.
 *
 * Thread rule: as server.h.
 */
#ifndef SKEIN_RPC_SERVER_MIRROR_H
#define SKEIN_RPC_SERVER_MIRROR_H

#include "rpc/port.h"

struct rpc_mirror_msg {
	uint32_t pos; /* low half of the position */
	uint32_t len;
};

struct rpc_mirror {
	uint64_t recalled; /* answers before this position are sent */
	bool resend;	   /* the built answers are to be sent */
	bool sums;	   /* our QP has no ordered_read */
	uint32_t mask, first, last;
	struct rpc_mirror_msg built[]; /* oldest first */
};

/* For a response space of so many lines; -> NULL without memory. */
struct rpc_mirror *rpc_mirror_new(struct skein_env *env, uint32_t resp_lines,
				  bool sums);

/* Closes the message at `at`, with its pairs in place: the caller can READ it
 * at pos from now on. req_head: Head of the request ring, and the header word's
 * upper half. 0, or -SKEIN_EPEER: the caller's Head is not where it must be. */
int rpc_mirror_seal(struct rpc_mirror *m, struct rpc_port *port, uint8_t *at,
		    uint64_t pos, uint32_t len, unsigned count,
		    uint64_t req_head, uint64_t caller_head);

/* A recall has come. end: the end of the last reservation. */
void rpc_mirror_recall(struct rpc_mirror *m, uint64_t end);
/* Sends the recalled answers. 0, -EAGAIN when some are left, or an error. */
int rpc_mirror_resend(struct rpc_mirror *m, struct rpc_port *port,
		      uint64_t caller_head);

#endif
