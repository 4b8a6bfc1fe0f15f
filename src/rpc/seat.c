/* SPDX-License-Identifier: MIT */
/*
 * seat.c - the threads of a handle with lanes: the calls that they make, and
 * the inboxes in which they find the answers.
 *
 * An inbox has one writer, the engine's owner, and one reader, its thread; when
 * that has ended the owner reads it too. The writer looks for no room: a thread
 * reserves it when it makes a call, `room` bytes for each, and never has more
 * reserved than the inbox has. An entry takes at most what was reserved for it,
 * also at the lap's end, where it may run into the spill and the rest of the
 * lap is passed over (it is less than the entry): so positions that are written
 * and not read never span more than the inbox, and by the argument of
 * docs/protocol/rpc.md, section 1, no entry is written over one that is not
 * read.
 *
 * A blocking call is answered into the caller's memory; its flag is what it
 * waits for.
 */
#include <errno.h>
#include <string.h>

#include "base/pow2.h"
#include "conn/ctx.h"
#include "rpc/share.h"

#define INBOX_LEN (256u << 10)
#define ASYNC_MAX 1024u
/* How often a thread tells the median of its sizes: with each of its first
 * calls, then rarely. */
#define MEDIAN_EVERY 64u

static struct rpc_conn *lane_of(struct rpc_seat *s)
{
	return rpc_conn_of(conn_seat_lane(s->seat));
}

/* --- inbox -------------------------------------------------------------- */

static uint64_t next_pos(const struct rpc_seat *s, uint64_t pos, uint32_t size)
{
	return rpc_pos_next(s->inbox_len, pos, size);
}

static struct rpc_news *news_at(const struct rpc_seat *s, uint64_t pos)
{
	return (void *)(s->inbox + (pos & (s->inbox_len - 1)));
}

/* Owner: one call of the thread's has ended. Release pairs with the acquire in
 * rpc_seat_idle(). */
static void count_ended(struct rpc_seat *s, struct rpc_conn *rc,
			const struct skein_rpc_result *res)
{
	/* It may still be on its way: the server must get beyond what has left
	 * by now. */
	if (res->outcome == SKEIN_UNKNOWN)
		atomic_store_explicit(
			&s->passed,
			atomic_load_explicit(&rc->client.told.req_valid,
					     memory_order_relaxed),
			memory_order_relaxed);
	atomic_store_explicit(
		&s->ended,
		atomic_load_explicit(&s->ended, memory_order_relaxed) + 1,
		memory_order_release);
}

/* Owner: the thread has news. If it is the one that runs the engine, as one alone
 * is, it does not sleep. */
static void wake(struct rpc_seat *s, struct conn_seat *seat)
{
	if (atomic_load_explicit(&seat->thread, memory_order_relaxed) !=
	    env_thread_self(s->env))
		conn_seat_wake(seat);
}

/* Whose memory a fetched result lies in: taken out of the client's hands. */
static struct rpc_buf *take_buf(struct rpc_conn *rc)
{
	struct rpc_buf *buf = rc->client.rx.result_buf;

	if (buf)
		rc->port.ops->buf_let(&rc->port, buf);
	rc->client.rx.result_buf = NULL;
	return buf;
}

/* A result in the message that is longer than what was reserved for it: the
 * client finds that out when it has taken the whole message. */
static struct skein_rpc_result too_long(struct rpc_async *a, uint32_t len)
{
	conn_break(a->rc->conn, -SKEIN_EPEER,
		   "rpc: a result of %u bytes in a message", len);
	return (struct skein_rpc_result){.outcome = SKEIN_UNKNOWN,
					 .status = -SKEIN_EPEER};
}

static void put_news(struct rpc_async *a, struct skein_rpc_result res)
{
	struct rpc_seat *s = a->seat;
	uint64_t pos = atomic_load_explicit(&s->written, memory_order_relaxed);
	struct rpc_news *news = news_at(s, pos);
	uint32_t len = (uint32_t)res.len;

	news->call = a;
	news->buf = len ? take_buf(a->rc) : NULL;
	news->size = sizeof(*news);
	if (!news->buf && RPC_PAD8(res.len) > a->room - sizeof(*news)) {
		res = too_long(a, len);
	} else if (len && !news->buf) {
		memcpy(news + 1, res.data, len);
		news->size += RPC_PAD8(len);
	}
	news->len = (uint32_t)res.len;
	news->outcome = (int16_t)res.outcome;
	news->status = (int16_t)res.status;
	/* Release pairs with the acquire in rpc_seat_reap(). */
	atomic_store_explicit(&s->written, next_pos(s, pos, news->size),
			      memory_order_release);
}

static void async_free(struct rpc_seat *s, struct rpc_async *a)
{
	a->next = s->spare;
	s->spare = a;
}

/* Owner: an asynchronous call has ended. */
static void async_done(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_async *a = arg;
	struct rpc_seat *s = a->seat;
	struct conn_seat *seat = s->seat;
	struct rpc_conn *rc = a->rc;

	/* Acquire pairs with rpc_seat_left(): the thread has done with it. */
	if (atomic_load_explicit(&s->orphan, memory_order_acquire)) {
		rpc_seat_reap(s); /* older ones first */
		a->done(a->arg, res);
		s->reserved -= a->room;
		async_free(s, a);
		count_ended(s, rc, res);
		rpc_seat_sweep(s);
		return;
	}
	put_news(a, *res);
	count_ended(s, rc, res);
	wake(s, seat);
}

/* Its thread ended inside a done(): the results that it was shown. */
static void drop_shown(struct rpc_seat *s)
{
	struct rpc_buf *buf;

	while ((buf = s->shown)) {
		s->shown = buf->next;
		buf->end(buf);
	}
}

int rpc_seat_reap(struct rpc_seat *s)
{
	uint32_t inner = 0, room;
	struct skein_rpc_result res;
	struct rpc_news *news;
	struct rpc_buf *buf;
	struct rpc_async *a;
	int n;

	if (!s->inbox)
		return 0;
	s->depth++;
	/* Acquire pairs with the release in put_news(). */
	for (n = 0;
	     s->read != atomic_load_explicit(&s->written, memory_order_acquire);
	     n++) {
		news = news_at(s, s->read);
		s->read = next_pos(s, s->read, news->size);
		a = news->call;
		buf = news->buf;
		room = a->room;
		res = (struct skein_rpc_result){
			.outcome = (enum skein_outcome)news->outcome,
			.status = news->status,
			.len = news->len};
		if (!news->status && news->outcome == SKEIN_DONE)
			res.data = buf ? buf->addr : (void *)(news + 1);
		/* done() makes another call with it, often. */
		async_free(s, a);
		if (buf) {
			buf->next = s->shown;
			s->shown = buf;
		}
		a->done(a->arg, &res);
		if (buf) {
			s->shown = buf->next;
			buf->end(buf);
		}
		/* Inside another done(), whose entry is older and in use, the
		 * room stays taken until that one is through. */
		if (s->depth == 1)
			s->reserved -= room;
		else
			inner += room;
	}
	s->depth--;
	s->inner += inner;
	if (!s->depth) {
		s->reserved -= s->inner;
		s->inner = 0;
	}
	return n;
}

static bool inbox_filled(void *arg)
{
	struct rpc_seat *s = arg;

	return s->read !=
	       atomic_load_explicit(&s->written, memory_order_acquire);
}

int rpc_seat_sweep(struct rpc_seat *s)
{
	int moved;

	/* Acquire pairs with rpc_seat_left(): an orphan's, and its thread has
	 * done with it. */
	if (atomic_load_explicit(&s->swept, memory_order_acquire))
		return 0;
	drop_shown(s);
	moved = rpc_seat_reap(s);
	/* Release pairs with the acquire in rpc_seat_idle(): from here on it is
	 * whose it will be. */
	if (atomic_load_explicit(&s->ended, memory_order_relaxed) == s->begun)
		atomic_store_explicit(&s->swept, true, memory_order_release);
	return moved;
}

/* At a thread's first asynchronous call. */
static int inbox_make(struct rpc_seat *s, struct rpc_ctx *rx)
{
	struct skein_env *env = conn_env(s->seat->handle);
	uint32_t n = ASYNC_MAX;

	s->inbox_max = (uint32_t)(sizeof(struct rpc_news) +
				  rx->conf.resp_inline + RPC_LINE);
	s->inbox_len = (uint32_t)doubled_to(INBOX_LEN, s->inbox_max);
	if (!s->block)
		s->block = env_alloc(env, n * sizeof(*s->block));
	if (!s->block)
		return -ENOMEM;
	s->inbox =
		env_alloc_aligned(env, RPC_LINE, s->inbox_len + s->inbox_max);
	if (!s->inbox)
		return -ENOMEM;
	while (n--) {
		s->block[n].seat = s;
		async_free(s, &s->block[n]);
	}
	return 0;
}

/* --- life --------------------------------------------------------------- */

int rpc_seat_taken(struct skein_conn *handle, struct conn_seat *seat)
{
	struct rpc_seat *s = rpc_seat_of(seat);

	if (!s) {
		s = env_alloc_aligned(conn_env(handle), 64, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->seat = seat;
		s->env = conn_env(handle);
		seat->modules[CONN_MODULE_RPC - 1] = s;
	}
	s->sizes = (struct thrsched_sizes){0};
	/* What is left of one that ended inside a done(): nothing is under way. */
	s->reserved = s->inner = 0;
	s->depth = 0;
	atomic_store_explicit(&s->passed, 0, memory_order_relaxed);
	atomic_store_explicit(&s->orphan, false, memory_order_relaxed);
	return 0;
}

void rpc_seat_left(struct skein_conn *handle, struct conn_seat *seat)
{
	struct rpc_seat *s = rpc_seat_of(seat);

	/* Release pairs with async_done() and rpc_seat_sweep(). */
	atomic_store_explicit(&s->swept, false, memory_order_release);
	atomic_store_explicit(&s->orphan, true, memory_order_release);
}

/* Has the server read all that its thread has sent on this lane? Asks for news
 * where it has not. */
static bool has_passed(struct rpc_seat *s, struct rpc_conn *rc)
{
	uint64_t to = atomic_load_explicit(&s->passed, memory_order_relaxed);

	if (!to || !rc ||
	    atomic_load_explicit(&rc->client.rx.req_head,
				 memory_order_relaxed) >= to)
		return true;
	if (!atomic_exchange_explicit(&rc->share->want_head, true,
				      memory_order_relaxed))
		engine_kick(rc->engine);
	return false;
}

bool rpc_seat_idle(struct skein_conn *handle, struct conn_seat *seat)
{
	struct rpc_seat *s = rpc_seat_of(seat);
	uint16_t lane;

	if (!s)
		return true;
	if (atomic_load_explicit(&s->orphan, memory_order_relaxed))
		/* Acquire pairs with the release in rpc_seat_sweep(). */
		return atomic_load_explicit(&s->swept, memory_order_acquire);
	/* Its own thread's question. Acquire: count_ended(). */
	if (atomic_load_explicit(&s->ended, memory_order_acquire) != s->begun)
		return false;
	lane = atomic_load_explicit(&seat->lane, memory_order_relaxed);
	return has_passed(s, rpc_conn_of(conn_lane(handle, lane)));
}

void rpc_seat_free(struct skein_conn *handle, struct conn_seat *seat)
{
	struct skein_env *env = conn_env(handle);
	struct rpc_seat *s = rpc_seat_of(seat);

	if (!s)
		return;
	drop_shown(s);
	rpc_seat_reap(s); /* each call ends once, reaped or not */
	env_free(env, s->inbox);
	env_free(env, s->block);
	env_free(env, s);
	seat->modules[CONN_MODULE_RPC - 1] = NULL;
}

/* --- sending ------------------------------------------------------------ */

static void count_call(struct rpc_seat *s, size_t len)
{
	uint32_t n = atomic_load_explicit(&s->requests, memory_order_relaxed);

	/* Relaxed: statistics. */
	thrsched_sizes_add(&s->sizes, (uint32_t)len);
	atomic_store_explicit(&s->requests, n + 1, memory_order_relaxed);
	atomic_store_explicit(
		&s->bytes,
		atomic_load_explicit(&s->bytes, memory_order_relaxed) + len,
		memory_order_relaxed);
	if (n % MEDIAN_EVERY == 0 || n < 8)
		atomic_store_explicit(&s->median,
				      thrsched_sizes_median(&s->sizes),
				      memory_order_relaxed);
}

static void large_run(struct engine_call *call)
{
	struct rpc_pending *p = container_of(call, struct rpc_pending, call);

	rpc_pending_start(p->rc, p);
}

/* Where the answer will come. */
static void call_goes_by(skein_rpc_done_fn *done, void *arg,
			 struct rpc_conn *rc)
{
	if (done == async_done)
		((struct rpc_async *)arg)->rc = rc;
	else
		((struct rpc_waiting *)arg)->rc = rc;
}

/* The owner sends it: it takes memory of its own. While it has not, the thread
 * is held. */
static int send_large(struct rpc_seat *s, struct rpc_conn *rc,
		      const struct rpc_client_req *r, struct rpc_pending *p)
{
	bool own = !p;

	if (own)
		p = env_alloc(conn_env(rc->conn), sizeof(*p) + r->len);
	if (!p)
		return -ENOMEM;
	*p = (struct rpc_pending){.rc = rc,
				  .id = r->id,
				  .thread = r->thread,
				  .held = &s->seat->held,
				  .req = own ? p + 1 : r->payload,
				  .req_len = r->len,
				  .resp_max = r->resp_max,
				  .timeout_ns = r->timeout_ns,
				  .done = r->done,
				  .arg = r->arg,
				  .own = own};
	if (own)
		memcpy(p + 1, r->payload, r->len);
	p->call.fn = large_run;
	atomic_fetch_add_explicit(&s->seat->held, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&rc->foreign, 1, memory_order_relaxed);
	engine_post(rc->engine, &p->call);
	return 0;
}

/* One attempt, conn_check() being done: 0, -EAGAIN, or an error. stack: of a caller who waits, for a
 * large request. */
static int send_once(struct rpc_seat *s, struct rpc_client_req *r,
		     struct rpc_pending *stack)
{
	struct conn_seat *seat = s->seat;
	struct rpc_conn *rc;
	int err;

	if (__builtin_expect(conn_seat_held(seat), 0))
		return -EAGAIN;
	rc = lane_of(s);
	if (__builtin_expect(!rc, 0))
		return -ENOTCONN;
	call_goes_by(r->done, r->arg, rc);
	s->begun++;
	if (__builtin_expect(r->len > rc->ctx->conf.msg_max - RPC_REQ_ROOM,
			     0)) {
		err = send_large(s, rc, r, stack);
	} else {
		err = rpc_share_call(rc, &seat->req, r);
	}
	if (err)
		s->begun--;
	else
		count_call(s, r->len);
	return err;
}

struct rpc_conn *rpc_seat_moves(struct rpc_pending *p)
{
	struct skein_conn *head = conn_lane_head(p->rc->conn);
	struct conn_seat *seat = conn_seat_at(head, p->thread);
	uint16_t wanted =
		atomic_load_explicit(&seat->lane_wanted, memory_order_relaxed);
	struct rpc_conn *to = rpc_conn_of(conn_lane(head, wanted));
	struct rpc_seat *s = rpc_seat_of(seat);

	/* What its thread has begun stands still while it is held. */
	if (!to || to == p->rc || !to->up || !to->share->active ||
	    s->begun - atomic_load_explicit(&s->ended, memory_order_relaxed) !=
		    1 ||
	    !has_passed(s, p->rc) ||
	    seat->wrs_begun != atomic_load_explicit(&seat->wrs_ended,
						    memory_order_relaxed))
		return NULL;
	/* Relaxed: the thread looks when it is not held any more. */
	atomic_store_explicit(&seat->lane, wanted, memory_order_relaxed);
	call_goes_by(p->done, p->arg, to);
	p->rc = to;
	return to;
}

void rpc_seats_reset(struct skein_conn *head)
{
	unsigned n = conn_seats(head);
	struct rpc_seat *s;

	for (unsigned i = 0; i < n; i++) {
		s = rpc_seat_of(conn_seat_at(head, i));
		if (s)
			atomic_store_explicit(&s->passed, 0,
					      memory_order_relaxed);
	}
}

/* --- without room ------------------------------------------------------- */

static bool may_look(void *arg)
{
	struct rpc_hungry *hungry = arg;

	return atomic_load_explicit(&hungry->look, memory_order_acquire);
}

static uint64_t deadline_of(uint64_t now, uint64_t timeout_ns)
{
	return timeout_ns < ENV_NEVER - now ? now + timeout_ns : ENV_NEVER;
}

/* Tries whenever there may be room, until the deadline. */
static int send_hungry(struct rpc_seat *s, struct rpc_handle *h,
		       struct rpc_client_req *r, struct rpc_waiting *w)
{
	struct engine *e = conn_engine(h->head);
	uint64_t now = env_now_ns(h->env),
		 end = deadline_of(now, r->timeout_ns);
	struct rpc_hungry hungry = {.seat = s->seat};
	int err;

	rpc_handle_join(h, &hungry);
	for (;;) {
		/* Before the attempt: what changes after it is told. */
		atomic_store_explicit(&hungry.look, false,
				      memory_order_relaxed);
		if (end != ENV_NEVER)
			r->timeout_ns = end > now ? end - now : 0;
		err = r->timeout_ns ? conn_check(h->head) : -ETIMEDOUT;
		if (!err)
			err = send_once(s, r, &w->pending);
		if (err != -EAGAIN)
			break;
		(void)engine_run_on(e, w->sleep, may_look, &hungry, end);
		now = env_now_ns(h->env);
	}
	rpc_handle_leave(h, &hungry);
	return err;
}

/* --- calls -------------------------------------------------------------- */

/* Owner. */
static void waiting_done(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_waiting *w = arg;
	struct rpc_seat *s = w->seat;
	struct conn_seat *seat = s->seat;

	*w->res = *res;
	w->res->data = NULL;
	if (__builtin_expect(res->outcome == SKEIN_DONE && !res->status, 1)) {
		w->res->data = w->resp;
		if (res->len)
			w->buf = take_buf(w->rc);
		if (res->len && !w->buf)
			memcpy(w->resp, res->data, res->len);
	}
	count_ended(s, w->rc, res);
	/* Release: its thread sees the result, and w is its own again. The
	 * seat stays as long as the handle. */
	atomic_store_explicit(&w->ended, true, memory_order_release);
	wake(s, seat);
}

static bool waiting_ended(void *arg)
{
	struct rpc_waiting *w = arg;

	return atomic_load_explicit(&w->ended, memory_order_acquire);
}

/* w is written by the owner: from here on the thread is not cancelled. */
static inline int call_and_wait(struct rpc_seat *s, struct rpc_handle *h,
				struct rpc_client_req *r, struct rpc_waiting *w)
{
	int err = -EAGAIN;

	/* Nobody who waits for room is overtaken. */
	if (__builtin_expect(!atomic_load_explicit(&h->n_hungry,
						   memory_order_relaxed),
			     1))
		err = send_once(s, r, &w->pending);
	if (__builtin_expect(err == -EAGAIN, 0))
		err = send_hungry(s, h, r, w);
	if (err)
		return err;
	err = engine_run_on(w->rc->engine, w->sleep, waiting_ended, w,
			    ENV_NEVER);
	if (__builtin_expect(w->buf != NULL, 0)) {
		memcpy(w->resp, w->buf->addr, w->res->len);
		w->buf->end(w->buf);
	}
	return err;
}

int rpc_shared_call(struct rpc_conn *rc, struct rpc_client_req *r, void *resp,
		    struct skein_rpc_result *res)
{
	struct rpc_handle *h = rc->share->handle;
	struct conn_seat *seat;
	struct rpc_waiting w;
	int err, cancel;

	cancel = env_cancel_off(h->env);
	err = conn_seat(h->head, &seat);
	if (__builtin_expect(!err, 1))
		err = conn_seat_waiter(seat, &w.sleep);
	if (__builtin_expect(err != 0, 0)) {
		env_cancel_back(h->env, cancel);
		return err;
	}
	w.seat = rpc_seat_of(seat);
	w.resp = resp;
	w.buf = NULL;
	w.res = res;
	atomic_init(&w.ended, false);
	r->thread = seat->number;
	r->done = waiting_done;
	r->arg = &w;
	err = call_and_wait(w.seat, h, r, &w);
	env_cancel_back(h->env, cancel);
	if (w.seat->inbox)
		rpc_seat_reap(w.seat);
	return err;
}

static int call_async(struct skein_conn *conn, struct rpc_client_req *r)
{
	struct rpc_ctx *rx = conn_ctx_module(conn_ctx(conn), CONN_MODULE_RPC);
	size_t most = rx->conf.resp_inline + RPC_LINE;
	struct conn_seat *seat;
	struct rpc_async *a;
	struct rpc_seat *s;
	int err;

	err = conn_seat(conn, &seat);
	if (err)
		return err;
	s = rpc_seat_of(seat);
	if (!s->inbox) {
		err = inbox_make(s, rx);
		if (err)
			return err;
	}
	a = s->spare;
	if (!a)
		return -EAGAIN;
	a->room = (uint32_t)(sizeof(struct rpc_news) +
			     RPC_PAD8(r->resp_max < most ? r->resp_max : most));
	if (s->reserved + a->room > s->inbox_len)
		return -EAGAIN;
	a->done = r->done;
	a->arg = r->arg;
	s->spare = a->next;
	s->reserved += a->room;
	r->thread = seat->number;
	r->done = async_done;
	r->arg = a;
	err = send_once(s, r, NULL);
	if (err) {
		s->reserved -= a->room;
		async_free(s, a);
		return err;
	}
	/* Whoever runs the engine may sleep, and expect nothing. */
	env_waiter_wake(conn_env(conn), engine_waiter(conn_engine(conn)));
	return 0;
}

/* Sending and waking have points of cancellation; a thread that ended there
 * would be the leader, or in the lock of seats, for ever. */
int rpc_shared_call_async(struct skein_conn *conn, struct rpc_client_req *r)
{
	struct skein_env *env = conn_env(conn);
	int cancel = env_cancel_off(env);
	int err = call_async(conn, r);

	env_cancel_back(env, cancel);
	return err;
}

/* --- giving a call up --------------------------------------------------- */

struct cancelling {
	struct engine_call call;
	struct skein_conn *conn;
	struct rpc_wanted wanted;
	int err;
	atomic_bool ended;
};

/* Owner: one of a thread's asynchronous calls that are under way. */
static bool is_async(const struct rpc_wanted *w, skein_rpc_done_fn *done,
		     const void *arg)
{
	const struct rpc_async *a = arg;

	return done == async_done && a->done == w->done && a->arg == w->arg;
}

static int cancel_lanes(struct skein_conn *conn,
			const struct rpc_wanted *wanted)
{
	unsigned i, lanes = conn_lanes(conn);
	struct rpc_conn *rc;
	int err = -ENOENT;

	for (i = 0; err && i < lanes; i++) {
		rc = rpc_conn_of(conn_lane(conn, i));
		if (rc && rc->up)
			err = rpc_client_cancel(&rc->client, wanted);
		if (rc && err)
			err = rpc_pending_cancel(rc, wanted);
	}
	return err;
}

static void cancel_run(struct engine_call *call)
{
	struct cancelling *c = container_of(call, struct cancelling, call);

	c->err = cancel_lanes(c->conn, &c->wanted);
	/* Release: err; c is gone after it. */
	atomic_store_explicit(&c->ended, true, memory_order_release);
}

static bool cancel_ended(void *arg)
{
	struct cancelling *c = arg;

	return atomic_load_explicit(&c->ended, memory_order_acquire);
}

/* The owner may stay it for long: it does this, in the order of what was handed
 * to it. */
int rpc_shared_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		      const void *arg)
{
	struct cancelling c = {.conn = conn, .wanted = {is_async, done, arg}};
	struct skein_env *env = conn_env(conn);
	struct engine *e = conn_engine(conn);
	int err, cancel;

	if (engine_is_owner(e))
		return cancel_lanes(conn, &c.wanted);
	cancel = env_cancel_off(env);
	c.call.fn = cancel_run;
	engine_post(e, &c.call);
	err = engine_run_until(e, cancel_ended, &c, ENV_NEVER);
	env_cancel_back(env, cancel);
	return err ? err : c.err;
}

/* Until there is something to reap, or the deadline; a thread that is cancelled
 * here may be the engine's owner. */
static int wait_filled(struct rpc_seat *s, uint64_t timeout_ns)
{
	struct skein_conn *conn = s->seat->handle;
	struct skein_env *env = conn_env(conn);
	struct engine *e = conn_engine(conn);
	int cancel = env_cancel_off(env);
	struct env_waiter *w;
	int err = 0;

	if (timeout_ns && s->reserved) {
		err = conn_seat_waiter(s->seat, &w);
		if (!err)
			err = engine_run_on(e, w, inbox_filled, s,
					    deadline_of(env_now_ns(env),
							timeout_ns));
	} else if (engine_try_enter(e)) {
		/* Nothing to wait for: but who got -EAGAIN may need a round,
		 * which brings credits. */
		engine_poll(e);
		engine_leave(e);
	}
	env_cancel_back(env, cancel);
	return err == -ETIMEDOUT ? 0 : err;
}

int skein_rpc_reap(struct skein_conn *conn, uint64_t timeout_ns)
{
	struct conn_seat *seat;
	struct rpc_seat *s;
	int err, n;

	if (!conn || !conn_shared(conn) || !conn_is_client(conn))
		return -EOPNOTSUPP;
	/* The answers in the inbox are the parent's. */
	if (env_forked(conn_env(conn)))
		return -SKEIN_EFORKED;
	seat = conn_seat_find(conn);
	s = seat ? rpc_seat_of(seat) : NULL;
	if (!s)
		return 0;
	n = rpc_seat_reap(s);
	if (n)
		return n;
	err = wait_filled(s, timeout_ns);
	return err ? err : rpc_seat_reap(s);
}
