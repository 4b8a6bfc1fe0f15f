/* SPDX-License-Identifier: MIT */
/*
 * large.h - a large payload on its way in: its receiver READs it in pieces,
 * some of them at a time (docs/protocol/rpc.md, section 5).
 *
 * Where the device copies in the poster's thread, an engine moves a bounded
 * number of bytes of large payloads in a round (conn/turn.h): so it serves its
 * other connections between two pieces. The object does no I/O.
 *
 * Thread rule: the owner of the connection's engine.
 */
#ifndef SKEIN_RPC_LARGE_H
#define SKEIN_RPC_LARGE_H

#include "conn/turn.h"
#include "rpc/port.h"

/* READs under way at a time, and bytes of one READ where the device does the
 * copying: more than a link holds. Elsewhere a piece is what a turn gives. */
#define RPC_PIECES 4u
#define RPC_PIECE (256u << 10)

struct rpc_pull;

struct rpc_pull_read {
	struct rpc_read rd;
	struct rpc_pull *pull;
};

struct rpc_pull {
	struct rpc_large from;
	struct rpc_buf *buf; /* NULL: there is nothing to bring */
	uint64_t posted;     /* bytes */
	unsigned begun, ended;
	bool on;
	bool starved; /* no memory for the next piece */
	int err;
	bool *look; /* set when a piece has come; may be NULL */
	struct rpc_pull_read reads[RPC_PIECES];
};

void rpc_pull_init(struct rpc_pull *p, bool *look);
/* Begins to bring all of p->from into buf. buf NULL: brings nothing, and err
 * says why. */
void rpc_pull_start(struct rpc_pull *p, struct rpc_buf *buf, int err);
/* Posts the READs that can be posted now: their number, or an error of the
 * port. */
int rpc_pull_post(struct rpc_pull *p, struct rpc_port *port);
/* The last READ has ended, or the last one before a failure: empties p. 0, with
 * the payload in *buf, now the caller's; or with *buf NULL and *err set; or an
 * error: the queue pair has failed. */
int rpc_pull_end(struct rpc_pull *p, struct rpc_port *port,
		 struct rpc_buf **buf, int *err);
/* No READ is under way any more. */
void rpc_pull_break(struct rpc_pull *p, struct rpc_port *port);

static inline bool rpc_pull_wants_post(const struct rpc_pull *p)
{
	return p->on && p->buf && !p->err && p->posted < p->from.len &&
	       p->begun - p->ended < RPC_PIECES;
}

/* Has rpc_pull_end() work? */
static inline bool rpc_pull_over(const struct rpc_pull *p)
{
	return p->on && p->begun == p->ended &&
	       (!p->buf || p->err || p->posted == p->from.len);
}

#endif
