/* SPDX-License-Identifier: MIT */
/*
 * send.h - steps of the calling end's sending side, inline: send.c
 * uses them, and lane_client.c for a thread that leads a lane and sends its
 * call alone. Each step costs less than a call of a function. client.h says to
 * which thread the sending side belongs.
 */
#ifndef SKEIN_RPC_CLIENT_SEND_H
#define SKEIN_RPC_CLIENT_SEND_H

#include "base/assert.h"
#include "rpc/client/client.h"

#define HDR_LEN ((uint32_t)sizeof(struct rpc_hdr))
#define META_LEN ((uint32_t)sizeof(struct rpc_req_meta))

static inline uint64_t req_off(const struct rpc_client_tx *tx, uint64_t pos)
{
	return rpc_geom_req(&tx->port->geom) +
	       (pos & (tx->port->geom.req_lines - 1)) * RPC_LINE;
}

/* How long the open message may become, by the Head known here. */
static inline void open_measure(struct rpc_client_tx *tx)
{
	const struct rpc_geom *g = &tx->port->geom;
	uint64_t free = g->req_lines - (tx->req_tail - tx->req_head);
	uint64_t max = tx->port->msg_max;

	/* A peer may lie about Head after a message was sealed, and before its
	 * post failed. It harms its own ring only. */
	if (free > g->req_lines)
		free = g->req_lines;
	if (free * RPC_LINE < max)
		max = free * RPC_LINE;
	if (tx->open_alone)
		max = tx->open_len + RPC_TAIL_LEN;
	tx->open_max = (uint32_t)max;
}

static inline void open_begin(struct rpc_client_tx *tx)
{
	tx->open = tx->port->base + req_off(tx, tx->req_tail);
	tx->open_len = HDR_LEN;
	tx->open_count = 0;
	tx->open_alone = false;
	open_measure(tx);
}

/* Counters of leaders; other threads read them at any time. */
static inline void count_more(uint64_t *n, uint64_t more)
{
	__atomic_store_n(n, *n + more, __ATOMIC_RELAXED);
}

/* lines: rpc_client_resp_lines() of its result. */
static inline void add_pair(struct rpc_client *c,
			    const struct rpc_client_req *r, const void *payload,
			    uint32_t size, uint16_t flags, uint32_t lines)
{
	rpc_client_add_pair(&c->tx, r->id, r->thread, payload, size, flags,
			    r->resp_max, lines, r->timeout_ns, r->done, r->arg);
}

/* What responses may name from now on. Release pairs with the acquires in
 * client.c: the message is posted after this store, so an owner that sees the
 * response also sees this value. */
static inline void tell_valid(struct rpc_client *c, uint64_t tail, uint32_t len)
{
	struct rpc_client_tx *tx = &c->tx;

	atomic_store_explicit(&c->published.valid, tail, memory_order_release);
	atomic_store_explicit(&c->published.req_valid,
			      rpc_pos_next(tx->port->geom.req_lines,
					   tx->req_tail, RPC_LINES(len)),
			      memory_order_release);
}

static inline void seal_open(struct rpc_client_tx *tx, uint32_t len,
			     uint64_t resp_head)
{
	rpc_msg_seal(tx->open, len, tx->open_count, (uint32_t)resp_head,
		     rpc_canary(&tx->port->secret_out, tx->req_tail),
		     tx->port->tail_out);
}

static inline void lane_seal(struct rpc_client *c, uint64_t *off, uint32_t *len)
{
	struct rpc_client_tx *tx = &c->tx;
	uint32_t n = tx->open_len + RPC_TAIL_LEN;

	skein_assert_debug(tx->open_count);
	tell_valid(c, tx->tail, n);
	/* The Head of the response space as known last. An old one delays
	 * nothing but the release of the server's large results, and for those
	 * the owner sends a message of its own. To load the newest one would
	 * cost every message a cache miss. */
	seal_open(tx, n, tx->resp_head);
	*off = req_off(tx, tx->req_tail);
	*len = n;
}

/* The sealed message was posted. */
static inline void message_sent(struct rpc_client *c)
{
	struct rpc_client_tx *tx = &c->tx;

	/* the value that tell_valid() has stored */
	tx->req_tail = atomic_load_explicit(&c->published.req_valid,
					    memory_order_relaxed);
	/* Release pairs with the acquire in rpc_client_end(). */
	atomic_store_explicit(&c->published.sent, tx->tail,
			      memory_order_release);
	tx->posted_resp = tx->resp_tail;
	open_begin(tx);
}

/* A call that leaves alone in its message. Before the post nothing of the
 * sending side is changed but what responses may name. */
struct rpc_alone {
	uint64_t off;	    /* of the message */
	uint32_t len;	    /* of the message */
	uint64_t resp_tail; /* end of its reservation */
};

/* add() and seal() in one. False: there may be no room, and nothing was
 * done. */
static inline bool rpc_client_add_alone(struct rpc_client *c,
					const struct rpc_client_req *r,
					struct rpc_alone *a)
{
	struct rpc_client_tx *tx = &c->tx;
	const struct rpc_port *port = tx->port;
	uint32_t lines = rpc_client_resp_lines(c, r->resp_max);
	uint64_t pos = tx->req_tail;

	skein_assert_debug(!tx->open_count && tx->open_len == HDR_LEN);
	if (__builtin_expect(!rpc_client_fits(tx, r->len, lines), 0))
		return false;
	a->len = HDR_LEN + META_LEN + RPC_PAD8((uint32_t)r->len) + RPC_TAIL_LEN;
	a->off = req_off(tx, pos);
	a->resp_tail = rpc_pos_next(tx->resp_mask + 1, tx->resp_tail, lines);
	rpc_client_put_pair(tx, tx->tail, tx->resp_tail, tx->open + HDR_LEN,
			    r->id, r->thread, r->payload, (uint32_t)r->len,
			    rpc_client_return(tx, r->id, r->resp_max),
			    r->resp_max, lines, r->timeout_ns, r->done, r->arg);
	tell_valid(c, tx->tail + 1, a->len);
	rpc_msg_seal(tx->open, a->len, 1, (uint32_t)tx->resp_head,
		     rpc_canary(&port->secret_out, pos), port->tail_out);
	return true;
}

/* The message was not posted. */
static inline void rpc_client_undo_alone(struct rpc_client *c)
{
	atomic_store_explicit(&c->published.valid, c->tx.tail,
			      memory_order_release);
	atomic_store_explicit(&c->published.req_valid, c->tx.req_tail,
			      memory_order_release);
}

/* The message was posted. */
static inline void rpc_client_posted_alone(struct rpc_client *c,
					   const struct rpc_alone *a)
{
	struct rpc_client_tx *tx = &c->tx;

	count_more(&tx->alone, 1);
	count_more(&tx->bytes, a->len);
	tx->tail++;
	tx->resp_tail = a->resp_tail;
	message_sent(c);
}

#endif
