/* SPDX-License-Identifier: MIT */
/*
 * inbox.c - the asynchronous calls of a handle's threads, and the inboxes in
 * which they find the answers.
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
 */
#include <errno.h>
#include <string.h>

#include "base/pow2.h"
#include "conn/ctx.h"
#include "rpc/inbox.h"

#define INBOX_LEN (256u << 10)
#define ASYNC_MAX 1024u

/* --- the ring ----------------------------------------------------------- */

static uint64_t next_pos(const struct rpc_seat *s, uint64_t pos, uint32_t size)
{
	return rpc_pos_next(s->inbox_len, pos, size);
}

static struct rpc_news *news_at(const struct rpc_seat *s, uint64_t pos)
{
	return (void *)(s->inbox + (pos & (s->inbox_len - 1)));
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
	news->buf = len ? rpc_take_buf(a->rc) : NULL;
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

static void send_gathered(struct rpc_seat *s);

static void async_free(struct rpc_seat *s, struct rpc_async *a)
{
	a->next = s->spare;
	s->spare = a;
}

/* Owner: by the thread that has made the call. The result stays where it is. */
static void tell_directly(struct rpc_async *a,
			  const struct skein_rpc_result *res)
{
	struct rpc_share *sh = a->rc->share;
	struct rpc_seat *s = a->seat;
	skein_rpc_done_fn *done = a->done;
	struct skein_rpc_result end;
	void *arg = a->arg;

	rpc_seat_reap(s); /* older ones first */
	if (!a->rc->client.rx.result_buf &&
	    RPC_PAD8(res->len) > a->room - sizeof(struct rpc_news)) {
		end = too_long(a, (uint32_t)res->len);
		res = &end;
	}
	s->reserved -= a->room;
	s->told++;
	rpc_seat_unanswered(s, a->rc, res->outcome);
	async_free(s, a);
	rpc_seat_ended(s);
	s->in_done++;
	done(arg, res);
	s->in_done--;
	if (!s->gather->n)
		return;
	/* With those of the calls that end behind it in this round. */
	if (sh->in_round)
		sh->gathered = s;
	else
		send_gathered(s);
}

/* Owner: an asynchronous call has ended. */
void rpc_async_done(void *arg, const struct skein_rpc_result *res)
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
		rpc_seat_unanswered(s, rc, res->outcome);
		rpc_seat_ended(s);
		rpc_seat_sweep(s);
		return;
	}
	if (engine_runs_in(rc->engine,
			   atomic_load_explicit(&seat->thread,
						memory_order_relaxed))) {
		tell_directly(a, res);
		return;
	}
	put_news(a, *res);
	rpc_seat_unanswered(s, rc, res->outcome);
	rpc_seat_ended(s);
	rpc_share_news(rc->share, seat);
}

/* Its thread ended inside a done(): the results that it was shown. */
void rpc_seat_drop_shown(struct rpc_seat *s)
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
		s->told++;
		/* done() makes another call with it, often. */
		async_free(s, a);
		if (buf) {
			buf->next = s->shown;
			s->shown = buf;
		}
		s->in_done++;
		a->done(a->arg, &res);
		s->in_done--;
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
		send_gathered(s);
	}
	return n;
}

int rpc_seat_take(struct conn_seat *seat)
{
	return rpc_seat_reap(rpc_seat_of(seat));
}

/* A thread that waits for its asynchronous calls. */
struct waiting_end {
	struct rpc_seat *seat;
	uint64_t told; /* before */
};

static bool has_ended(void *arg)
{
	const struct waiting_end *r = arg;
	struct rpc_seat *s = r->seat;

	if (s->told != r->told)
		return true;

	return s->read !=
	       atomic_load_explicit(&s->written, memory_order_acquire);
}

/* It was not sent. */
static void async_undo(struct rpc_seat *s, struct rpc_async *a)
{
	s->reserved -= a->room;
	async_free(s, a);
}

/* It has begun, and there is no way to send it. */
static void end_unsent(struct rpc_seat *s, const struct rpc_client_req *r,
		       int err)
{
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT,
				       .status = err};
	struct rpc_async *a = r->arg;
	skein_rpc_done_fn *done = a->done;
	void *arg = a->arg;

	async_undo(s, a);
	s->told++;
	done(arg, &res);
}

/* Calls that its thread made in the done() in which it ended. */
static int drop_gathered(struct rpc_seat *s)
{
	unsigned i, n = s->gather ? s->gather->n : 0;
	struct skein_conn *head = s->seat->handle;

	if (!n)
		return 0;
	for (i = 0; i < conn_lanes(head); i++)
		if (s->lanes[i] && s->lanes[i]->share->gathered == s)
			s->lanes[i]->share->gathered = NULL;
	s->gather->n = 0;
	for (i = 0; i < n; i++)
		end_unsent(s, &s->gather->req[i], -ECANCELED);
	return (int)n;
}

int rpc_seat_sweep(struct rpc_seat *s)
{
	int moved;

	/* Acquire pairs with rpc_seat_left(): an orphan's, and its thread has
	 * done with it. */
	if (atomic_load_explicit(&s->swept, memory_order_acquire))
		return 0;
	rpc_seat_drop_shown(s);
	moved = drop_gathered(s);
	moved += rpc_seat_reap(s);
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
	if (!s->gather)
		s->gather = env_alloc(env, sizeof(*s->gather));
	if (!s->block || !s->gather)
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

/* --- calls -------------------------------------------------------------- */

/* The calling thread's seat, with an inbox; its first time. */
static __attribute__((noinline)) int seat_anew(struct skein_conn *conn,
					       struct rpc_seat **out)
{
	ENV_HOLD_CANCEL();
	struct conn_seat *seat;
	struct rpc_seat *s;
	int err = conn_seat(conn, &seat);

	if (err)
		return err;
	s = rpc_seat_of(seat);
	if (!s->inbox)
		err = inbox_make(s, conn_ctx_module(conn_ctx(conn),
						    CONN_MODULE_RPC));
	if (!err)
		*out = s;
	return err;
}

/* The same if it has one, else NULL. */
static inline struct rpc_seat *plain_seat(struct skein_conn *conn)
{
	struct conn_seat *seat = conn_seat_find(conn);
	struct rpc_seat *s = seat ? rpc_seat_of(seat) : NULL;

	return __builtin_expect(s && s->inbox, 1) ? s : NULL;
}

/* The record of a call, and room for its answer: 0 or -EAGAIN. */
static int async_begin(struct rpc_seat *s, struct rpc_client_req *r)
{
	/* of an entry with as long a result as a message may bring */
	size_t most = s->inbox_max - sizeof(struct rpc_news);
	struct rpc_async *a = s->spare;

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
	r->thread = s->seat->number;
	r->done = rpc_async_done;
	r->arg = a;
	return 0;
}

/* Whoever runs the engine may sleep, and expect nothing. */
static void tell_owner(struct skein_conn *conn)
{
	env_waiter_wake(conn_env(conn), engine_waiter(conn_engine(conn)));
}

static int send_one(struct rpc_seat *s, struct rpc_client_req *r)
{
	int err = async_begin(s, r);

	if (err)
		return err;
	err = rpc_seat_send(s, r, NULL);
	if (err)
		async_undo(s, r->arg);
	return err;
}

static int gather(struct rpc_seat *s, struct rpc_client_req *r);

static inline int call_async(struct skein_conn *conn, struct rpc_seat *s,
			     struct rpc_client_req *r)
{
	int err;

	if (s->in_done)
		return gather(s, r);
	err = send_one(s, r);
	if (!err)
		tell_owner(conn);
	return err;
}

/* --- inside done() ------------------------------------------------------- */

/* What finds no room is the owner's to send: it has begun. */
static void send_gathered(struct rpc_seat *s)
{
	struct skein_conn *conn = s->seat->handle;
	struct rpc_gather *g = s->gather;
	struct rpc_client_req unsent[TCQ_BOUND];
	unsigned i, sent, n = g->n, left = 0;
	int err = 0;

	if (!n)
		return;
	for (i = 0; i < n && !err; i += sent)
		err = rpc_seat_send_some(s, g->req + i, n - i, &sent);
	if (err == -EAGAIN)
		i += rpc_seat_leave_to_owner(s, g->req + i, n - i);
	for (; i < n; i++)
		unsent[left++] = g->req[i];
	/* First: a done() may make calls. */
	g->n = 0;
	for (i = 0; i < left; i++)
		end_unsent(s, &unsent[i], err == -EAGAIN ? -ENOMEM : err);
	if (!engine_is_owner(conn_engine(conn)))
		tell_owner(conn);
}

void rpc_seat_send_gathered(struct rpc_seat *s)
{
	if (__builtin_expect(s->in_done != 0, 0) && s->gather)
		send_gathered(s);
}

void rpc_share_send_gathered(struct rpc_share *sh)
{
	struct rpc_seat *s = sh->gathered;

	sh->gathered = NULL;
	send_gathered(s);
}

static int gather(struct rpc_seat *s, struct rpc_client_req *r)
{
	struct rpc_gather *g = s->gather;
	int err;

	if (conn_seat_held(s->seat))
		return -EAGAIN;
	if (g->n == TCQ_BOUND || r->len > TCQ_INLINE) {
		send_gathered(s);
		if (conn_seat_held(s->seat))
			return -EAGAIN;
	}
	if (r->len > TCQ_INLINE)
		return send_one(s, r);
	err = async_begin(s, r);
	if (err)
		return err;
	if (r->len)
		memcpy(g->bytes[g->n], r->payload, r->len);
	r->payload = g->bytes[g->n];
	g->req[g->n++] = *r;
	return 0;
}

/* --- several at once ----------------------------------------------------- */

static struct rpc_client_req req_of(const struct skein_rpc_entry *call)
{
	return (struct rpc_client_req){.payload = call->req,
				       .len = call->req_len,
				       .resp_max = call->resp_max,
				       .timeout_ns = call->timeout_ns,
				       .done = call->done,
				       .arg = call->arg,
				       .id = call->id};
}

/* How many of them, from the first on, may go in one message, as far as that is
 * for them to say: 0 when the first goes by memory of its own. */
static unsigned batch_len(struct skein_conn *conn,
			  const struct skein_rpc_entry *calls, unsigned n)
{
	struct rpc_ctx *rx = conn_ctx_module(conn_ctx(conn), CONN_MODULE_RPC);
	unsigned i;

	for (i = 0; i < n && i < TCQ_BOUND; i++)
		if (calls[i].req_len > rx->conf.msg_max - RPC_REQ_ROOM)
			break;
	return i;
}

/* One message, of at most TCQ_BOUND calls: *begun of them, one at least when it
 * is 0. */
static int batch_send(struct rpc_seat *s, const struct skein_rpc_entry *calls,
		      unsigned n, unsigned *begun)
{
	struct rpc_client_req r[TCQ_BOUND];
	unsigned i, sent = 0;
	int err = 0;

	for (i = 0; i < n; i++) {
		r[i] = req_of(&calls[i]);
		err = async_begin(s, &r[i]);
		if (err)
			break;
	}
	if (i)
		err = rpc_seat_send_some(s, r, i, &sent);
	/* The last first: records are taken in the same order again. */
	while (i-- > sent)
		async_undo(s, r[i].arg);
	*begun = sent;
	return err;
}

static int call_batch(struct skein_conn *conn, struct rpc_seat *s,
		      const struct skein_rpc_entry *calls, unsigned n,
		      unsigned *begun)
{
	unsigned some, done = 0;
	struct rpc_client_req r;
	int err = 0;

	rpc_seat_send_gathered(s);
	while (!err && done < n) {
		some = batch_len(conn, calls + done, n - done);
		if (some > 1) {
			err = batch_send(s, calls + done, some, &some);
		} else {
			r = req_of(&calls[done]);
			err = send_one(s, &r);
			some = !err;
		}
		done += some;
	}
	if (done)
		tell_owner(conn);
	if (err && !done)
		return err;
	*begun = done;
	return 0;
}

int rpc_shared_call_async(struct skein_conn *conn, struct rpc_client_req *r)
{
	struct rpc_seat *s = plain_seat(conn);
	int err = s ? 0 : seat_anew(conn, &s);

	return __builtin_expect(err == 0, 1) ? call_async(conn, s, r) : err;
}

int rpc_shared_call_batch(struct skein_conn *conn,
			  const struct skein_rpc_entry *calls, unsigned n,
			  unsigned *begun)
{
	struct rpc_seat *s = plain_seat(conn);
	int err = s ? 0 : seat_anew(conn, &s);

	return err ? err : call_batch(conn, s, calls, n, begun);
}

/* --- giving a call up --------------------------------------------------- */

/* How long a thread waits for the thread that runs the engine. */
#define CANCEL_MAX_NS (1000 * 1000 * 1000ull)

/* Owner: one of a thread's asynchronous calls that are under way. */
static bool is_async(const struct rpc_wanted *w, skein_rpc_done_fn *done,
		     const void *arg)
{
	const struct rpc_async *a = arg;

	return done == rpc_async_done && a->done == w->done && a->arg == w->arg;
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
	struct rpc_cancelling *c =
		container_of(call, struct rpc_cancelling, call);
	struct rpc_seat *s = container_of(c, struct rpc_seat, cancelling);
	struct conn_seat *seat = s->seat;

	c->err = cancel_lanes(seat->handle, &c->wanted);
	/* Release: err; c is its thread's again. */
	atomic_store_explicit(&c->under_way, false, memory_order_release);
}

static bool cancel_ended(void *arg)
{
	struct rpc_cancelling *c = arg;

	return !atomic_load_explicit(&c->under_way, memory_order_acquire);
}

/* By the thread that runs the engine, in the order of what was handed to it. */
static int cancel_by_owner(struct rpc_seat *s, struct engine *e,
			   const struct rpc_wanted *wanted)
{
	struct rpc_cancelling *c = &s->cancelling;
	uint64_t end = env_now_ns(s->env) + CANCEL_MAX_NS;
	int err;

	/* The thread's last one, which it did not wait for. */
	err = engine_run_until(e, cancel_ended, c, end);
	if (err)
		return err;
	c->wanted = *wanted;
	c->call.fn = cancel_run;
	atomic_store_explicit(&c->under_way, true, memory_order_relaxed);
	engine_post(e, &c->call);
	err = engine_run_until(e, cancel_ended, c, end);
	return err ? err : c->err;
}

int rpc_shared_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		      const void *arg)
{
	struct rpc_wanted wanted = {is_async, done, arg};
	struct engine *e = conn_engine(conn);
	struct conn_seat *seat;
	struct rpc_seat *s;
	int err = conn_seat(conn, &seat);

	if (err)
		return err;
	s = rpc_seat_of(seat);
	/* It may be one of these. */
	rpc_seat_send_gathered(s);
	return engine_is_owner(e) ? cancel_lanes(conn, &wanted)
				  : cancel_by_owner(s, e, &wanted);
}

static int run_filled(struct waiting_end *r, struct engine *e,
		      struct env_waiter *w, uint64_t timeout_ns)
{
	struct rpc_seat *s = r->seat;

	/* It may have something to send then. */
	uint64_t end, look = conn_seat_drained_ns(s->seat);
	struct engine_run how = {.done = has_ended, .arg = r, .w = w};

	if (__builtin_expect(look == ENV_NEVER, 1)) {
		how.timeout_ns = timeout_ns;
	} else {
		end = env_deadline(env_now_ns(s->env), timeout_ns);
		how.deadline_ns = look < end ? look : end;
	}
	return engine_run(e, &how);
}

/* Until there is something to reap, or the deadline. */
static int wait_filled(struct waiting_end *r, uint64_t timeout_ns)
{
	struct rpc_seat *s = r->seat;

	struct skein_conn *conn = s->seat->handle;
	struct engine *e = conn_engine(conn);
	struct env_waiter *w;
	int err = 0;

	if (timeout_ns && s->reserved) {
		err = conn_seat_waiter(s->seat, &w);
		if (!err)
			err = run_filled(r, e, w, timeout_ns);
	} else if (engine_try_enter(e)) {
		/* Nothing to wait for: but who got -EAGAIN may need a round,
		 * which brings credits. */
		engine_poll(e);
		engine_leave(e);
	}
	return err == -ETIMEDOUT ? 0 : err;
}

int skein_rpc_reap(struct skein_conn *conn, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	struct waiting_end w_end;
	struct conn_seat *seat;
	struct rpc_seat *s;
	int err;

	if (!conn || !conn_is_client(conn))
		return -EOPNOTSUPP;
	/* The answers in the inbox are the parent's. */
	if (env_forked(conn_env(conn)))
		return -SKEIN_EFORKED;
	seat = conn_seat_find(conn);
	s = seat ? rpc_seat_of(seat) : NULL;
	if (!s)
		return 0;
	w_end = (struct waiting_end){s, s->told};
	rpc_seat_reap(s);
	if (s->told == w_end.told) {
		err = wait_filled(&w_end, timeout_ns);
		if (err)
			return err;
		rpc_seat_reap(s);
	}
	return (int)(s->told - w_end.told);
}
