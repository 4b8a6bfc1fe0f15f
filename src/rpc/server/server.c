/* SPDX-License-Identifier: MIT */
/*
 * server.c - the serving end: docs/protocol/rpc.md, sections 3 to 5 and 7.
 *
 * Thread rule: the owner of the connection's engine; handlers run in it.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/list.h"
#include "conn/conn.h"
#include "rpc/server/server.h"

/* Request messages taken in one round. */
#define MSGS_PER_ROUND 64

#define HDR_LEN ((uint32_t)sizeof(struct rpc_hdr))
#define META_LEN ((uint32_t)sizeof(struct rpc_resp_meta))

/* --- responses ---------------------------------------------------------- */

static uint64_t resp_off(const struct rpc_server *s, uint64_t pos)
{
	return rpc_geom_resp(&s->port->geom) +
	       (pos & (s->port->geom.resp_lines - 1)) * RPC_LINE;
}

/* Sends the sealed messages, oldest first. 0, -EAGAIN when some are left, or an
 * error of the port. */
static int sealed_send(struct rpc_server *s)
{
	unsigned n, i;
	int rc = 0;

	for (n = 0; n < s->sealed_count && !rc; n += !rc)
		rc = rpc_port_send(s->port, s->sealed[n].off, s->sealed[n].len);
	if (__builtin_expect(s->broken != 0, 0))
		return rc; /* by the port, from inside: nothing is left */
	for (i = n; i < s->sealed_count; i++)
		s->sealed[i - n] = s->sealed[i];
	s->sealed_count -= n;
	return rc;
}

/* Keeps a message that cannot leave now, after those that wait already. */
static int keep_sealed(struct rpc_server *s, uint64_t off, uint32_t len, int rc)
{
	if (s->broken)
		return rc; /* by the port, from inside: nothing is left */
	skein_assert(s->sealed_count < RPC_SEALED_MAX);
	s->sealed[s->sealed_count++] = (struct rpc_sealed){off, len};
	return rc;
}

/* Seals the open message in the mirror: it stays there until the caller READs
 * it. */
static int open_fetched(struct rpc_server *s, uint32_t len)
{
	unsigned count = s->open_count;

	s->open_count = 0;
	return rpc_mirror_seal(s->mirror, s->port, s->open, s->open_pos, len,
			       count, (uint32_t)s->req_head | s->port->word,
			       s->caller_head);
}

/* Closes the open message. It leaves at once if it can. */
static inline int open_seal(struct rpc_server *s)
{
	uint32_t len = s->open_len + RPC_TAIL_LEN;
	struct rpc_port *port = s->port;
	uint64_t off = (uint64_t)(s->open - port->base);
	int rc = -EAGAIN;

	if (__builtin_expect(s->open_fetch != 0, 0))
		return open_fetched(s, len);
	port->stats.replied += s->open_count;
	rpc_msg_seal(s->open, len, s->open_count,
		     (uint32_t)s->req_head | port->word,
		     rpc_canary(&port->secret_out, s->open_pos),
		     port->tail_out);
	s->open_count = 0;
	if (__builtin_expect(s->sealed_count == 0, 1))
		rc = rpc_port_send(port, off, len);
	return __builtin_expect(rc == 0, 1) ? 0 : keep_sealed(s, off, len, rc);
}

static void open_begin(struct rpc_server *s, uint64_t pos)
{
	s->open = s->port->base + resp_off(s, pos);
	s->open_len = HDR_LEN;
	s->open_pos = pos;
}

/* Seals the open message. A lasting failure to send breaks the connection when
 * the round ends; the message stays sealed until then. */
static void seal(struct rpc_server *s)
{
	int rc;

	if (!s->open_count)
		return;
	rc = open_seal(s);
	if (__builtin_expect(rc == 0, 1))
		return;
	s->special |= RPC_SRV_STOP;
	if (rc != -EAGAIN)
		s->broken = rc;
}

/* The next answer is returned in another way than those of the open message. */
static __attribute__((noinline)) void mode_change(struct rpc_server *s,
						  uint16_t fetch)
{
	seal(s);
	s->open_fetch = fetch;
}

/* fetch: RPC_REQ_FETCH or 0. */
static inline void mode_set(struct rpc_server *s, uint16_t fetch)
{
	if (__builtin_expect(fetch != s->open_fetch, 0))
		mode_change(s, fetch);
}

/* --- answers ------------------------------------------------------------ */

/* A result that the caller READs: its descriptor goes in a message of its
 * own. */
static void answer_large(struct rpc_server *s, uint64_t pos, uint32_t lines)
{
	struct skein_rpc_req *req = &s->req;
	struct rpc_resp_meta meta = {.size = sizeof(struct rpc_large),
				     .thread = req->meta.thread,
				     .seq = req->meta.seq,
				     .flags = RPC_RESP_LARGE};
	struct rpc_large desc = {.addr = (uint64_t)(uintptr_t)req->large->addr,
				 .len = req->resp_len,
				 .rkey = req->large->rkey,
				 .region = req->large->region};

	seal(s);
	open_begin(s, pos);
	memcpy(s->open + HDR_LEN, &meta, sizeof(meta));
	memcpy(s->open + HDR_LEN + META_LEN, &desc, sizeof(desc));
	s->open_len = HDR_LEN + META_LEN + (uint32_t)sizeof(desc);
	s->open_count = 1;
	s->open_end = pos + lines;
	req->large->mark = s->open_end;
	req->large->next = NULL;
	*s->held_end = req->large;
	s->held_end = &req->large->next;
	req->large = NULL;
	seal(s);
}

/* The result is already in place, after the metadata. */
static inline void answer_inline(struct rpc_server *s, int status, uint64_t end)
{
	struct skein_rpc_req *req = &s->req;
	uint32_t len = req->resp_len;
	struct rpc_resp_meta meta = {.size = len,
				     .status = (int16_t)status,
				     .thread = req->meta.thread,
				     .seq = req->meta.seq};

	/* The padding is sent too: it must not leak old bytes of this
	 * process. */
	for (uint32_t i = len; i & 7; i++)
		req->resp[i] = 0;
	memcpy(s->open + s->open_len, &meta, sizeof(meta));
	s->open_len += META_LEN + RPC_PAD8(len);
	s->open_count++;
	s->open_end = end;
}

static inline int clamp_status(int rc)
{
	if (rc > 0 || rc < INT16_MIN)
		return -EINVAL;
	return rc;
}

static inline int run_handler(struct rpc_server *s)
{
	struct skein_rpc_req *req = &s->req;
	struct rpc_handler *h;
	skein_rpc_fn *fn;

	h = rpc_handlers_find(s->handlers, req->meta.rpc_id);
	/* Acquire pairs with the release in rpc_handlers_add(): a thread that
	 * reads fn also sees arg. */
	fn = h ? atomic_load_explicit(&h->fn, memory_order_acquire) : NULL;
	if (!fn)
		return -SKEIN_ENOHANDLER;
	return fn(req, h->arg);
}

/* --- the response time, of a call that asks ------------------------------ */

static void time_begin(struct rpc_server *s)
{
	s->begun_ns = s->later.env ? env_now_ns(s->later.env) : 0;
}

/* The inline answer at s->req.resp is written. */
static void time_end(struct rpc_server *s, uint64_t begun_ns)
{
	uint64_t time;
	uint16_t wire;

	if (!s->later.env || !begun_ns)
		return;
	/* Rounded up: 0 is "not measured". */
	time = (env_now_ns(s->later.env) - begun_ns) / RPC_TIME_UNIT_NS + 1;
	wire = time < UINT16_MAX ? (uint16_t)time : UINT16_MAX;
	memcpy(s->req.resp - META_LEN + offsetof(struct rpc_resp_meta, time),
	       &wire, sizeof(wire));
}

/* Drops the result of a handler that failed or was not run. */
static void result_drop(struct rpc_server *s)
{
	struct skein_rpc_req *req = &s->req;

	req->resp_len = 0;
	if (!req->large || req->large == RPC_DEFERRED_MARK)
		return;
	s->port->ops->buf_put(s->port, req->large);
	req->large = NULL;
}

/* Finds the place of the next answer; its result comes after it. */
static inline void answer_place(struct rpc_server *s, uint64_t pos,
				uint32_t lines)
{
	struct skein_rpc_req *req = &s->req;

	if (!s->open_count)
		open_begin(s, pos);
	req->resp = s->open + s->open_len + META_LEN;
	req->inline_max = lines * RPC_LINE - (uint32_t)RPC_RESP_ROOM;
	req->resp_len = 0;
}

/* Executes the request of s->req.meta and adds its answer to the open message.
 * pos and lines: the reservation. status: 0, or why it is not executed. False:
 * the handler deferred it, and the reservation is free. */
static inline bool serve(struct rpc_server *s, const void *data, uint32_t len,
			 uint64_t pos, uint32_t lines, int status)
{
	struct skein_rpc_req *req = &s->req;

	answer_place(s, pos, lines);
	req->data = data;
	req->len = len;
	if (!status)
		status = clamp_status(run_handler(s));
	if (__builtin_expect(status != 0, 0))
		result_drop(s);
	if (__builtin_expect(req->large != NULL, 0)) {
		if (req->large == RPC_DEFERRED_MARK) {
			req->large = NULL;
			return false;
		}
		answer_large(s, pos, lines);
	} else {
		answer_inline(s, status, pos + lines);
	}
	return true;
}

/* serve() of a call that asks for the time. */
static __attribute__((noinline)) bool serve_timed(struct rpc_server *s,
						  const void *data,
						  uint32_t len, uint64_t pos,
						  uint32_t lines, int status)
{
	time_begin(s);
	if (!serve(s, data, len, pos, lines, status))
		return false;
	if (s->open_count) /* else: it was a large one */
		time_end(s, s->begun_ns);
	return true;
}

/* serve() of any call. */
static inline bool serve_any(struct rpc_server *s, const void *data,
			     uint32_t len, uint64_t pos, uint32_t lines,
			     int status)
{
	if (s->req.meta.flags & RPC_REQ_TIME)
		return serve_timed(s, data, len, pos, lines, status);
	return serve(s, data, len, pos, lines, status);
}

/* Can an answer at pos join the open message? At the lap's end positions go
 * on but places do not. */
static bool adjoins(const struct rpc_server *s, uint64_t pos)
{
	return pos == s->open_end &&
	       (pos & (s->limits.geom.resp_lines - 1)) != 0;
}

/* --- later answers ------------------------------------------------------ */

/* Notes the reservation that the request just passed has made, after those that
 * no answer has used. */
static void reserve(struct rpc_server *s, uint64_t pos,
		    const struct rpc_req_meta *meta)
{
	struct rpc_deferrals *d = s->deferrals;

	if (!d)
		return; /* broken from inside */
	if (!rpc_deferrals_reserved(d))
		d->pos = pos;
	rpc_deferrals_reserve(d, meta->resp_lines, meta->flags & RPC_REQ_FETCH);
	s->special |= RPC_SRV_OWES;
}

/* Is the answer in the oldest reservation fetched? RPC_REQ_FETCH or 0. */
static uint16_t mode_of_next(const struct rpc_server *s)
{
	const struct rpc_deferrals *d = s->deferrals;

	if (!s->mirror || d->pos < s->mirror->recalled)
		return 0;
	return rpc_deferrals_fetched(d) ? RPC_REQ_FETCH : 0;
}

static void reservation_used(struct rpc_server *s)
{
	if (!s->deferrals)
		return; /* broken from inside */
	rpc_deferrals_used(s->deferrals, s->port->geom.resp_lines);
	if (!rpc_deferrals_reserved(s->deferrals))
		s->special &= ~(unsigned)RPC_SRV_OWES;
}

/* From inside a handler: s->req goes into the table of deferrals. */
int rpc_server_defer(struct rpc_server *s, struct rpc_deferred **later)
{
	struct skein_rpc_req *req = &s->req;
	struct rpc_deferred *l;

	if (req->large == RPC_DEFERRED_MARK)
		return -EALREADY;
	if (!s->later.env)
		return -EOPNOTSUPP;
	if (!s->deferrals)
		s->deferrals = rpc_deferrals_new(&s->later);
	if (!s->deferrals)
		return -ENOMEM;
	l = rpc_deferrals_put(s->deferrals, req, s->req_buf);
	if (!l)
		return -ENOMEM;
	l->begun_ns = s->begun_ns;
	s->req_buf = NULL;
	result_drop(s);
	req->large = RPC_DEFERRED_MARK;
	s->port->stats.later++;
	*later = l;
	return 0;
}

/* Puts the answer of l into the oldest reservation. */
static void answer_later(struct rpc_server *s, struct rpc_deferred *l)
{
	uint32_t lines = rpc_deferrals_lines(s->deferrals),
		 len = l->req.resp_len;
	struct skein_rpc_req *req = &s->req;
	uint64_t pos = s->deferrals->pos;
	int status = clamp_status(l->status);
	void *resp;

	mode_set(s, mode_of_next(s));
	if (s->open_count &&
	    (!adjoins(s, pos) || s->open_count >= s->port->batch_max))
		seal(s);
	answer_place(s, pos, lines);
	req->meta = l->req.meta;
	if (!status && l->out && len >= RPC_DEFERRED_LARGE) {
		status = s->port->ops->buf_adopt(s->port, l->out);
		if (!status)
			req->large = l->out;
		l->out = NULL;
		req->resp_len = status ? 0 : len;
	} else if (!status && len) {
		resp = skein_rpc_resp_buf(req, len);
		if (resp)
			memcpy(resp, l->req.resp, len);
		else
			status = -ENOMEM;
	}
	if (req->large) {
		answer_large(s, pos, lines);
	} else {
		answer_inline(s, status, pos + lines);
		if (req->meta.flags & RPC_REQ_TIME)
			time_end(s, l->begun_ns);
	}
	reservation_used(s);
}

/* Sends the answers of deferred requests, in the order in which they came. */
static int answers_send(struct rpc_server *s)
{
	struct rpc_deferrals *d = s->deferrals;
	int n = 0;

	rpc_deferrals_collect(d);
	/* It stops when a sealed message cannot leave. */
	while (d->ready && !s->sealed_count) {
		answer_later(s, d->ready);
		if (s->broken)
			break; /* broken from inside: the table is closed */
		rpc_deferrals_sent(d, s->port);
		n++;
	}
	return n;
}

/* serve() with the oldest reservation. own: the position that the request
 * reserved. */
static void serve_next(struct rpc_server *s, const void *data, uint32_t len,
		       uint64_t own, int status)
{
	uint16_t lines = s->req.meta.resp_lines;

	if (!(s->special & RPC_SRV_OWES)) {
		mode_set(s, s->req.meta.flags & RPC_REQ_FETCH);
		if (!serve_any(s, data, len, own, lines, status))
			reserve(s, own, &s->req.meta);
		return;
	}
	mode_set(s, mode_of_next(s));
	if (s->open_count && !adjoins(s, s->deferrals->pos))
		seal(s);
	if (serve_any(s, data, len, s->deferrals->pos,
		      rpc_deferrals_lines(s->deferrals), status))
		reservation_used(s);
}

/* --- large requests ----------------------------------------------------- */

static int read_begin(struct rpc_server *s, const struct rpc_req_meta *meta,
		      const void *payload)
{
	struct rpc_buf *buf;
	int rc;

	rc = rpc_msg_large(payload, SKEIN_RPC_LEN_MAX, &s->pull.from);
	if (rc)
		return rc;
	s->pull_meta = *meta;
	s->special |= RPC_SRV_STOP;
	buf = s->port->ops->buf_get(s->port, s->pull.from.len, true);
	rpc_pull_start(&s->pull, buf, buf ? 0 : -ENOMEM);
	rc = rpc_pull_post(&s->pull, s->port);
	return rc < 0 ? rc : 0;
}

/* The position reserved by the request that rpc_msg_next_req() has just
 * passed. */
static uint64_t passed_pos(const struct rpc_server *s,
			   const struct rpc_req_meta *meta)
{
	/* meta->resp_pos is the low half of an earlier limits.resp_pos, which
	 * is less than a lap and a reservation behind the present one. */
	return s->limits.resp_pos -
	       (uint32_t)((uint32_t)s->limits.resp_pos - meta->resp_pos);
}

/* Goes on with the large request: brings a piece, or serves it when all is
 * here. What moved, or an error. */
static int read_step(struct rpc_server *s)
{
	struct rpc_buf *buf;
	int rc, err;

	if (!rpc_pull_over(&s->pull)) {
		rc = rpc_pull_post(&s->pull, s->port);
		if (rc < 0 || !rpc_pull_over(&s->pull))
			return rc;
	}
	rc = rpc_pull_end(&s->pull, s->port, &buf, &err);
	if (rc)
		return rc; /* the READ failed: so has the queue pair */
	s->req.meta = s->pull_meta;
	s->req_buf = buf;
	serve_next(s, buf ? buf->addr : NULL,
		   buf ? (uint32_t)s->pull.from.len : 0,
		   passed_pos(s, &s->pull_meta), err);
	if (s->req_buf)
		s->port->ops->buf_put(s->port, s->req_buf);
	s->req_buf = NULL;
	return 1;
}

/* --- requests ----------------------------------------------------------- */

/* The caller has consumed responses up to here. */
static int caller_head(struct rpc_server *s, uint32_t wire)
{
	uint64_t pos = rpc_pos_extend(s->caller_head, wire);
	struct rpc_buf *buf;

	if (pos > s->limits.resp_pos)
		return -SKEIN_EPEER;
	s->caller_head = pos;
	while (__builtin_expect((buf = s->held) != NULL, 0) &&
	       buf->mark <= pos) {
		s->held = buf->next;
		if (!s->held)
			s->held_end = &s->held;
		s->port->ops->buf_put(s->port, buf);
	}
	return 0;
}

/* A recall: all answers to the reservations so far are to be sent, those built
 * and those to come. */
static int recall(struct rpc_server *s)
{
	if (!s->mirror || s->in.count)
		return -SKEIN_EPEER;
	seal(s);
	rpc_mirror_recall(s->mirror, s->limits.resp_pos);
	s->special |= RPC_SRV_STOP;
	return 0;
}

/* Takes up the next request message: 1, 0 none, or an error. */
static int message_begin(struct rpc_server *s)
{
	const struct rpc_geom *g = &s->port->geom;
	const uint8_t *at =
		s->req_base + (s->req_head & (g->req_lines - 1)) * RPC_LINE;
	int rc;

	/* The spill gives room for every message after every line. */
	rc = rpc_msg_poll(&s->in, at, g->spill * RPC_LINE, s->req_canary,
			  s->port->tail_in);
	if (__builtin_expect(rc <= 0, 1))
		return rc;
	rc = caller_head(s, s->in.head);
	if (!rc && __builtin_expect(s->in.flags != 0, 0))
		rc = recall(s);
	if (rc)
		return rc;
	s->in_active = true;
	s->port->stats.messages_received++;
	s->port->stats.call_messages += s->in.count != 0;
	if (__builtin_expect(s->port->model != NULL, 0))
		rpc_port_charge(s->port, ENV_COST_DECODE, s->in.count);
	s->port->stats.calls += s->in.count;
	rpc_event_received(&s->port->event);
	return 1;
}

static int message_end(struct rpc_server *s)
{
	const struct rpc_geom *g = &s->port->geom;

	if (rpc_msg_end(&s->in))
		return -SKEIN_EPEER;
	s->req_head =
		rpc_pos_next(g->req_lines, s->req_head, RPC_LINES(s->in.len));
	s->req_canary = rpc_canary(&s->port->secret_in, s->req_head);
	s->in_active = false;
	/* Release pairs with the device's READ: a caller that READs this Head
	 * overwrites the message, so the server's loads of it must be done. */
	__atomic_store_n((uint64_t *)(void *)(s->port->base + RPC_CTL_HEAD),
			 s->req_head, __ATOMIC_RELEASE);
	return 0;
}

/* Executes one pair. 0, or an error. */
static inline int pair_step(struct rpc_server *s)
{
	struct rpc_req_meta *meta = &s->req.meta;
	uint64_t pos = s->limits.resp_pos;
	const void *payload;
	int rc;

	if (s->open_count && __builtin_expect(!adjoins(s, pos), 0))
		seal(s);
	rc = rpc_msg_next_req(&s->in, &s->limits, meta, &payload);
	if (__builtin_expect(rc != 0, 0))
		return rc;
	if (__builtin_expect((meta->flags & RPC_REQ_FETCH) != s->open_fetch,
			     0)) {
		if (meta->flags & RPC_REQ_FETCH && !s->mirror)
			return -SKEIN_EPEER;
		mode_change(s, meta->flags & RPC_REQ_FETCH);
	}
	if (__builtin_expect(!(meta->flags & ~RPC_REQ_FETCH), 1)) {
		if (__builtin_expect(!serve(s, payload, meta->size, pos,
					    meta->resp_lines, 0),
				     0))
			reserve(s, pos, meta);
	} else if (!(meta->flags & (RPC_REQ_SKIP | RPC_REQ_LARGE))) {
		if (!serve_timed(s, payload, meta->size, pos, meta->resp_lines,
				 0))
			reserve(s, pos, meta);
	} else if (meta->flags & RPC_REQ_SKIP) {
		serve(s, NULL, 0, pos, meta->resp_lines, -ECANCELED);
	} else {
		return read_begin(s, meta, payload);
	}
	return 0;
}

/* The same while other reservations wait for their answers. */
static int pair_step_owing(struct rpc_server *s)
{
	struct rpc_req_meta *meta = &s->req.meta;
	uint64_t pos = s->limits.resp_pos;
	const void *payload;
	int rc;

	if (!rpc_deferrals_room(s->deferrals)) {
		s->special |= RPC_SRV_STOP;
		return 0;
	}
	rc = rpc_msg_next_req(&s->in, &s->limits, meta, &payload);
	if (rc)
		return rc;
	if (meta->flags & RPC_REQ_FETCH && !s->mirror)
		return -SKEIN_EPEER;
	reserve(s, pos, meta);
	if (meta->flags & RPC_REQ_LARGE && !(meta->flags & RPC_REQ_SKIP))
		return read_begin(s, meta, payload);
	if (meta->flags & RPC_REQ_SKIP)
		serve_next(s, NULL, 0, pos, -ECANCELED);
	else
		serve_next(s, payload, meta->size, pos, 0);
	return 0;
}

/* Goes on with the message in work: 1 when finished, 0 when it must wait, or an
 * error. */
static int message_step(struct rpc_server *s)
{
	int rc;

	while (s->in.left) {
		if (s->open_count >= s->port->batch_max)
			seal(s);
		if (__builtin_expect(s->special != 0, 0)) {
			if (s->special & RPC_SRV_STOP)
				return 0;
			rc = pair_step_owing(s);
		} else {
			rc = pair_step(s);
		}
		if (__builtin_expect(rc != 0, 0))
			return rc;
	}
	if (__builtin_expect(s->pull.on, 0))
		return 0;
	rc = message_end(s);
	return rc ? rc : 1;
}

static int poll_requests(struct rpc_server *s)
{
	int rc, moved = 0;

	while (moved < MSGS_PER_ROUND) {
		if (__builtin_expect(s->special & RPC_SRV_STOP, 0))
			break;
		if (!s->in_active) {
			rc = message_begin(s);
			if (rc <= 0)
				return rc ? rc : moved;
		}
		moved++;
		rc = message_step(s);
		if (rc <= 0)
			return rc ? rc : moved;
		if (s->open_count >= s->port->batch_max)
			seal(s);
	}
	return moved;
}

/* Does the message in work wait for room in the table of deferrals? */
static bool deferrals_full(const struct rpc_server *s)
{
	return (s->special & RPC_SRV_OWES) && s->deferrals &&
	       !rpc_deferrals_room(s->deferrals);
}

/* The work that not every round has. Afterwards `special` says what is
 * allowed. */
static int poll_special(struct rpc_server *s)
{
	int rc, n = 0;

	if (s->broken)
		return s->broken;
	if (s->sealed_count) {
		rc = sealed_send(s);
		if (rc)
			return rc == -EAGAIN ? 0 : rc;
		n++;
	}
	if (s->mirror && s->mirror->resend) {
		rc = rpc_mirror_resend(s->mirror, s->port, s->caller_head);
		if (rc)
			return rc == -EAGAIN ? 0 : rc;
		n++;
	}
	if (s->special & RPC_SRV_OWES)
		n += answers_send(s);
	if (s->pull.on) {
		rc = read_step(s);
		if (rc < 0)
			return rc;
		n += rc;
	}
	s->special &= ~(unsigned)RPC_SRV_STOP;
	if (s->sealed_count || s->broken || s->pull.on || deferrals_full(s))
		s->special |= RPC_SRV_STOP;
	return n;
}

int rpc_server_poll(struct rpc_server *s)
{
	int moved = 0, n = 0;

	if (__builtin_expect(s->special != 0, 0)) {
		n = poll_special(s);
		if (n < 0)
			return n;
	}
	if (__builtin_expect(!(s->special & RPC_SRV_STOP), 1)) {
		moved = poll_requests(s);
		if (moved < 0)
			return moved;
	}
	if (s->open_count)
		seal(s);
	return s->broken ? s->broken : moved + n;
}

/* Where the canary of the next message arrives. */
static const uint64_t *next_canary(const struct rpc_server *s)
{
	const struct rpc_geom *g = &s->port->geom;
	const struct rpc_hdr *hdr =
		(const void *)(s->req_base +
			       (s->req_head & (g->req_lines - 1)) * RPC_LINE);

	return &hdr->canary;
}

/* Is the head of a message there? */
static bool message_there(const struct rpc_server *s)
{
	/* See rpc_client_has_work(). */
	return __atomic_load_n(next_canary(s), __ATOMIC_ACQUIRE) ==
	       s->req_canary;
}

bool rpc_server_rest(const struct rpc_server *s, struct conn_word *word)
{
	if (s->special || rpc_server_busy(s) || message_there(s))
		return false;
	*word = (struct conn_word){next_canary(s), s->req_canary};
	return true;
}

bool rpc_server_drained(const struct rpc_server *s)
{
	return !s->in_active && !(s->special & RPC_SRV_STOP) &&
	       !message_there(s);
}

bool rpc_server_has_work(const struct rpc_server *s)
{
	if (s->sealed_count || s->open_count ||
	    (s->mirror && s->mirror->resend))
		return true;
	if (s->deferrals && rpc_deferrals_has_work(s->deferrals))
		return true;
	if (s->pull.on)
		return rpc_pull_wants_post(&s->pull) || rpc_pull_over(&s->pull);
	if (deferrals_full(s))
		return false; /* the thread that answers wakes the owner */
	return s->in_active || message_there(s);
}

bool rpc_server_busy(const struct rpc_server *s)
{
	return s->sealed_count || s->open_count || s->in_active ||
	       (s->mirror && s->mirror->resend) || (s->special & RPC_SRV_OWES);
}

void rpc_server_break(struct rpc_server *s, int err)
{
	struct rpc_buf *buf;

	s->broken = err;
	s->special = RPC_SRV_STOP;
	if (s->deferrals)
		rpc_deferrals_close(s->deferrals, s->port);
	s->deferrals = NULL;
	while ((buf = s->held)) {
		s->held = buf->next;
		s->port->ops->buf_put(s->port, buf);
	}
	s->held_end = &s->held;
	rpc_pull_break(&s->pull, s->port);
	s->mirror = NULL;
	s->sealed_count = 0;
	s->open_count = 0;
	s->in_active = false;
}

void rpc_server_init(struct rpc_server *s, struct rpc_port *port,
		     const struct rpc_handlers *handlers,
		     const struct rpc_deferred_conf *later, void *conn)
{
	const struct rpc_geom *g = &port->geom;

	memset(s, 0, sizeof(*s));
	s->port = port;
	s->handlers = handlers;
	s->conn = conn;
	s->later = *later;
	s->req_base = port->base + rpc_geom_req(g);
	s->resp_base = port->base + rpc_geom_resp(g);
	s->req_canary = rpc_canary(&port->secret_in, 0);
	s->limits.geom = *g;
	s->req.server = s;
	s->held_end = &s->held;
	rpc_pull_init(&s->pull, NULL);
}
