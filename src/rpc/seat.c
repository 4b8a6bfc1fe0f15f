/* SPDX-License-Identifier: MIT */
/*
 * seat.c - the threads of a handle with lanes: how their calls are sent, and
 * those that block. A blocking call is answered into the caller's memory; its flag is
 * what it waits for. inbox.c has the others.
 */
#include <errno.h>
#include <string.h>

#include "conn/ctx.h"
#include "rpc/inbox.h"

/* How often a thread tells the median of its sizes: with each of its first
 * calls, then rarely. */
#define MEDIAN_EVERY 64u

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
	/* A handle whose lanes are up has one here. */
	s->lanes = rpc_conn_of(handle)->handle->lanes;
	/* For the scheduler, which has nothing to do where there is one lane. */
	s->counts = conn_lanes(handle) > 1;
	s->sizes = (struct thrsched_sizes){0};
	/* What is left of one that ended inside a done(): nothing is under way. */
	s->reserved = s->inner = 0;
	s->depth = s->in_done = 0;
	if (s->gather)
		s->gather->n = 0;
	atomic_store_explicit(&s->passed, 0, memory_order_relaxed);
	atomic_store_explicit(&s->orphan, false, memory_order_relaxed);
	return 0;
}

void rpc_seat_left(struct skein_conn *handle, struct conn_seat *seat)
{
	struct rpc_conn *rc = rpc_conn_of(handle);
	struct rpc_seat *s = rpc_seat_of(seat);

	/* Release pairs with rpc_async_done() and rpc_seat_sweep(). */
	atomic_store_explicit(&s->swept, false, memory_order_release);
	atomic_store_explicit(&s->orphan, true, memory_order_release);
	/* The handle stays until no thread is ending any more. */
	if (rc && rc->handle)
		atomic_fetch_add_explicit(&rc->handle->wants, RPC_LEAVING,
					  memory_order_relaxed);
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
				      memory_order_relaxed)) {
		rpc_client_attend(&rc->client);
		engine_kick(rc->engine);
	}
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
	/* Its own thread's question. Acquire: rpc_seat_ended(). */
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
	rpc_seat_drop_shown(s);
	rpc_seat_reap(s); /* each call ends once, reaped or not */
	env_free(env, s->inbox);
	env_free(env, s->block);
	env_free(env, s->gather);
	env_free(env, s);
	seat->modules[CONN_MODULE_RPC - 1] = NULL;
}

/* --- sending ------------------------------------------------------------ */

static void count_request(struct rpc_seat *s, size_t len)
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

void rpc_seat_wr(struct conn_seat *seat, size_t len)
{
	struct rpc_seat *s = rpc_seat_of(seat);

	if (s->counts)
		count_request(s, len);
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
	if (done == rpc_async_done)
		((struct rpc_async *)arg)->rc = rc;
	else
		((struct rpc_waiting *)arg)->rc = rc;
}

/* stack: of a thread that waits; else it takes memory of its own. */
static struct rpc_pending *pending_new(struct rpc_seat *s, struct rpc_conn *rc,
				       const struct rpc_client_req *r,
				       struct rpc_pending *stack)
{
	struct rpc_pending *p = stack;

	if (!p)
		p = env_alloc(conn_env(rc->conn), sizeof(*p) + r->len);
	if (!p)
		return NULL;
	*p = (struct rpc_pending){.rc = rc,
				  .id = r->id,
				  .thread = r->thread,
				  .held = &s->seat->held,
				  .req = stack ? r->payload : p + 1,
				  .req_len = r->len,
				  .resp_max = r->resp_max,
				  .timeout_ns = r->timeout_ns,
				  .done = r->done,
				  .arg = r->arg,
				  .own = !stack};
	if (!stack && r->len)
		memcpy(p + 1, r->payload, r->len);
	p->call.fn = large_run;
	return p;
}

/* The owner sends them. While it has not, the thread is held: it begins nothing.
 * All are counted before the first is posted: rpc_seat_moves(). */
static void leave_to_owner(struct rpc_seat *s, struct rpc_conn *rc,
			   struct rpc_pending *const *p, unsigned n)
{
	atomic_fetch_add_explicit(&s->seat->held, n, memory_order_relaxed);
	for (unsigned i = 0; i < n; i++)
		engine_post(rc->engine, &p[i]->call);
}

static int send_large(struct rpc_seat *s, struct rpc_conn *rc,
		      const struct rpc_client_req *r, struct rpc_pending *stack)
{
	struct rpc_pending *p = pending_new(s, rc, r, stack);

	if (!p)
		return -ENOMEM;
	leave_to_owner(s, rc, &p, 1);
	return 0;
}

/* Where what the thread begins now has to go. */
static inline int lane_now(struct rpc_seat *s, struct rpc_conn **rc)
{
	int lane;

	if (__builtin_expect(conn_seat_held(s->seat), 0))
		return -EAGAIN;
	lane = conn_seat_lane(s->seat);
	if (__builtin_expect(lane < 0, 0))
		return lane;
	*rc = s->lanes[(unsigned)lane];
	return __builtin_expect(*rc != NULL, 1) ? 0 : -ENOTCONN;
}

/* Inline: a call of its own is a good part of what it does. */
static inline int seat_send(struct rpc_seat *s, struct rpc_client_req *r,
			    struct rpc_pending *stack)
{
	struct rpc_conn *rc;
	int err = lane_now(s, &rc);

	if (__builtin_expect(err != 0, 0))
		return err;
	call_goes_by(r->done, r->arg, rc);
	s->begun++;
	if (__builtin_expect(r->len > rc->ctx->conf.msg_max - RPC_REQ_ROOM,
			     0)) {
		err = send_large(s, rc, r, stack);
	} else {
		err = rpc_share_call(rc, &s->seat->req, r);
	}
	if (__builtin_expect(err != 0, 0))
		s->begun--;
	else if (s->counts)
		count_request(s, r->len);
	return err;
}

unsigned rpc_seat_leave_to_owner(struct rpc_seat *s,
				 const struct rpc_client_req *r, unsigned n)
{
	uint16_t lane =
		atomic_load_explicit(&s->seat->lane, memory_order_relaxed);
	struct rpc_conn *rc = s->lanes[lane];
	struct rpc_pending *p[TCQ_BOUND];
	unsigned i;

	for (i = 0; rc && i < n; i++) {
		p[i] = pending_new(s, rc, &r[i], NULL);
		if (!p[i])
			break;
		call_goes_by(r[i].done, r[i].arg, rc);
	}
	s->begun += i;
	if (i)
		leave_to_owner(s, rc, p, i);
	return i;
}

int rpc_seat_send(struct rpc_seat *s, struct rpc_client_req *r,
		  struct rpc_pending *stack)
{
	return seat_send(s, r, stack);
}

int rpc_seat_send_some(struct rpc_seat *s, struct rpc_client_req *r, unsigned n,
		       unsigned *sent)
{
	struct rpc_conn *rc;
	int err = lane_now(s, &rc);
	unsigned i;

	*sent = 0;
	if (__builtin_expect(err != 0, 0))
		return err;
	for (i = 0; i < n; i++)
		call_goes_by(r[i].done, r[i].arg, rc);
	/* First of all: answers may come before we are back. */
	s->begun += n;
	err = rpc_share_calls(rc, &s->seat->req, r, n, sent);
	s->begun -= n - *sent;
	for (i = 0; i < *sent && s->counts; i++)
		count_request(s, r[i].len);
	return err;
}

struct rpc_conn *rpc_seat_moves(struct rpc_conn *rc, uint16_t thread,
				unsigned waiting)
{
	struct skein_conn *head = conn_lane_head(rc->conn);
	struct conn_seat *seat = conn_seat_at(head, thread);
	uint16_t wanted =
		atomic_load_explicit(&seat->lane_wanted, memory_order_relaxed);
	struct rpc_conn *to = rpc_conn_of(conn_lane(head, wanted));
	struct rpc_seat *s = rpc_seat_of(seat);

	/* All that are held wait here: none is on its way to this list, and
	 * what the thread has begun stands still. */
	if (!to || to == rc || !to->up || !to->share->active ||
	    atomic_load_explicit(&seat->held, memory_order_relaxed) !=
		    waiting ||
	    s->begun - atomic_load_explicit(&s->ended, memory_order_relaxed) !=
		    waiting ||
	    !has_passed(s, rc) ||
	    seat->wrs_begun != atomic_load_explicit(&seat->wrs_ended,
						    memory_order_relaxed))
		return NULL;
	/* Relaxed: the thread looks when it is not held any more. */
	atomic_store_explicit(&seat->lane, wanted, memory_order_relaxed);
	return to;
}

void rpc_seat_moved(struct rpc_pending *p, struct rpc_conn *to)
{
	call_goes_by(p->done, p->arg, to);
	p->rc = to;
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

/* Tries whenever there may be room, until the deadline. */
static int send_hungry(struct rpc_seat *s, struct rpc_handle *h,
		       struct rpc_client_req *r, struct rpc_waiting *w)
{
	struct engine *e = conn_engine(h->head);
	uint64_t now = env_now_ns(h->env), look,
		 end = env_deadline(now, r->timeout_ns);
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
			err = rpc_seat_send(s, r, &w->pending);
		if (err != -EAGAIN)
			break;
		look = conn_seat_drained_ns(s->seat);
		(void)engine_run_on(e, w->sleep, may_look, &hungry,
				    look < end ? look : end);
		now = env_now_ns(h->env);
	}
	rpc_handle_leave(h, &hungry);
	return err;
}

/* --- calls -------------------------------------------------------------- */

/* Owner: the result stays where it was fetched to; the waiting thread, which is
 * another one, copies it. */
static __attribute__((noinline)) void take_fetched(struct rpc_waiting *w)
{
	w->buf = rpc_take_buf(w->rc);
}

/* Owner: a result that is there. */
static inline void take_result(struct rpc_waiting *w, const void *data,
			       size_t len)
{
	if (__builtin_expect(
		    w->rc->client.rx.result_buf &&
			    !engine_runs_in(
				    w->rc->engine,
				    atomic_load_explicit(&w->seat->seat->thread,
							 memory_order_relaxed)),
		    0))
		take_fetched(w);
	else if (len)
		memcpy(w->resp, data, len);
}

/* Owner. */
static void waiting_done(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_waiting *w = arg;
	struct skein_rpc_result *out = w->res;
	struct rpc_seat *s;
	struct conn_seat *seat;
	struct engine *e;

	/* Field by field: what was just written field by field is not at hand
	 * as a whole. */
	out->outcome = res->outcome;
	out->status = res->status;
	out->len = res->len;
	if (__builtin_expect(res->outcome == SKEIN_DONE && !res->status, 1)) {
		out->data = w->resp;
		take_result(w, res->data, res->len);
	} else {
		out->data = NULL;
		rpc_seat_unanswered(w->seat, w->rc, res->outcome);
	}
	s = w->seat;
	seat = s->seat;
	e = w->rc->engine;
	rpc_seat_ended(s);
	/* Release: its thread sees the result, and w is its own again. The
	 * seat stays as long as the handle. */
	atomic_store_explicit(&w->ended, true, memory_order_release);
	rpc_seat_wake(e, seat);
}

static bool waiting_ended(void *arg)
{
	struct rpc_waiting *w = arg;

	return atomic_load_explicit(&w->ended, memory_order_acquire);
}

/* Until it has ended. */
static inline int await_end(struct rpc_waiting *w)
{
	struct engine *e = w->rc->engine;

	if (__builtin_expect(!waiting_ended(w) && engine_try_enter(e), 1))
		return engine_run_through(e, w->sleep, waiting_ended, w,
					  ENV_NEVER);
	return engine_run_on(e, w->sleep, waiting_ended, w, ENV_NEVER);
}

static inline int call_and_wait(struct rpc_seat *s, struct rpc_handle *h,
				struct rpc_client_req *r, struct rpc_waiting *w)
{
	int err = -EAGAIN;

	r->done = waiting_done;
	r->arg = w;
	/* Nobody who waits for room is overtaken. */
	if (__builtin_expect(!rpc_handle_hungry(h), 1))
		err = seat_send(s, r, &w->pending);
	if (__builtin_expect(err == -EAGAIN, 0))
		err = send_hungry(s, h, r, w);
	if (err)
		return err;
	err = await_end(w);
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
	int err;

	err = conn_seat(h->head, &seat);
	if (!err)
		err = conn_seat_waiter(seat, &w.sleep);
	if (err)
		return err;
	w.seat = rpc_seat_of(seat);
	w.resp = resp;
	w.buf = NULL;
	w.res = res;
	atomic_init(&w.ended, false);
	r->thread = seat->number;
	rpc_seat_send_gathered(w.seat);
	err = call_and_wait(w.seat, h, r, &w);
	if (w.seat->inbox)
		rpc_seat_reap(w.seat);
	conn_replies_reap(h->head);
	return err;
}
