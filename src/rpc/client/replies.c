/* SPDX-License-Identifier: MIT */
/*
 * replies.c - the asynchronous calls of a connection's threads, and their
 * replies: a ring for each thread, in which it finds its results.
 *
 * The ring has one writer, the engine's owner, and one reader, the thread; when
 * the thread has ended the owner reads it too. The writer does not look for
 * room: a thread reserves `room` bytes when it makes a call, and never more
 * together than the ring has. An entry takes at most what its call reserved. At
 * the lap's end too: there the entry may run into the spill, and the rest of
 * the lap, which is less than the entry, is passed over. So positions written
 * and not yet read never span more than the ring, and by the argument of
 * docs/protocol/rpc.md, section 1, no entry is written over one that is not
 * read.
 */
#include <errno.h>
#include <string.h>

#include "base/pow2.h"
#include "conn/ctx.h"
#include "rpc/client/gather.h"

#define REPLIES_LEN (256u << 10)
#define ASYNC_MAX 1024u

/* --- the ring ----------------------------------------------------------- */

static uint64_t next_pos(const struct rpc_thread *s, uint64_t pos,
			 uint32_t size)
{
	return rpc_pos_next(s->replies_len, pos, size);
}

static struct rpc_reply *reply_at(const struct rpc_thread *s, uint64_t pos)
{
	return (void *)(s->replies + (pos & (s->replies_len - 1)));
}

/* The message has a result longer than its reservation. The client finds that
 * out only when it has taken the whole message. */
static struct skein_rpc_result too_long(struct rpc_async *a, uint32_t len)
{
	conn_break(a->rc->conn, -SKEIN_EPEER,
		   "rpc: a result of %u bytes in a message", len);
	return (struct skein_rpc_result){.outcome = SKEIN_UNKNOWN,
					 .status = -SKEIN_EPEER};
}

static void put_reply(struct rpc_async *a, struct skein_rpc_result res)
{
	struct rpc_thread *s = a->rec;
	uint64_t pos = atomic_load_explicit(&s->written, memory_order_relaxed);
	struct rpc_reply *reply = reply_at(s, pos);
	uint32_t len = (uint32_t)res.len;

	reply->call = a;
	reply->buf = len ? rpc_take_buf(a->rc) : NULL;
	reply->size = sizeof(*reply);
	if (!reply->buf && RPC_PAD8(res.len) > a->room - sizeof(*reply)) {
		res = too_long(a, len);
	} else if (len && !reply->buf) {
		memcpy(reply + 1, res.data, len);
		reply->size += RPC_PAD8(len);
	}
	reply->len = (uint32_t)res.len;
	reply->outcome = (int16_t)res.outcome;
	reply->status = (int16_t)res.status;
	/* Release pairs with the acquire in rpc_thread_reap(). */
	atomic_store_explicit(&s->written, next_pos(s, pos, reply->size),
			      memory_order_release);
}

static void async_free(struct rpc_thread *s, struct rpc_async *a)
{
	s->unreaped--;
	a->next = s->spare;
	s->spare = a;
}

/* Runs done() of what is in the replies. Calls that these make are gathered, and
 * do not leave here. */
static int replies_run(struct rpc_thread *s)
{
	uint32_t inner = 0, room;
	struct skein_rpc_result res;
	struct rpc_reply *reply;
	struct rpc_buf *buf;
	struct rpc_async *a;
	int n;

	s->depth++;
	/* Acquire pairs with the release in put_reply(). */
	for (n = 0;
	     s->read != atomic_load_explicit(&s->written, memory_order_acquire);
	     n++) {
		reply = reply_at(s, s->read);
		s->read = next_pos(s, s->read, reply->size);
		a = reply->call;
		buf = reply->buf;
		room = a->room;
		res = (struct skein_rpc_result){
			.outcome = (enum skein_outcome)reply->outcome,
			.status = reply->status,
			.len = reply->len};
		if (!reply->status && reply->outcome == SKEIN_DONE)
			res.data = buf ? buf->addr : (void *)(reply + 1);
		s->reaped++;
		if (__builtin_expect(s->gathers & RPC_BOUNDED, 0))
			rpc_gather_ended(s, a);
		/* Often done() makes another call with it. */
		async_free(s, a);
		if (buf) {
			buf->next = s->shown;
			s->shown = buf;
		}
		s->gathers++;
		a->done(a->arg, &res);
		s->gathers--;
		if (buf) {
			s->shown = buf->next;
			buf->end(buf);
		}
		/* Inside another done(), which uses an older entry, the room
		 * stays taken until the outer done() has returned. */
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

/* Owner, which is also the thread that made the call: runs done() at once. The
 * result stays where it is. */
static void tell_directly(struct rpc_async *a,
			  const struct skein_rpc_result *res)
{
	struct rpc_lane_client *sh = a->rc->lane_client;
	struct rpc_thread *s = a->rec;
	skein_rpc_done_fn *done = a->done;
	struct skein_rpc_result end;
	void *arg = a->arg;

	/* Older ones first. What these gather leaves behind the round, too.
	 * Relaxed: only the owner, which this thread is, writes there. */
	if (__builtin_expect(s->read !=
				     atomic_load_explicit(&s->written,
							  memory_order_relaxed),
			     0))
		replies_run(s);
	if (!a->rc->client.rx.result_buf &&
	    RPC_PAD8(res->len) > a->room - sizeof(struct rpc_reply)) {
		end = too_long(a, (uint32_t)res->len);
		res = &end;
	}
	s->reserved -= a->room;
	s->reaped++;
	rpc_thread_unanswered(s, a->rc, res->outcome);
	if (__builtin_expect(s->gathers & RPC_BOUNDED, 0))
		rpc_gather_ended(s, a);
	async_free(s, a);
	rpc_thread_ended(s);
	s->gathers++;
	done(arg, res);
	s->gathers--;
	if (!s->gather->n)
		return;
	/* They leave with the calls gathered later in this round. */
	if (sh->in_round)
		sh->gathered = s;
	else
		rpc_thread_send_gathered(s);
}

/* Owner: an asynchronous call has ended. */
void rpc_async_done(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_async *a = arg;
	struct rpc_thread *s = a->rec;
	struct conn_thread *rec = s->rec;
	struct rpc_conn *rc = a->rc;

	/* Acquire pairs with the release in rpc_thread_left(): the thread
	 * touches its record no more. */
	if (atomic_load_explicit(&s->orphan, memory_order_acquire)) {
		rpc_thread_reap(s); /* older ones first */
		a->done(a->arg, res);
		s->reserved -= a->room;
		a->begun_ns = 0;
		async_free(s, a);
		rpc_thread_unanswered(s, rc, res->outcome);
		rpc_thread_ended(s);
		rpc_thread_sweep(s);
		return;
	}
	if (engine_runs_in(rc->engine,
			   atomic_load_explicit(&rec->thread,
						memory_order_relaxed))) {
		tell_directly(a, res);
		return;
	}
	put_reply(a, *res);
	rpc_thread_unanswered(s, rc, res->outcome);
	rpc_thread_ended(s);
	rpc_lane_client_replied(rc->lane_client, rec);
}

/* The thread ended inside a done(): frees the results that were shown to it. */
void rpc_thread_drop_shown(struct rpc_thread *s)
{
	struct rpc_buf *buf;

	while ((buf = s->shown)) {
		s->shown = buf->next;
		buf->end(buf);
	}
}

int rpc_thread_reap(struct rpc_thread *s)
{
	int n;

	if (!s->replies)
		return 0;
	n = replies_run(s);
	if (!s->depth)
		rpc_thread_send_gathered(s);
	return n;
}

int rpc_thread_take(struct conn_thread *rec)
{
	return rpc_thread_reap(rpc_thread_of(rec));
}

/* What a thread that waits for its asynchronous calls knows. */
struct waiting_end {
	struct rpc_thread *rec;
	uint64_t reaped; /* before the wait */
};

static bool has_ended(void *arg)
{
	const struct waiting_end *r = arg;
	struct rpc_thread *s = r->rec;

	if (s->reaped != r->reaped)
		return true;

	return s->read !=
	       atomic_load_explicit(&s->written, memory_order_acquire);
}

void rpc_async_undo(struct rpc_thread *s, struct rpc_async *a)
{
	s->reserved -= a->room;
	a->begun_ns = 0;
	async_free(s, a);
}

int rpc_thread_sweep(struct rpc_thread *s)
{
	int moved;

	/* Acquire pairs with the release in rpc_thread_left(): the owner that
	 * reads false sees all that the ended thread did to the record. */
	if (atomic_load_explicit(&s->swept, memory_order_acquire))
		return 0;
	/* What it gathered leaves in the next round. Until then the record is no
	 * other thread's: its call would be posted twice. */
	if (s->gather && s->gather->posted)
		return 0;
	rpc_thread_drop_shown(s);
	moved = rpc_thread_drop_gathered(s);
	moved += rpc_thread_reap(s);
	/* Release pairs with the acquire in rpc_thread_idle(): a thread that
	 * reads true may take the record, and sees what the owner did to it. */
	if (atomic_load_explicit(&s->ended, memory_order_relaxed) == s->begun)
		atomic_store_explicit(&s->swept, true, memory_order_release);
	return moved;
}

/* Makes the ring of replies at the thread's first asynchronous call. */
static int replies_make(struct rpc_thread *s, struct rpc_ctx *rx)
{
	struct skein_env *env = conn_env(s->rec->handle);
	uint32_t n = ASYNC_MAX;

	s->replies_max = (uint32_t)(sizeof(struct rpc_reply) +
				    rx->conf.resp_inline + RPC_LINE);
	s->replies_len = (uint32_t)doubled_to(REPLIES_LEN, s->replies_max);
	if (!s->block)
		s->block = env_alloc(env, n * sizeof(*s->block));
	if (!s->block || (!s->gather && rpc_gather_make(s)))
		return -ENOMEM;
	/* Not env_alloc_aligned(), which writes to all of it: what no reply has
	 * come to yet stays untouched. */
	s->replies_mem =
		env_alloc(env, s->replies_len + s->replies_max + RPC_LINE - 1);
	if (!s->replies_mem)
		return -ENOMEM;
	s->replies = (void *)(((uintptr_t)s->replies_mem + RPC_LINE - 1) &
			      ~(uintptr_t)(RPC_LINE - 1));
	s->unreaped = n;
	while (n--) {
		s->block[n].rec = s;
		s->block[n].begun_ns = 0;
		async_free(s, &s->block[n]);
	}
	return 0;
}

/* --- calls -------------------------------------------------------------- */

/* The calling thread's record, with replies. Makes what is missing. */
static __attribute__((noinline)) int thread_anew(struct skein_conn *conn,
						 struct rpc_thread **out)
{
	ENV_HOLD_CANCEL();
	struct conn_thread *rec;
	struct rpc_thread *s;
	int err = conn_thread(conn, &rec);

	if (err)
		return err;
	s = rpc_thread_of(rec);
	if (!s->replies)
		err = replies_make(s, conn_ctx_module(conn_ctx(conn),
						      CONN_MODULE_RPC));
	if (!err)
		*out = s;
	return err;
}

/* The calling thread's record if it has replies, else NULL. */
static inline struct rpc_thread *plain_thread(struct skein_conn *conn)
{
	struct conn_thread *rec = conn_thread_find(conn);
	struct rpc_thread *s = rec ? rpc_thread_of(rec) : NULL;

	return __builtin_expect(s && s->replies, 1) ? s : NULL;
}

int rpc_async_begin(struct rpc_thread *s, struct rpc_client_req *r)
{
	/* bytes of the longest result that a message may bring */
	size_t most = s->replies_max - sizeof(struct rpc_reply);
	struct rpc_async *a = s->spare;

	if (!a)
		return -EAGAIN;
	a->room = (uint32_t)(sizeof(struct rpc_reply) +
			     RPC_PAD8(r->resp_max < most ? r->resp_max : most));
	if (s->reserved + a->room > s->replies_len)
		return -EAGAIN;
	a->done = r->done;
	a->arg = r->arg;
	s->spare = a->next;
	s->unreaped++;
	s->reserved += a->room;
	r->thread = s->rec->number;
	r->done = rpc_async_done;
	r->arg = a;
	return 0;
}

void rpc_tell_owner(struct skein_conn *conn)
{
	env_waiter_wake(conn_env(conn), engine_waiter(conn_engine(conn)));
}

int rpc_thread_send_async(struct rpc_thread *s, struct rpc_client_req *r)
{
	int err = rpc_async_begin(s, r);

	if (err)
		return err;
	err = rpc_thread_send(s, r, NULL);
	if (err)
		rpc_async_undo(s, r->arg);
	return err;
}

static inline int call_async(struct skein_conn *conn, struct rpc_thread *s,
			     struct rpc_client_req *r)
{
	int err;

	while (rpc_gathers_now(conn, s)) {
		err = rpc_gather(s, r);
		if (err <= 0)
			return err;
	}
	err = rpc_thread_send_async(s, r);
	if (!err)
		rpc_tell_owner(conn);
	return err;
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

/* How many calls, from the first on, may go in one message by their own
 * lengths. 0: the first goes in memory of its own. */
static unsigned batch_len(struct skein_conn *conn,
			  const struct skein_rpc_entry *calls, unsigned n)
{
	struct rpc_ctx *rx = conn_ctx_module(conn_ctx(conn), CONN_MODULE_RPC);
	unsigned i;

	for (i = 0; i < n && i < COMBINER_BOUND; i++)
		if (calls[i].req_len > rx->conf.msg_max - RPC_REQ_ROOM)
			break;
	return i;
}

/* Sends one message of at most COMBINER_BOUND calls: *begun of them; at least
 * one when it returns 0. */
static int batch_send(struct rpc_thread *s, const struct skein_rpc_entry *calls,
		      unsigned n, unsigned *begun)
{
	struct rpc_client_req r[COMBINER_BOUND];
	unsigned i, sent = 0;
	int err = 0;

	for (i = 0; i < n; i++) {
		r[i] = req_of(&calls[i]);
		err = rpc_async_begin(s, &r[i]);
		if (err)
			break;
	}
	if (i)
		err = rpc_thread_send_some(s, r, i, &sent);
	/* The last first: then the spare list has its old order. */
	while (i-- > sent)
		rpc_async_undo(s, r[i].arg);
	*begun = sent;
	return err;
}

static int call_batch(struct skein_conn *conn, struct rpc_thread *s,
		      const struct skein_rpc_entry *calls, unsigned n,
		      unsigned *begun)
{
	unsigned some, done = 0;
	struct rpc_client_req r;
	int err = 0;

	rpc_thread_send_gathered(s);
	while (!err && done < n) {
		some = batch_len(conn, calls + done, n - done);
		if (some > 1) {
			err = batch_send(s, calls + done, some, &some);
		} else {
			r = req_of(&calls[done]);
			err = rpc_thread_send_async(s, &r);
			some = !err;
		}
		done += some;
	}
	if (done)
		rpc_tell_owner(conn);
	if (err && !done)
		return err;
	*begun = done;
	return 0;
}

int rpc_handle_call_async(struct skein_conn *conn, struct rpc_client_req *r)
{
	struct rpc_thread *s = plain_thread(conn);
	int err = s ? 0 : thread_anew(conn, &s);

	return __builtin_expect(err == 0, 1) ? call_async(conn, s, r) : err;
}

int rpc_handle_call_batch(struct skein_conn *conn,
			  const struct skein_rpc_entry *calls, unsigned n,
			  unsigned *begun)
{
	struct rpc_thread *s = plain_thread(conn);
	int err = s ? 0 : thread_anew(conn, &s);

	return err ? err : call_batch(conn, s, calls, n, begun);
}

/* --- giving a call up --------------------------------------------------- */

/* How long a thread waits for the engine's owner. */
#define CANCEL_MAX_NS (1000 * 1000 * 1000ull)

/* Owner: is this the asynchronous call that is wanted? */
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
	struct rpc_thread *s = container_of(c, struct rpc_thread, cancelling);
	struct conn_thread *rec = s->rec;

	c->err = cancel_lanes(rec->handle, &c->wanted);
	/* Release pairs with the acquire in cancel_ended(): the thread sees
	 * err, and c is its own again. */
	atomic_store_explicit(&c->under_way, false, memory_order_release);
}

static bool cancel_ended(void *arg)
{
	struct rpc_cancelling *c = arg;

	return !atomic_load_explicit(&c->under_way, memory_order_acquire);
}

/* The engine's owner cancels the call, in the order of the closures posted to
 * it. */
static int cancel_by_owner(struct rpc_thread *s, struct engine *e,
			   const struct rpc_wanted *wanted)
{
	struct rpc_cancelling *c = &s->cancelling;
	uint64_t end = env_now_ns(s->env) + CANCEL_MAX_NS;
	int err;

	/* The thread's last cancellation may still be under way. */
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

int rpc_handle_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		      const void *arg)
{
	struct rpc_wanted wanted = {is_async, done, arg};
	struct engine *e = conn_engine(conn);
	struct conn_thread *rec;
	struct rpc_thread *s;
	int err = conn_thread(conn, &rec);

	if (err)
		return err;
	s = rpc_thread_of(rec);
	/* The wanted call may be a gathered one. */
	rpc_thread_send_gathered(s);
	return engine_is_owner(e) ? cancel_lanes(conn, &wanted)
				  : cancel_by_owner(s, e, &wanted);
}

static int run_filled(struct waiting_end *r, struct engine *e,
		      struct env_waiter *w, uint64_t timeout_ns)
{
	struct rpc_thread *s = r->rec;

	/* At `look` the thread stops draining its lane, and may send. */
	uint64_t end, look = conn_thread_drained_ns(s->rec);
	struct engine_run how = {.done = has_ended, .arg = r, .w = w};

	if (__builtin_expect(look == ENV_NEVER, 1)) {
		how.timeout_ns = timeout_ns;
	} else {
		end = env_deadline(env_now_ns(s->env), timeout_ns);
		how.deadline_ns = look < end ? look : end;
	}
	return engine_run(e, &how);
}

/* Waits until there is something to reap, or until the deadline. */
static int wait_filled(struct waiting_end *r, uint64_t timeout_ns)
{
	struct rpc_thread *s = r->rec;

	struct skein_conn *conn = s->rec->handle;
	struct engine *e = conn_engine(conn);
	struct env_waiter *w;
	int err = 0;

	if (timeout_ns && s->reserved) {
		err = conn_thread_waiter(s->rec, &w);
		if (!err)
			err = run_filled(r, e, w, timeout_ns);
	} else if (engine_try_enter(e)) {
		/* There is nothing to wait for. But a thread that got -EAGAIN
		 * may need a round, which brings credits. */
		engine_poll(e);
		engine_leave(e);
	}
	return err == -ETIMEDOUT ? 0 : err;
}

int skein_rpc_reap(struct skein_conn *conn, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	struct waiting_end w_end;
	struct conn_thread *rec;
	struct rpc_thread *s;
	int err;

	if (!conn || !conn_is_client(conn))
		return -EOPNOTSUPP;
	/* The results in the replies are the parent's. */
	if (env_forked(conn_env(conn)))
		return -SKEIN_EFORKED;
	rec = conn_thread_find(conn);
	s = rec ? rpc_thread_of(rec) : NULL;
	if (!s)
		return 0;
	w_end = (struct waiting_end){s, s->reaped};
	rpc_thread_reap(s);
	if (s->reaped == w_end.reaped) {
		err = wait_filled(&w_end, timeout_ns);
		if (err)
			return err;
		rpc_thread_reap(s);
	}
	return (int)(s->reaped - w_end.reaped);
}
