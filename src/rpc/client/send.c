/* SPDX-License-Identifier: MIT */
/*
 * send.c - the sending side of the calling end: docs/protocol/rpc.md,
 * sections 1, 2, 3 and 7.
 *
 * Thread rule: the thread that leads the combiner or holds the send queue:
 * client.h.
 */
#include <errno.h>

#include "rpc/client/send.h"

/* Reads how far the owner's side is. Acquire pairs with the owner's releases:
 * what the owner has consumed it reads no more, be it a slot, a response or
 * (through the server's Head) the mirror of a request. */
static void look_at_owner(struct rpc_client *c)
{
	struct rpc_client_tx *tx = &c->tx;

	tx->req_head =
		atomic_load_explicit(&c->rx.req_head, memory_order_acquire);
	tx->resp_head =
		atomic_load_explicit(&c->rx.resp_head, memory_order_acquire);
	tx->head =
		atomic_load_explicit(&c->rx.calls.head, memory_order_acquire);
	if (!c->rx.broken)
		open_measure(tx);
}

/* The ring looks full, and the owner has had no newer Head from the server for
 * a while: asks the owner to READ the Head. */
static int read_head(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	uint64_t was;
	int rc;

	was = atomic_load_explicit(&rx->req_head, memory_order_relaxed);
	if (was == c->tx.req_tail) { /* all is read: there is room */
		atomic_store_explicit(&c->published.full, false,
				      memory_order_relaxed);
		return 0;
	}
	rc = rx->port->ops->read_head(rx->port, &rx->head_read);
	if (rc)
		return rc;
	rx->head_reading = true;
	rx->head_was = was;
	rx->port->stats.head_reads++;
	rx->port->stats.reads++;
	return 1;
}

static int ring_full(struct rpc_client *c)
{
	count_more(&c->tx.port->stats.full, 1);
	/* The owner sees this in its next round; the thread that lacks room
	 * wakes it. */
	atomic_store_explicit(&c->published.full, true, memory_order_relaxed);
	rpc_client_want_look(c);
	return -EAGAIN;
}

static bool open_fits(struct rpc_client *c, uint32_t len)
{
	if (len <= c->tx.open_max)
		return true;
	look_at_owner(c);
	return len <= c->tx.open_max;
}

/* Owner, holding: seals the open message and sends it by the port. */
static inline int open_send(struct rpc_client *c, uint32_t len, uint16_t flags)
{
	struct rpc_client_tx *tx = &c->tx;
	struct rpc_port *port = tx->port;
	uint64_t resp_head;
	int rc;

	resp_head =
		atomic_load_explicit(&c->rx.resp_head, memory_order_relaxed);
	tell_valid(c, tx->tail, len);
	/* no leader sends an older one from now on */
	tx->resp_head = resp_head;
	tx->open_count |= (uint32_t)flags << 16;
	seal_open(tx, len, resp_head);
	tx->open_count &= UINT16_MAX;
	rc = rpc_port_send(port, req_off(tx, tx->req_tail), len);
	if (__builtin_expect(rc != 0, 0))
		return rc;
	port->stats.calls += tx->open_count;
	c->rx.owes_head = false;
	message_sent(c);
	return 0;
}

/* Is there a slot, and room for the response? */
static int check_window(struct rpc_client *c, uint32_t lines)
{
	struct rpc_client_tx *tx = &c->tx;
	uint64_t space = (uint64_t)tx->resp_mask + 1;

	if (tx->tail - tx->head <= tx->mask &&
	    tx->resp_tail + lines - tx->resp_head <= space)
		return 0;
	look_at_owner(c);
	if (tx->tail - tx->head > tx->mask)
		return -EAGAIN;
	if (tx->resp_tail + lines - tx->resp_head <= space)
		return 0;
	count_more(&tx->port->stats.full, 1);
	return -EAGAIN;
}

/* Puts the payload into registered memory, and its descriptor into a message of
 * its own. There is room for the message. */
static int add_large(struct rpc_client *c, const struct rpc_client_req *r)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_large desc;
	struct rpc_buf *buf;

	buf = rx->port->ops->buf_get(rx->port, r->len, false);
	if (!buf)
		return -ENOMEM;
	memcpy(buf->addr, r->payload, r->len);
	buf->mark = c->tx.tail;
	buf->next = NULL;
	*rx->large_end = buf;
	rx->large_end = &buf->next;
	(void)rpc_client_return(&c->tx, r->id, 0); /* notes the id */
	desc = (struct rpc_large){.addr = (uint64_t)(uintptr_t)buf->addr,
				  .len = r->len,
				  .rkey = buf->rkey,
				  .region = buf->region};
	add_pair(c, r, &desc, sizeof(desc), RPC_REQ_LARGE,
		 rpc_client_resp_lines(c, r->resp_max));
	c->tx.open_alone = true;
	open_measure(&c->tx);
	return 0;
}

/* --- how results come ---------------------------------------------------- */

uint16_t rpc_client_return_any(struct rpc_client_tx *tx, uint16_t id,
			       size_t resp_max)
{
	uint64_t n = tx->tail;
	uint16_t flags = 0;

	if (tx->mode_of) {
		tx->mode_of[n & tx->mask] = RPC_MODE_OF(id);
		/* Each turn asks at another place, so that of several ids that
		 * alternate each one is asked about. */
		if ((n ^ n / RPC_TIME_ASKS) % RPC_TIME_ASKS == 0)
			flags = tx->asks;
	}
	if (resp_max <= RPC_FETCH_LEN_MAX && tx->fetch_ids & RPC_MODE_BIT(id))
		flags |= RPC_REQ_FETCH;
	return flags;
}

/* --- by the leader ------------------------------------------------------- */

/* rpc_client_fits() saw no room. Is there room by the owner's newest values? 0
 * or -EAGAIN. */
static int lane_room(struct rpc_client *c, size_t len, uint32_t lines)
{
	uint32_t need = META_LEN + RPC_PAD8((uint32_t)len) + RPC_TAIL_LEN;
	struct rpc_client_tx *tx = &c->tx;
	int rc = check_window(c, lines);

	if (rc || open_fits(c, tx->open_len + need))
		return rc;
	/* Other calls may fill the open message: then the next message has
	 * room. */
	return tx->open_count ? -EAGAIN : ring_full(c);
}

int rpc_client_add(struct rpc_client *c, const struct rpc_client_req *r)
{
	uint32_t lines = rpc_client_resp_lines(c, r->resp_max);
	int rc;

	skein_assert_debug(r->len <= c->tx.inline_max);
	if (__builtin_expect(!rpc_client_fits(&c->tx, r->len, lines), 0)) {
		rc = lane_room(c, r->len, lines);
		if (rc)
			return rc;
	}
	add_pair(c, r, r->payload, (uint32_t)r->len,
		 rpc_client_return(&c->tx, r->id, r->resp_max), lines);
	return 0;
}

int rpc_client_add_place(struct rpc_client *c, const struct rpc_client_req *r,
			 void **place)
{
	uint32_t lines = rpc_client_resp_lines(c, r->resp_max);
	uint32_t size = (uint32_t)r->len;
	struct rpc_client_tx *tx = &c->tx;
	uint8_t *at;
	int rc = 0;

	if (!rpc_client_fits(tx, size, lines))
		rc = lane_room(c, size, lines);
	if (rc)
		return rc;
	at = tx->open + tx->open_len;
	add_pair(c, r, NULL, 0, rpc_client_return(tx, r->id, r->resp_max),
		 lines);
	rpc_msg_put_word(at, size | (uint64_t)r->id << 32 |
				     (uint64_t)r->thread << 48);
	*place = tx->open + tx->open_len;
	tx->open_len += RPC_PAD8(size);
	if (size & 7)
		rpc_msg_put_word(tx->open + tx->open_len - 8, 0);
	return 0;
}

void rpc_client_seal(struct rpc_client *c, uint64_t *off, uint32_t *len)
{
	lane_seal(c, off, len);
}

static void roll_back(struct rpc_client *c)
{
	struct rpc_client_tx *tx = &c->tx;

	tx->tail =
		atomic_load_explicit(&c->published.sent, memory_order_relaxed);
	tx->resp_tail = tx->posted_resp;
	atomic_store_explicit(&c->published.valid, tx->tail,
			      memory_order_release);
	atomic_store_explicit(&c->published.req_valid, tx->req_tail,
			      memory_order_release);
	open_begin(tx);
}

void rpc_client_posted(struct rpc_client *c, int rc)
{
	struct rpc_client_tx *tx = &c->tx;
	uint32_t len = tx->open_len + RPC_TAIL_LEN;

	if (!tx->open_count)
		return;
	if (rc) {
		roll_back(c);
		return;
	}
	count_more(&tx->calls, tx->open_count);
	count_more(&tx->messages, 1);
	count_more(&tx->bytes, len);
	message_sent(c);
}

int rpc_client_add_large(struct rpc_client *c, const struct rpc_client_req *r)
{
	struct rpc_client_rx *rx = &c->rx;
	uint32_t len = META_LEN + sizeof(struct rpc_large);
	bool large = r->len > c->tx.inline_max;
	struct rpc_buf **end = rx->large_end;
	int rc;

	rc = check_window(c, rpc_client_resp_lines(c, r->resp_max));
	if (!large)
		len = META_LEN + RPC_PAD8((uint32_t)r->len);
	if (!rc && !open_fits(c, HDR_LEN + len + RPC_TAIL_LEN))
		rc = ring_full(c);
	if (!rc && large)
		rc = add_large(c, r);
	else if (!rc)
		add_pair(c, r, r->payload, (uint32_t)r->len,
			 rpc_client_return(&c->tx, r->id, r->resp_max) &
				 RPC_REQ_TIME,
			 rpc_client_resp_lines(c, r->resp_max));
	if (rc)
		return rc;
	rc = open_send(c, c->tx.open_len + RPC_TAIL_LEN, 0);
	if (rc && large) {
		rx->port->ops->buf_put(rx->port, *end);
		*end = NULL;
		rx->large_end = end;
	}
	if (rc)
		roll_back(c);
	return rc;
}

bool rpc_client_bare_fits(struct rpc_client *c)
{
	if (open_fits(c, HDR_LEN + RPC_TAIL_LEN))
		return true;
	ring_full(c);
	return false;
}

/* It carries the Head of the response space, which no other message carries
 * now. */
int rpc_client_send_bare(struct rpc_client *c, uint16_t flags)
{
	uint32_t len = HDR_LEN + RPC_TAIL_LEN;
	int rc;

	if (!rpc_client_bare_fits(c))
		return 0;
	rc = open_send(c, len, flags);
	if (rc)
		roll_back(c);
	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	return 1;
}

int rpc_client_send_own(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	int rc, moved = 0;

	if (rx->broken)
		return 0;
	if (rpc_pull_wants_post(&rx->pull)) {
		rc = rpc_pull_post(&rx->pull, rx->port);
		if (rc < 0)
			return rc;
		moved += rc;
	}
	if (rpc_rfetch_wants_send(&rx->rf)) {
		rc = rpc_rfetch_send(c);
		if (rc < 0)
			return rc;
		moved += rc;
	}
	if (rx->owes_head) {
		rc = rpc_client_send_bare(c, 0);
		if (rc < 0)
			return rc;
		moved += rc;
	}
	if (rpc_client_head_next(c) <= rx->calls.now_ns) {
		rc = read_head(c);
		if (rc < 0)
			return rc == -EAGAIN ? moved : rc;
		moved += rc;
	}
	return moved;
}

/* --- life --------------------------------------------------------------- */

void rpc_client_tx_init(struct rpc_client *c, struct rpc_port *port,
			struct rpc_call *slots, uint64_t window)
{
	struct rpc_client_tx *tx = &c->tx;

	*tx = (struct rpc_client_tx){
		.port = port,
		.resp_mask = port->geom.resp_lines - 1,
		.slots = slots,
		.mask = window - 1,
		.inline_max = port->msg_max - (uint32_t)RPC_REQ_ROOM,
		.resp_inline_max = port->resp_inline_max,
	};
	open_begin(tx);
}

void rpc_client_start_at(struct rpc_client *c, uint64_t pos)
{
	struct rpc_client_tx *tx = &c->tx;
	struct rpc_client_rx *rx = &c->rx;

	tx->req_head = tx->req_tail = pos;
	tx->resp_head = tx->resp_tail = tx->posted_resp = pos;
	open_begin(tx);
	atomic_store(&c->published.req_valid, pos);
	atomic_store(&rx->req_head, pos);
	rx->req_head_seen = pos;
	atomic_store(&rx->resp_head, pos);
	rx->resp_canary = rpc_canary(&rx->port->secret_in, pos);
}
