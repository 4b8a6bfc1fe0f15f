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

/* Sends the open message. 0 or -EAGAIN, or an error of the port. */
int rpc_client_flush(struct rpc_client *c);

/* How many lines of response space a result of at most resp_max takes. */
static inline uint32_t rpc_client_resp_lines(const struct rpc_client *c,
					     size_t resp_max)
{
	uint32_t n = c->resp_inline_max;

	if (resp_max < n)
		n = (uint32_t)resp_max;
	n = (uint32_t)RPC_LINES(RPC_RESP_ROOM + RPC_PAD8(n));
	return n < RPC_RESP_LINES_MIN ? RPC_RESP_LINES_MIN : n;
}

/* There is room: writes the pair and enters the call into the window. size: of
 * what stands in the message. */
static inline void rpc_client_add_pair(struct rpc_client *c, uint16_t id,
				       const void *payload, uint32_t size,
				       uint16_t flags, size_t resp_max,
				       uint32_t lines, uint64_t timeout_ns,
				       skein_rpc_done_fn *done, void *arg)
{
	uint8_t *at = c->open + c->open_len;
	uint64_t seq;

	seq = rpc_calls_add(&c->calls, done, arg, timeout_ns,
			    (uint32_t)resp_max, (uint16_t)lines);
	rpc_msg_put_word(at, size | (uint64_t)id << 32);
	rpc_msg_put_word(at + 8, (uint32_t)seq | (uint64_t)resp_max << 32);
	rpc_msg_put_word(at + 16, (uint32_t)c->resp_tail |
					  (uint64_t)lines << 32 |
					  (uint64_t)flags << 48);
	at += sizeof(struct rpc_req_meta);
	rpc_copy_pad(at, payload, size);
	c->open_len += (uint32_t)sizeof(struct rpc_req_meta) + RPC_PAD8(size);
	c->open_count++;
	c->resp_tail = rpc_pos_next(c->resp_mask + 1, c->resp_tail, lines);
}

/* As skein_rpc_call_async(). -EMSGSIZE for lengths beyond the limit, -ENOTCONN
 * when broken. */
int rpc_client_call_any(struct rpc_client *c, uint16_t id, const void *req,
			size_t len, size_t resp_max, uint64_t timeout_ns,
			skein_rpc_done_fn *done, void *arg);

/* The same, with the common case first: there is room for everything. Inline,
 * for this is what an application does most. */
static inline int rpc_client_call(struct rpc_client *c, uint16_t id,
				  const void *req, size_t len, size_t resp_max,
				  uint64_t timeout_ns, skein_rpc_done_fn *done,
				  void *arg)
{
	uint32_t lines = rpc_client_resp_lines(c, resp_max);

	/* A broken connection has no room. */
	if (__builtin_expect(
		    len > c->inline_max || resp_max > SKEIN_RPC_LEN_MAX ||
			    c->open_len + sizeof(struct rpc_req_meta) +
					    RPC_PAD8(len) + RPC_TAIL_LEN >
				    c->open_max ||
			    c->resp_tail + lines - c->resp_head >
				    (uint64_t)c->resp_mask + 1 ||
			    rpc_calls_full(&c->calls),
		    0))
		return rpc_client_call_any(c, id, req, len, resp_max,
					   timeout_ns, done, arg);
	rpc_client_add_pair(c, id, req, (uint32_t)len, 0, resp_max, lines,
			    timeout_ns, done, arg);
	if (c->open_count >= c->port->batch_max)
		(void)rpc_client_flush(c); /* or with the next round */
	return 0;
}

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
