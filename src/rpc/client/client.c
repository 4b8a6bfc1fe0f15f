/* SPDX-License-Identifier: MIT */
/*
 * client.c - the owner's side of the calling end: docs/protocol/rpc.md,
 * sections 2 to 5 and 7. client.h says what the two sides share.
 *
 * Thread rule: the engine's owner.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/list.h"
#include "rpc/client/client.h"

/* Response messages consumed in one round at most: one busy connection does not
 * keep the others waiting. */
#define MSGS_PER_ROUND 64

/* Time between two READs of Head. It doubles after each READ that finds the
 * Head unchanged: so a change is found at most twice as late as it came. */
#define HEAD_GAP_NS 5000u
#define HEAD_GAP_MAX_NS 1000000u

#define HDR_LEN ((uint32_t)sizeof(struct rpc_hdr))
#define META_LEN ((uint32_t)sizeof(struct rpc_req_meta))

/* --- Head of the request ring ------------------------------------------- */

/* The end of the last message that a response may name. */
static uint64_t req_valid(struct rpc_client *c)
{
	/* Acquire pairs with the release in tell_valid(). */
	return atomic_load_explicit(&c->published.req_valid,
				    memory_order_acquire);
}

static void head_advance(struct rpc_client_rx *rx, uint64_t pos)
{
	/* Release pairs with the acquire in look_at_owner(). */
	if (pos > atomic_load_explicit(&rx->req_head, memory_order_relaxed))
		atomic_store_explicit(&rx->req_head, pos, memory_order_release);
}

/* A thread that still lacks room sets `full` again. No READ follows at once:
 * the next response brings the Head sooner than a READ, most likely. */
static void head_moved(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;

	atomic_store_explicit(&c->published.full, false, memory_order_relaxed);
	rx->head_gap_ns = HEAD_GAP_NS;
	rx->head_ns = rx->calls.now_ns + HEAD_GAP_NS;
}

/* The READ found the Head unchanged. The server has no core, or much to do:
 * with a READ in each round this end would never give its own core away. */
static void head_stands(struct rpc_client_rx *rx)
{
	uint64_t gap = 2 * rx->head_gap_ns;

	gap = gap > HEAD_GAP_NS ? gap : HEAD_GAP_NS;
	rx->head_gap_ns = gap < HEAD_GAP_MAX_NS ? gap : HEAD_GAP_MAX_NS;
	rx->head_ns = rx->calls.now_ns + rx->head_gap_ns;
}

/* Takes the Head in a response. False: it cannot be. It may be behind a Head
 * that was READ, for the response was sealed earlier. */
static bool head_known(struct rpc_client *c, uint32_t wire)
{
	uint64_t pos = rpc_pos_extend(c->rx.req_head_seen, wire);

	if (pos > req_valid(c))
		return false;
	c->rx.req_head_seen = pos;
	head_advance(&c->rx, pos);
	if (atomic_load_explicit(&c->published.full, memory_order_relaxed))
		head_moved(c);
	return true;
}

static void head_read_done(struct rpc_read *rd, int err)
{
	struct rpc_client *c =
		container_of(rd, struct rpc_client, rx.head_read);
	uint64_t pos;

	c->rx.head_reading = false;
	if (err)
		return;
	memcpy(&pos, c->rx.port->base + RPC_CTL_HEAD_DST, sizeof(pos));
	/* A READ value beyond that is ignored: the next response must be
	 * right. */
	if (pos <= req_valid(c))
		head_advance(&c->rx, pos);
	if (atomic_load_explicit(&c->rx.req_head, memory_order_relaxed) ==
	    c->rx.head_was)
		head_stands(&c->rx);
	else
		head_moved(c);
}

/* --- responses ---------------------------------------------------------- */

static const uint8_t *resp_at(const struct rpc_client_rx *rx, uint64_t pos)
{
	return rx->resp_base + (pos & rx->resp_mask) * RPC_LINE;
}

static uint64_t resp_head(const struct rpc_client_rx *rx)
{
	return atomic_load_explicit(&rx->resp_head, memory_order_relaxed);
}

/* Frees the memory of the oldest large requests, when their calls have
 * ended. */
static void large_free(struct rpc_client_rx *rx, uint64_t before)
{
	struct rpc_buf *buf;

	while ((buf = rx->large) && buf->mark < before) {
		rx->large = buf->next;
		if (!rx->large)
			rx->large_end = &rx->large;
		rx->port->ops->buf_put(rx->port, buf);
	}
}

/* Reports an answered call to its caller. done() may make further calls, and
 * may break the connection. */
static inline void tell(skein_rpc_done_fn *done, void *arg, int status,
			const void *data, uint32_t len)
{
	struct skein_rpc_result res = {SKEIN_DONE, status, data, len};

	if (!done)
		return; /* the call timed out long ago */
	if (__builtin_expect(status != 0, 0)) {
		res.data = NULL;
		res.len = 0;
	}
	done(arg, &res);
}

/* Takes calls off the window: answered ones, and those that half a window of
 * later ones have overtaken. newest: the last call that was answered. It stops
 * at `used`: from there on the slots describe the reservations. Release pairs
 * with the acquire in look_at_owner(): the slots have been read. */
static void window_advance(struct rpc_client *c, uint64_t newest)
{
	struct rpc_calls *calls = &c->rx.calls;
	uint64_t n = rpc_calls_head(calls), half = (calls->mask + 1) / 2;
	struct rpc_park *park = &c->rx.park;
	struct rpc_call *call;

	for (; n != c->rx.used; n++) {
		call = rpc_calls_at(calls, n);
		if (call->lines & RPC_CALL_ANSWERED)
			continue;
		if (newest < n + half || park->n > calls->mask)
			break;
		rpc_calls_leaves(calls, n);
		if (!rpc_park_add(park, call, n))
			break;
	}
	atomic_store_explicit(&calls->head, n, memory_order_release);
}

/* Ends the call that this pair answers, whether or not it is the oldest. n: the
 * number of the call, if it is in the window. */
static void call_answered(struct rpc_client *c, struct rpc_call *call,
			  uint64_t n, int status, const void *data,
			  uint32_t len)
{
	skein_rpc_done_fn *done = call->done;
	void *arg = call->arg;

	/* The answer takes the oldest reservation, which may be another
	 * call's. */
	c->rx.used++;
	if (call == rpc_calls_at(&c->rx.calls, n)) {
		call->lines |= RPC_CALL_ANSWERED;
		call->done = NULL;
	} else {
		rpc_park_del(&c->rx.park, call);
		n = rpc_calls_head(&c->rx.calls);
	}
	window_advance(c, n);
	large_free(&c->rx, n + 1);
	tell(done, arg, status, data, len);
}

/* As call_answered(), for the common case: n is both head and used, and the
 * answer is plain. */
static inline void call_answered_in_turn(struct rpc_client *c, uint64_t n,
					 struct rpc_call *call,
					 const void *data, uint32_t len)
{
	skein_rpc_done_fn *done = call->done;
	void *arg = call->arg;

	c->rx.used = n + 1;
	/* Release as in window_advance(). */
	atomic_store_explicit(&c->rx.calls.head, n + 1, memory_order_release);
	if (__builtin_expect(c->rx.large != NULL, 0))
		large_free(&c->rx, n + 1);
	tell(done, arg, 0, data, len);
}

/* Moves to where the next response message begins: over `lines`, the sum of
 * what its calls reserved. Reservations of one message adjoin, so the position
 * after the sum is the position after the last call. */
static void resp_consumed(struct rpc_client_rx *rx)
{
	uint64_t pos = rpc_pos_next(rx->resp_mask + 1, resp_head(rx),
				    (uint32_t)rx->in_lines);

	/* Release pairs with the acquire in look_at_owner(): the bytes have
	 * been read. */
	atomic_store_explicit(&rx->resp_head, pos, memory_order_release);
	rx->resp_canary = rpc_canary(&rx->port->secret_in, pos);
}

/* Frees the result of a done() that did not return: the thread has ended in
 * it. */
static void drop_result(struct rpc_client_rx *rx)
{
	if (!rx->result_buf)
		return;
	rx->port->ops->buf_put(rx->port, rx->result_buf);
	rx->result_buf = NULL;
	rx->owes_head = rx->look = true;
}

/* The server answers call n, so it has read its request: a result of about the
 * same size is READ into the request's memory. */
static struct rpc_buf *request_take(struct rpc_client_rx *rx, uint64_t n,
				    uint64_t len)
{
	struct rpc_buf *buf;

	large_free(rx, n);
	buf = rx->large;
	if (!buf || buf->mark != n)
		return NULL;
	if (buf->len < len || buf->len / 2 > len) {
		large_free(rx, n + 1);
		return NULL;
	}
	rx->large = buf->next;
	if (!rx->large)
		rx->large_end = &rx->large;
	return buf;
}

/* Begins the READ of a large result. The owner posts it when it holds the
 * sending side. */
static int fetch_begin(struct rpc_client *c, const struct rpc_call *call,
		       uint64_t n, uint32_t seq, const void *payload)
{
	struct rpc_pull *p = &c->rx.pull;
	struct rpc_buf *buf = NULL;
	int rc;

	rc = rpc_msg_large(payload, call->resp_max, &p->from);
	if (rc)
		return rc;
	drop_result(&c->rx);
	c->rx.pull_seq = seq;
	if (!call->done) {
		rpc_pull_start(p, NULL, 0); /* the call is dead */
		return 0;
	}
	if (call == rpc_calls_at(&c->rx.calls, n))
		buf = request_take(&c->rx, n, p->from.len);
	if (!buf)
		buf = c->rx.port->ops->buf_get(c->rx.port, p->from.len, true);
	rpc_pull_start(p, buf, buf ? 0 : -ENOMEM);
	c->rx.look = true;
	return 0;
}

/* Finds the call with this number on the wire: it is parked, or in its slot
 * (the slot may be unused). *n: its number in the count of the window. */
static struct rpc_call *call_of(struct rpc_client_rx *rx, uint32_t seq,
				uint64_t *n)
{
	uint64_t head = rpc_calls_head(&rx->calls);
	struct rpc_call *call = NULL;

	*n = head + (uint32_t)(seq - (uint32_t)head);
	if (rx->park.n)
		call = rpc_park_find(&rx->park, seq);
	return call ? call : rpc_calls_at(&rx->calls, *n);
}

/* Ends the call: its large result has come, or the READ failed (err). */
static void fetch_end(struct rpc_client *c, struct rpc_buf *buf, int err)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_call *call;
	uint64_t n;

	call = call_of(rx, rx->pull_seq, &n);
	rx->result_buf = buf;
	call_answered(c, call, n, err, buf ? buf->addr : NULL,
		      buf ? (uint32_t)rx->pull.from.len : 0);
	if (rx->result_buf)
		rx->port->ops->buf_put(rx->port, rx->result_buf);
	rx->result_buf = NULL;
	rx->owes_head = rx->look = true;
}

/* A response names a call that is not published as sent. 0: its leader has
 * posted it, and is about to publish it. An error: there is no such call. */
static int not_sent(struct rpc_client *c, uint64_t n)
{
	/* Acquire pairs with the release in tell_valid(). */
	if (n < atomic_load_explicit(&c->published.valid, memory_order_acquire))
		return 0;
	return -SKEIN_EPEER;
}

/* Finds the call that the next pair answers: 1, 0 to wait, or an error. */
static int find_call(struct rpc_client *c, uint64_t sent,
		     struct rpc_call **call, uint64_t *n, uint32_t *seq)
{
	struct rpc_client_rx *rx = &c->rx;

	if (rpc_msg_peek_seq(&rx->in, seq))
		return -SKEIN_EPEER;
	*call = call_of(rx, *seq, n);
	if (*call != rpc_calls_at(&rx->calls, *n))
		return 1; /* parked */
	if (*n >= sent)
		return not_sent(c, *n);
	/* Each call is answered once. */
	return (*call)->lines & RPC_CALL_ANSWERED ? -SKEIN_EPEER : 1;
}

/* Consumes a pair that is not the plain answer to the oldest call. Returns as
 * consume_pair(). */
static int consume_any(struct rpc_client *c, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_resp_meta meta;
	struct rpc_call *call;
	const void *payload;
	uint32_t seq;
	uint64_t n;
	int rc;

	rc = find_call(c, sent, &call, &n, &seq);
	if (rc <= 0)
		return rc;
	rc = rpc_msg_next_resp_any(&rx->in, call->resp_max, seq, call->thread,
				   &meta, &payload);
	if (rc)
		return rc;
	if (meta.time)
		rpc_rfetch_time(c, rx->used, meta.time);
	rx->in_lines += RPC_CALL_LINES(rpc_calls_at(&rx->calls, rx->used));
	if (meta.flags & RPC_RESP_LARGE)
		return fetch_begin(c, call, n, seq, payload);
	call_answered(c, call, n, meta.status, payload, meta.size);
	return 1;
}

/* Consumes a pair: 1, 0 when it waits for a READ or for the call's sender, or
 * an error. */
static inline int consume_pair(struct rpc_client *c, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	uint64_t n = rx->used;
	struct rpc_call *call = rpc_calls_at(&rx->calls, n);
	struct rpc_resp_meta meta;
	const void *payload;

	if (__builtin_expect(n == sent, 0))
		return not_sent(c, n);
	/* The next reservation is in the next lap: it does not adjoin. */
	if (__builtin_expect(rx->in_lines >= rx->in_lap_left, 0))
		return -SKEIN_EPEER;
	/* While calls are parked, the oldest in the window may be answered
	 * already. */
	if (__builtin_expect(n != rpc_calls_head(&rx->calls) || rx->park.n ||
				     !rpc_msg_next_resp(&rx->in, call->resp_max,
							(uint32_t)n,
							call->thread, &meta,
							&payload),
			     0))
		return consume_any(c, sent);
	if (__builtin_expect(meta.time != 0, 0))
		rpc_rfetch_time(c, n, meta.time);
	rx->in_lines += RPC_CALL_LINES(call);
	call_answered_in_turn(c, n, call, payload, meta.size);
	return 1;
}

/* Consumes pairs: 1 when the message is finished; 0 when it waits, or a
 * callback broke the connection; or an error. */
static inline int consume_pairs(struct rpc_client *c, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	int rc;

	while (rx->in.left) {
		rc = consume_pair(c, sent);
		if (__builtin_expect(rc != 1, 0))
			return rc;
		if (__builtin_expect(rx->broken != 0, 0))
			return 0;
	}
	return 1;
}

static inline int message_end(struct rpc_client_rx *rx)
{
	if (rpc_msg_end(&rx->in) || rx->in.len > rx->in_lines * RPC_LINE)
		return -SKEIN_EPEER;
	resp_consumed(rx);
	rx->in_active = false;
	return 0;
}

/* Goes on with a large response: 1 when its message is finished. */
static __attribute__((noinline)) int fetch_step(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	struct rpc_buf *buf;
	int rc, err;

	if (!rpc_pull_over(&rx->pull))
		return 0;
	rc = rpc_pull_end(&rx->pull, rx->port, &buf, &err);
	if (rc)
		return rc; /* the READ failed: so has the QP */
	fetch_end(c, buf, err);
	if (rx->broken)
		return 0;
	return message_end(rx) ? -SKEIN_EPEER : 1;
}

/* Takes up the next response message: 1, 0 none, or an error. */
static inline int message_begin(struct rpc_client *c, uint64_t sent)
{
	struct rpc_client_rx *rx = &c->rx;
	uint64_t pos = resp_head(rx);
	uint32_t lap_left = rx->resp_mask + 1 - ((uint32_t)pos & rx->resp_mask);
	uint32_t room = (lap_left + rx->port->geom.spill) * RPC_LINE;
	bool fetch =
		__builtin_expect(rx->rf.able, 0) && rpc_rfetch_is(c, rx->used);
	int rc;

	if (fetch)
		rc = rpc_rfetch_poll(c, &rx->in, sent);
	else
		rc = rpc_msg_poll(&rx->in, resp_at(rx, pos), room,
				  rx->resp_canary, rx->port->tail_in);
	if (__builtin_expect(rx->rf.blocked, 0) && !fetch)
		rpc_rfetch_round(c);
	if (__builtin_expect(rc <= 0, 1))
		return rc;
	if (!rx->in.count || rx->in.flags || !head_known(c, rx->in.head))
		return -SKEIN_EPEER;
	rx->port->stats.replied += fetch ? 0 : rx->in.count;
	if (__builtin_expect(rx->rf.able, 0))
		rpc_rfetch_answered(c, fetch, sent);
	rx->in_active = true;
	rx->in_lines = 0;
	rx->in_lap_left = lap_left;
	rx->port->stats.messages_received++;
	if (__builtin_expect(rx->port->model != NULL, 0))
		rpc_port_charge(rx->port, ENV_COST_DECODE, rx->in.count);
	rpc_event_received(&rx->port->event);
	return 1;
}

static int poll_responses(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	int rc, moved = 0;
	uint64_t sent;

	if (__builtin_expect(rx->pull.on, 0)) {
		rc = fetch_step(c);
		if (rc <= 0)
			return rc;
		moved++;
	}
	while (moved < MSGS_PER_ROUND &&
	       rx->used != (sent = rpc_client_end(c))) {
		if (__builtin_expect(!rx->in_active, 1)) {
			rc = message_begin(c, sent);
			if (rc <= 0)
				return rc ? rc : moved;
			moved++;
		}
		rc = consume_pairs(c, sent);
		if (rc <= 0)
			return rc ? rc : moved;
		if (message_end(rx))
			return -SKEIN_EPEER;
	}
	return moved;
}

/* --- deadlines ---------------------------------------------------------- */

static void call_dies(struct rpc_call *call, int err)
{
	struct skein_rpc_result res = {.outcome = SKEIN_UNKNOWN, .status = err};
	skein_rpc_done_fn *done = call->done;

	call->done = NULL;
	done(call->arg, &res);
}

static int poll_deadlines(struct rpc_client *c, uint64_t now_ns)
{
	struct rpc_calls *calls = &c->rx.calls;
	uint64_t n = rpc_calls_head(calls), end = calls->seen;
	struct rpc_call *call;
	uint32_t i = 0;
	int moved = 0;

	rpc_calls_walk(calls);
	while (!c->rx.broken && rpc_calls_expired(calls, now_ns, end, &n)) {
		call_dies(rpc_calls_at(calls, n), -ETIMEDOUT);
		n++;
		moved++;
	}
	while (!c->rx.broken &&
	       (call = rpc_park_expired(&c->rx.park, now_ns, &i,
					&calls->earliest_ns))) {
		call_dies(call, -ETIMEDOUT);
		moved++;
	}
	return moved;
}

/* Parked calls are older than those in the window. */
int rpc_client_cancel(struct rpc_client *c, const struct rpc_wanted *wanted)
{
	struct rpc_calls *calls = &c->rx.calls;
	uint64_t n, end = rpc_client_end(c);
	struct rpc_call *call;

	if (c->rx.broken)
		return -ENOENT;
	call = rpc_park_match(&c->rx.park, wanted);
	if (call) {
		call_dies(call, -ECANCELED);
		return 0;
	}
	for (n = rpc_calls_head(calls); n != end; n++) {
		call = rpc_calls_at(calls, n);
		if (!wanted->is(wanted, call->done, call->arg))
			continue;
		call_dies(call, -ECANCELED);
		return 0;
	}
	return -ENOENT;
}

/* --- rounds ------------------------------------------------------------- */

int rpc_client_poll(struct rpc_client *c, uint64_t now_ns)
{
	struct rpc_client_rx *rx = &c->rx;
	int moved;

	if (__builtin_expect(rx->broken != 0, 0))
		return 0;
	rpc_calls_round(&rx->calls, now_ns, rpc_client_end(c));
	moved = poll_responses(c);
	if (moved < 0)
		return moved;
	if (__builtin_expect(now_ns >= rx->calls.earliest_ns, 0))
		moved += poll_deadlines(c, now_ns);
	return moved;
}

bool rpc_client_has_work(struct rpc_client *c)
{
	struct rpc_client_rx *rx = &c->rx;
	const struct rpc_hdr *hdr;

	if (rpc_client_wants_send(c))
		return true;
	if (rx->calls.seen != rpc_client_end(c))
		return true;
	if (rx->pull.on)
		return rpc_pull_over(&rx->pull);
	if (rx->used == rpc_client_end(c))
		return false;
	if (rx->in_active)
		return true;
	if (rpc_rfetch_is(c, rx->used)) /* the server sends nothing */
		return rx->rf.state == RPC_RFETCH_HERE;
	hdr = (const void *)resp_at(rx, resp_head(rx));
	/* Acquire as in rpc_msg_poll(). Section 8 argues that no message is
	 * missed; that needs no order here. */
	return __atomic_load_n(&hdr->canary, __ATOMIC_ACQUIRE) ==
	       rx->resp_canary;
}

void rpc_client_break(struct rpc_client *c, int err)
{
	struct rpc_client_rx *rx = &c->rx;
	uint64_t n, tail = rpc_client_end(c);

	if (rx->broken)
		return;
	rx->broken = err;
	drop_result(rx);
	c->tx.open_max = 0;
	for (uint32_t i = 0; i < rx->park.n; i++)
		if (rx->park.at[i].call.done)
			call_dies(&rx->park.at[i].call, err);
	for (n = rpc_calls_head(&rx->calls); n < tail; n++)
		if (rpc_calls_at(&rx->calls, n)->done)
			call_dies(rpc_calls_at(&rx->calls, n), err);
	rpc_park_fini(&rx->park);
	atomic_store_explicit(&rx->calls.head, tail, memory_order_release);
	rx->used = tail;
	rx->calls.seen = tail;
	rpc_pull_break(&rx->pull, rx->port);
	rx->rf = (struct rpc_rfetch){0};
	large_free(rx, UINT64_MAX);
}

void rpc_client_init(struct rpc_client *c, struct rpc_port *port,
		     struct rpc_call *slots, uint64_t window)
{
	const struct rpc_geom *g = &port->geom;
	struct rpc_client_rx *rx = &c->rx;

	memset(c, 0, sizeof(*c));
	rx->port = port;
	rx->resp_mask = g->resp_lines - 1;
	rx->resp_base = port->base + rpc_geom_resp(g);
	rx->resp_canary = rpc_canary(&port->secret_in, 0);
	rx->large_end = &rx->large;
	rx->head_read.done = head_read_done;
	rpc_pull_init(&rx->pull, &rx->look);
	rpc_calls_init(&rx->calls, slots, window);
	rpc_client_tx_init(c, port, slots, window);
}
