/* SPDX-License-Identifier: MIT */
/*
 * client.c - the calling end: docs/protocol/rpc.md, sections 1 to 5 and 7.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/list.h"
#include "rpc/client.h"

/* Response messages consumed in one round, so that one connection with much to
 * say does not keep the others waiting. */
#define MSGS_PER_ROUND 64

#define HDR_LEN ((uint32_t)sizeof(struct rpc_hdr))
#define META_LEN ((uint32_t)sizeof(struct rpc_req_meta))

/* --- the open message --------------------------------------------------- */

static uint64_t req_off(const struct rpc_client *c, uint64_t pos)
{
	return rpc_geom_req(&c->port->geom) +
	       (pos & (c->port->geom.req_lines - 1)) * RPC_LINE;
}

/* How long the open message may become now. */
static void open_measure(struct rpc_client *c)
{
	const struct rpc_geom *g = &c->port->geom;
	uint64_t free = g->req_lines - (c->req_tail - c->req_head);
	uint64_t max = c->port->msg_max;

	if (free * RPC_LINE < max)
		max = free * RPC_LINE;
	if (c->open_alone)
		max = c->open_len + RPC_TAIL_LEN;
	c->open_max = (uint32_t)max;
}

static void open_begin(struct rpc_client *c)
{
	c->open = c->port->base + req_off(c, c->req_tail);
	c->open_len = HDR_LEN;
	c->open_count = 0;
	c->open_alone = false;
	open_measure(c);
}

static void head_advance(struct rpc_client *c, uint64_t pos)
{
	if (pos <= c->req_head)
		return;
	c->req_head = pos;
	open_measure(c);
}

/* Head as a response tells it: false when it cannot be. It may be behind one
 * that was READ, for the response was sealed before. */
static bool head_told(struct rpc_client *c, uint32_t wire)
{
	uint64_t pos = rpc_pos_extend(c->req_head_told, wire);

	if (pos > c->req_tail)
		return false;
	c->req_head_told = pos;
	head_advance(c, pos);
	return true;
}

static void head_read_done(struct rpc_read *rd, int err)
{
	struct rpc_client *c = container_of(rd, struct rpc_client, head_read);
	uint64_t pos;

	c->head_reading = false;
	if (err)
		return;
	memcpy(&pos, c->port->base + RPC_CTL_HEAD_DST, sizeof(pos));
	/* Nonsense is ignored: the next response must tell the truth. */
	if (pos <= c->req_tail)
		head_advance(c, pos);
}

/* The ring looks full: ask the server how far it is, unless we have. */
static int ring_full(struct rpc_client *c)
{
	int rc;

	c->port->stats.full++;
	if (c->head_reading || c->req_head == c->req_tail)
		return -EAGAIN;
	rc = c->port->ops->read_head(c->port, &c->head_read);
	if (!rc) {
		c->head_reading = true;
		c->port->stats.head_reads++;
		c->port->stats.reads++;
	}
	return -EAGAIN;
}

int rpc_client_flush(struct rpc_client *c)
{
	uint32_t len = c->open_len + RPC_TAIL_LEN;
	struct rpc_port *port = c->port;
	int rc;

	if (c->broken)
		return -ENOTCONN;
	if (!c->open_count && !c->owes_head)
		return 0;
	if (len > c->open_max)
		return ring_full(c);
	rpc_msg_seal(c->open, len, (uint16_t)c->open_count,
		     (uint32_t)c->resp_head,
		     rpc_canary(&port->secret_out, c->req_tail),
		     port->tail_out);
	rc = rpc_port_send(port, req_off(c, c->req_tail), len);
	if (rc)
		return rc;
	port->stats.calls += c->open_count;
	c->owes_head = false;
	c->calls.sent = c->calls.tail;
	c->req_tail =
		rpc_pos_next(port->geom.req_lines, c->req_tail, RPC_LINES(len));
	open_begin(c);
	return 0;
}

/* --- making a call ------------------------------------------------------ */

/* Room for one more pair of need bytes in the open message: 0 or -EAGAIN. */
static int make_room(struct rpc_client *c, uint32_t need)
{
	int rc;

	if (c->open_len + need + RPC_TAIL_LEN <= c->open_max)
		return 0;
	if (c->open_count) {
		rc = rpc_client_flush(c);
		if (rc)
			return rc;
	}
	if (c->open_len + need + RPC_TAIL_LEN <= c->open_max)
		return 0;
	return ring_full(c);
}

/* The payload goes into registered memory, a descriptor into the message,
 * which it has for itself. */
static int call_large(struct rpc_client *c, uint16_t id, const void *req,
		      size_t len, size_t resp_max, uint64_t timeout_ns,
		      skein_rpc_done_fn *done, void *arg)
{
	struct rpc_large desc;
	struct rpc_buf *buf;
	int rc;

	rc = rpc_client_flush(c);
	if (rc)
		return rc;
	rc = make_room(c, META_LEN + sizeof(desc));
	if (rc)
		return rc;
	buf = c->port->ops->buf_get(c->port, len);
	if (!buf)
		return -ENOMEM;
	memcpy(buf->addr, req, len);
	buf->mark = c->calls.tail;
	buf->next = NULL;
	*c->large_end = buf;
	c->large_end = &buf->next;
	desc = (struct rpc_large){.addr = (uint64_t)(uintptr_t)buf->addr,
				  .len = len,
				  .rkey = buf->rkey,
				  .region = buf->region};
	rpc_client_add_pair(c, id, &desc, sizeof(desc), RPC_REQ_LARGE, resp_max,
			    rpc_client_resp_lines(c, resp_max), timeout_ns,
			    done, arg);
	/* Failing now is no failure of the call: the message leaves with a
	 * later round, and takes nothing more. */
	c->open_alone = true;
	open_measure(c);
	(void)rpc_client_flush(c);
	return 0;
}

int rpc_client_call_any(struct rpc_client *c, uint16_t id, const void *req,
			size_t len, size_t resp_max, uint64_t timeout_ns,
			skein_rpc_done_fn *done, void *arg)
{
	uint32_t lines = rpc_client_resp_lines(c, resp_max);
	int rc;

	if (c->broken)
		return -ENOTCONN;
	if (rpc_calls_full(&c->calls))
		return -EAGAIN;
	if (c->resp_tail + lines - c->resp_head > (uint64_t)c->resp_mask + 1) {
		c->port->stats.full++;
		return -EAGAIN;
	}
	if (len > SKEIN_RPC_LEN_MAX || resp_max > SKEIN_RPC_LEN_MAX)
		return -EMSGSIZE;
	if (len > c->inline_max)
		return call_large(c, id, req, len, resp_max, timeout_ns, done,
				  arg);
	rc = make_room(c, META_LEN + RPC_PAD8((uint32_t)len));
	if (rc)
		return rc;
	rpc_client_add_pair(c, id, req, (uint32_t)len, 0, resp_max, lines,
			    timeout_ns, done, arg);
	if (c->open_count >= c->port->batch_max)
		(void)rpc_client_flush(c); /* or with the next round */
	return 0;
}

/* --- responses ---------------------------------------------------------- */

static const uint8_t *resp_at(const struct rpc_client *c, uint64_t pos)
{
	return c->resp_base + (pos & c->resp_mask) * RPC_LINE;
}

/* The oldest large request's memory, when the call that used it has ended. */
static void large_free(struct rpc_client *c, uint64_t before)
{
	struct rpc_buf *buf;

	while ((buf = c->large) && buf->mark < before) {
		c->large = buf->next;
		if (!c->large)
			c->large_end = &c->large;
		c->port->ops->buf_put(c->port, buf);
	}
}

/* Ends the oldest call, whose answer this is, and takes it off the window.
 * done() may make further calls, and may break the connection. */
static inline void call_answered(struct rpc_client *c, int status,
				 const void *data, uint32_t len)
{
	struct rpc_call *call = rpc_calls_at(&c->calls, c->calls.head);
	struct skein_rpc_result res = {SKEIN_DONE, status, data, len};
	skein_rpc_done_fn *done = call->done;
	void *arg = call->arg;

	c->calls.head++;
	if (__builtin_expect(c->large != NULL, 0))
		large_free(c, c->calls.head);
	if (!done)
		return; /* timed out long ago: nobody waits */
	if (__builtin_expect(status != 0, 0)) {
		res.data = NULL;
		res.len = 0;
	}
	done(arg, &res);
}

/* Where the message of the next response begins: moves over `lines`, the sum
 * of what its calls reserved. Reservations of one message adjoin, so next() of
 * the sum is that of the last call. */
static void resp_consumed(struct rpc_client *c)
{
	c->resp_head = rpc_pos_next(c->resp_mask + 1, c->resp_head,
				    (uint32_t)c->in_lines);
	c->resp_canary = rpc_canary(&c->port->secret_in, c->resp_head);
}

static void fetch_done(struct rpc_read *rd, int err)
{
	struct rpc_fetch *f = container_of(rd, struct rpc_fetch, rd);

	f->err = err;
	f->state = RPC_FETCH_DONE;
}

static int fetch_post(struct rpc_client *c)
{
	struct rpc_fetch *f = &c->fetch;
	int rc;

	rc = c->port->ops->read(c->port, f->buf, &f->from, &f->rd);
	if (rc == -EAGAIN)
		return 0;
	if (rc)
		return rc;
	c->port->stats.reads++;
	f->state = RPC_FETCH_WAIT;
	return 0;
}

static int fetch_begin(struct rpc_client *c, const void *payload)
{
	struct rpc_call *call = rpc_calls_at(&c->calls, c->calls.head);
	struct rpc_fetch *f = &c->fetch;
	int rc;

	rc = rpc_msg_large(payload, call->resp_max, &f->from);
	if (rc)
		return rc;
	f->err = 0;
	f->buf = NULL;
	f->rd.done = fetch_done;
	f->state = RPC_FETCH_DONE;
	if (!call->done)
		return 0; /* nobody waits for it */
	f->buf = c->port->ops->buf_get(c->port, f->from.len);
	if (!f->buf) {
		f->err = -ENOMEM;
		return 0;
	}
	f->state = RPC_FETCH_POST;
	return fetch_post(c);
}

/* The READ has ended: so does the call. */
static void fetch_end(struct rpc_client *c)
{
	struct rpc_fetch f = c->fetch;

	c->fetch.state = RPC_FETCH_NONE;
	c->fetch.buf = NULL;
	call_answered(c, f.err, f.buf ? f.buf->addr : NULL,
		      f.buf ? (uint32_t)f.from.len : 0);
	if (f.buf)
		c->port->ops->buf_put(c->port, f.buf);
	c->owes_head = true;
}

/* Consumes pairs: 1 when the message is finished, 0 when it waits for a READ
 * or the connection broke in a callback, or an error. */
static int consume_pairs(struct rpc_client *c)
{
	struct rpc_resp_meta meta;
	struct rpc_call *call;
	const void *payload;
	uint64_t n;
	int rc;

	while (c->in.left) {
		n = c->calls.head;
		/* Not asked for; or reserved in the next lap, so that it does
		 * not adjoin. */
		if (__builtin_expect(n == c->calls.sent ||
					     c->in_lines >= c->in_lap_left,
				     0))
			return -SKEIN_EPEER;
		call = rpc_calls_at(&c->calls, n);
		rc = rpc_msg_next_resp(&c->in, call->resp_max, (uint32_t)n,
				       &meta, &payload);
		if (__builtin_expect(rc != 0, 0))
			return rc;
		c->in_lines += call->lines;
		if (__builtin_expect(meta.flags & RPC_RESP_LARGE, 0)) {
			rc = fetch_begin(c, payload);
			return rc;
		}
		call_answered(c, meta.status, payload, meta.size);
		if (__builtin_expect(c->broken != 0, 0))
			return 0;
	}
	return 1;
}

static int message_end(struct rpc_client *c)
{
	if (rpc_msg_end(&c->in) || c->in.len > c->in_lines * RPC_LINE)
		return -SKEIN_EPEER;
	resp_consumed(c);
	return 0;
}

/* The READ under way: 1 when the message behind it is finished. */
static int fetch_step(struct rpc_client *c)
{
	int rc;

	if (c->fetch.state == RPC_FETCH_POST) {
		rc = fetch_post(c);
		if (rc)
			return rc;
	}
	if (c->fetch.state != RPC_FETCH_DONE)
		return 0;
	if (c->fetch.err && c->fetch.buf)
		return c->fetch.err; /* the READ failed: so has the queue pair */
	fetch_end(c);
	if (c->broken)
		return 0;
	return message_end(c) ? -SKEIN_EPEER : 1;
}

/* Takes up the next response message: 1, 0 none, or an error. */
static int message_begin(struct rpc_client *c)
{
	uint32_t lap_left =
		c->resp_mask + 1 - ((uint32_t)c->resp_head & c->resp_mask);
	uint32_t room = (lap_left + c->port->geom.spill) * RPC_LINE;
	int rc;

	rc = rpc_msg_poll(&c->in, resp_at(c, c->resp_head), room,
			  c->resp_canary, c->port->tail_in);
	if (__builtin_expect(rc <= 0, 1))
		return rc;
	if (!c->in.count || !head_told(c, c->in.head))
		return -SKEIN_EPEER;
	c->in_lines = 0;
	c->in_lap_left = lap_left;
	c->port->stats.messages_received++;
	rpc_event_received(&c->port->event);
	return 1;
}

static int poll_responses(struct rpc_client *c)
{
	int rc, moved = 0;

	if (__builtin_expect(c->fetch.state != RPC_FETCH_NONE, 0)) {
		rc = fetch_step(c);
		if (rc <= 0)
			return rc;
		moved++;
	}
	while (moved < MSGS_PER_ROUND && c->calls.head != c->calls.sent) {
		rc = message_begin(c);
		if (rc <= 0)
			return rc ? rc : moved;
		moved++;
		rc = consume_pairs(c);
		if (rc <= 0)
			return rc ? rc : moved;
		if (message_end(c))
			return -SKEIN_EPEER;
	}
	return moved;
}

/* --- deadlines ---------------------------------------------------------- */

/* The pair of call n, which is in the open message, is not to be executed. */
static void withdraw(struct rpc_client *c, uint64_t n)
{
	struct rpc_req_meta *meta;
	uint32_t at = HDR_LEN;

	for (uint64_t i = c->calls.sent;; i++) {
		meta = (struct rpc_req_meta *)(void *)(c->open + at);
		if (i == n)
			break;
		at += META_LEN + RPC_PAD8(meta->size);
	}
	meta->flags |= RPC_REQ_SKIP;
}

static void call_dies(struct rpc_client *c, uint64_t n, int err)
{
	struct rpc_call *call = rpc_calls_at(&c->calls, n);
	struct skein_rpc_result res = {.outcome = SKEIN_UNKNOWN, .status = err};
	skein_rpc_done_fn *done = call->done;

	if (n >= c->calls.sent) {
		res.outcome = SKEIN_NOT_SENT;
		if (!c->broken)
			withdraw(c, n);
	}
	call->done = NULL;
	done(call->arg, &res);
}

static int poll_deadlines(struct rpc_client *c, uint64_t now_ns)
{
	uint64_t n = c->calls.head, end = c->calls.tail;
	int moved = 0;

	rpc_calls_walk(&c->calls);
	while (!c->broken && rpc_calls_expired(&c->calls, now_ns, end, &n)) {
		call_dies(c, n++, -ETIMEDOUT);
		moved++;
	}
	return moved;
}

/* --- rounds ------------------------------------------------------------- */

int rpc_client_poll(struct rpc_client *c, uint64_t now_ns)
{
	int rc, moved;

	if (__builtin_expect(c->broken != 0, 0))
		return 0;
	rpc_calls_round(&c->calls, now_ns);
	moved = poll_responses(c);
	if (moved < 0)
		return moved;
	if (__builtin_expect(now_ns >= c->calls.earliest_ns, 0))
		moved += poll_deadlines(c, now_ns);
	if (c->open_count | c->owes_head) {
		rc = rpc_client_flush(c);
		if (rc && rc != -EAGAIN)
			return c->broken ? 0 : rc;
		moved += !rc;
	}
	return moved;
}

bool rpc_client_has_work(const struct rpc_client *c)
{
	const struct rpc_hdr *hdr;

	if (c->open_count || c->owes_head)
		return true;
	if (c->fetch.state != RPC_FETCH_NONE)
		return c->fetch.state != RPC_FETCH_WAIT;
	if (c->calls.head == c->calls.sent)
		return false;
	hdr = (const void *)resp_at(c, c->resp_head);
	/* Acquire for the same reason as in rpc_msg_poll(); that a message is
	 * not missed is argued in section 8 and needs no order here. */
	return __atomic_load_n(&hdr->canary, __ATOMIC_ACQUIRE) ==
	       c->resp_canary;
}

void rpc_client_break(struct rpc_client *c, int err)
{
	uint64_t n;

	if (c->broken)
		return;
	c->broken = err;
	c->open_max = 0;
	for (n = c->calls.head; n < c->calls.tail; n++)
		if (rpc_calls_at(&c->calls, n)->done)
			call_dies(c, n, err);
	c->calls.head = c->calls.sent = c->calls.tail;
	if (c->fetch.buf)
		c->port->ops->buf_put(c->port, c->fetch.buf);
	c->fetch.buf = NULL;
	c->fetch.state = RPC_FETCH_NONE;
	large_free(c, UINT64_MAX);
}

void rpc_client_init(struct rpc_client *c, struct rpc_port *port,
		     struct rpc_call *slots, uint64_t window, uint64_t now_ns)
{
	const struct rpc_geom *g = &port->geom;

	memset(c, 0, sizeof(*c));
	c->port = port;
	c->resp_mask = g->resp_lines - 1;
	c->resp_base = port->base + rpc_geom_resp(g);
	c->resp_canary = rpc_canary(&port->secret_in, 0);
	c->inline_max = port->msg_max - (uint32_t)RPC_REQ_ROOM;
	c->resp_inline_max = port->resp_inline_max;
	c->large_end = &c->large;
	c->head_read.done = head_read_done;
	rpc_calls_init(&c->calls, slots, window, now_ns);
	open_begin(c);
}
