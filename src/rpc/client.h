/* SPDX-License-Identifier: MIT */
/*
 * client.h - the calling end: gathers calls into messages, finds responses.
 *
 * Engine without I/O: bytes go through the port, time comes in with poll().
 * The request ring's bookkeeping is here (req_*), the response space's too
 * (resp_*), for the caller owns both reservations: docs/protocol/rpc.md,
 * sections 1, 3, 4 and 7.
 *
 * Invariants: req_head <= req_tail; the open message begins at req_tail and is
 * not counted in it. resp_head is the position reserved by call `head`,
 * resp_tail the one that the next call gets. Every call ends by done() exactly
 * once.
 *
 * Thread rule: the owner of the connection's engine.
 */
#ifndef SKEIN_RPC_CLIENT_H
#define SKEIN_RPC_CLIENT_H

#include "rpc/calls.h"
#include "rpc/port.h"

/* The READ of a large response. */
struct rpc_fetch {
	struct rpc_read rd;
	struct rpc_large from;
	struct rpc_buf *buf;
	enum {
		RPC_FETCH_NONE,
		RPC_FETCH_POST, /* to be posted */
		RPC_FETCH_WAIT, /* under way */
		RPC_FETCH_DONE, /* err and buf tell */
	} state;
	int err;
};

struct rpc_client {
	/* hot: making a call */
	struct rpc_port *port;
	uint8_t *open;	   /* the open message; built from req_tail on */
	uint32_t open_len; /* without tail */
	uint32_t open_max; /* bytes that it may have, tail included */
	uint32_t open_count;
	uint32_t resp_mask; /* S - 1 */
	uint64_t resp_tail;
	uint64_t resp_head;
	struct rpc_calls calls;

	/* hot: finding responses */
	const uint8_t *resp_base;
	uint64_t resp_canary; /* of resp_head */

	uint64_t req_head, req_tail;
	uint64_t req_head_told; /* the last Head in a response */
	uint32_t inline_max;	/* the largest request payload in a message */
	uint32_t resp_inline_max;
	bool owes_head;	 /* a large response was consumed, Head not told */
	bool open_alone; /* the open message takes no further pair */
	int broken;	 /* 0, or why */

	struct rpc_msg_in in; /* the response message being consumed */
	uint64_t in_lines;    /* reserved by its calls so far */
	uint32_t in_lap_left; /* lines from its start to the lap's end */

	struct rpc_fetch fetch;
	struct rpc_buf *large, **large_end; /* of requests, oldest first */
	struct rpc_read head_read;
	bool head_reading;
};

/* slots: the window's, a power of two. */
void rpc_client_init(struct rpc_client *c, struct rpc_port *port,
		     struct rpc_call *slots, uint64_t window, uint64_t now_ns);

/* As skein_rpc_call_async(). -EMSGSIZE for lengths beyond the limit, -ENOTCONN
 * when broken. */
int rpc_client_call(struct rpc_client *c, uint16_t id, const void *req,
		    size_t len, size_t resp_max, uint64_t timeout_ns,
		    skein_rpc_done_fn *done, void *arg);

/* Sends the open message. 0 or -EAGAIN, or an error of the port. */
int rpc_client_flush(struct rpc_client *c);

/* A round: responses, deadlines, flush. Returns what moved, or a negative
 * error: the connection must be broken. */
int rpc_client_poll(struct rpc_client *c, uint64_t now_ns);

/* Is a response there, or is something to be sent? For the look before a
 * sleep. */
bool rpc_client_has_work(const struct rpc_client *c);

/* Where the next response begins, when there is nothing to do but wait for it;
 * else NULL. */
static inline const struct rpc_hdr *rpc_client_expects(
	const struct rpc_client *c, uint64_t *canary)
{
	if (c->open_count || c->calls.head == c->calls.sent ||
	    c->fetch.state != RPC_FETCH_NONE)
		return NULL;
	*canary = c->resp_canary;
	return (const void *)(c->resp_base +
			      (c->resp_head & c->resp_mask) * RPC_LINE);
}

static inline bool rpc_client_busy(const struct rpc_client *c)
{
	return c->calls.head != c->calls.tail;
}

/* No port operation is under way any more: ends every call. */
void rpc_client_break(struct rpc_client *c, int err);

#endif
