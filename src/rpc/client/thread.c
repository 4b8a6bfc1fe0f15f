/* SPDX-License-Identifier: MIT */
/*
 * thread.c - the threads of a connection: how their calls are sent, and
 * blocking calls. The owner writes the answer of a blocking call into the
 * caller's memory, then sets the flag that the thread waits for. replies.c has
 * the asynchronous calls.
 *
 * Thread rule: the thread that the record belongs to, unless a comment names
 * the owner.
 */
#include <errno.h>
#include <string.h>

#include "conn/ctx.h"
#include "rpc/client/gather.h"

/* How often a thread publishes the median of its sizes: at each of its first
 * calls, then at each 64th. */
#define MEDIAN_EVERY 64u

/* --- life --------------------------------------------------------------- */

int rpc_thread_taken(struct skein_conn *handle, struct conn_thread *rec)
{
	struct rpc_thread *s = rpc_thread_of(rec);

	if (!s) {
		s = env_alloc_aligned(conn_env(handle), 64, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->rec = rec;
		s->env = conn_env(handle);
		rec->modules[CONN_MODULE_RPC - 1] = s;
	}
	/* The lanes are up, so the handle has an RPC connection. */
	s->lanes = rpc_conn_of(handle)->handle->lanes;
	/* Counts are for the scheduler, which does not run with one lane. */
	s->counts = conn_lanes(handle) > 1;
	s->sizes = (struct thrsched_sizes){0};
	/* Left by a thread that ended inside a done(). Nothing of it is under
	 * way. */
	s->unreaped = s->reserved = s->inner = 0;
	s->depth = s->gathers = 0;
	if (s->gather)
		rpc_gather_again(s);
	atomic_store_explicit(&s->passed, 0, memory_order_relaxed);
	atomic_store_explicit(&s->orphan, false, memory_order_relaxed);
	return 0;
}

static bool waiting_ended(void *arg)
{
	struct rpc_waiting *w = arg;

	return atomic_load_explicit(&w->state, memory_order_acquire) ==
	       RPC_WAITING_ENDED;
}

/* Takes the request back for the caller. True: the owner has not read it, and
 * will not send it. While the owner copies the request, this waits. */
static bool take_back(struct rpc_pending *p, struct skein_env *env)
{
	enum rpc_pending_req was = RPC_PENDING_UNREAD;

	while (!atomic_compare_exchange_weak_explicit(
		&p->req_state, &was, RPC_PENDING_BACK, memory_order_acq_rel,
		memory_order_acquire)) {
		if (was == RPC_PENDING_READ || was == RPC_PENDING_BACK)
			return was == RPC_PENDING_BACK;
		was = RPC_PENDING_UNREAD;
		env_yield(env);
	}
	return true;
}

/* Takes the memory of the result back for the caller. True: the owner will not
 * write there. If the owner is writing, this waits until it has, and returns
 * false. */
static bool waiting_leave(struct rpc_thread *s)
{
	enum rpc_waiting_state was = RPC_WAITING;
	struct rpc_waiting *w = &s->waiting;

	/* Acquire pairs with the release in waiting_done(). */
	if (atomic_compare_exchange_strong_explicit(
		    &w->state, &was, RPC_WAITING_LEFT, memory_order_acq_rel,
		    memory_order_acquire))
		return true;
	while (was == RPC_WAITING_TAKEN) {
		env_yield(s->env);
		was = atomic_load_explicit(&w->state, memory_order_acquire);
	}
	return false;
}

/* The thread has ended in a done(), in a round that its own blocking call
 * ran. */
static void waiting_drop(struct rpc_thread *s, struct rpc_handle *h)
{
	struct rpc_waiting *w = &s->waiting;

	if (list_linked(&w->room_waiter.link))
		rpc_handle_leave(h, &w->room_waiter);
	if (waiting_ended(w))
		return;
	(void)take_back(&w->pending, s->env);
	(void)waiting_leave(s);
}

void rpc_thread_left(struct skein_conn *handle, struct conn_thread *rec)
{
	struct rpc_conn *rc = rpc_conn_of(handle);
	struct rpc_thread *s = rpc_thread_of(rec);

	if (rc && rc->handle)
		waiting_drop(s, rc->handle);
	/* Release pairs with the acquires in rpc_async_done() and
	 * rpc_thread_sweep(). */
	atomic_store_explicit(&s->swept, false, memory_order_release);
	atomic_store_explicit(&s->orphan, true, memory_order_release);
	/* The handle lives until no thread is ending any more. */
	if (rc && rc->handle)
		rpc_handle_want(rc->handle, RPC_LEAVING);
}

/* Has the server read all that the thread has sent on this lane? If not, asks
 * the owner for a newer Head. */
static bool has_passed(struct rpc_thread *s, struct rpc_conn *rc)
{
	uint64_t to = atomic_load_explicit(&s->passed, memory_order_relaxed);

	if (!to || !rc ||
	    atomic_load_explicit(&rc->client.rx.req_head,
				 memory_order_relaxed) >= to)
		return true;
	if (!atomic_exchange_explicit(&rc->lane_client->want_head, true,
				      memory_order_relaxed)) {
		rpc_client_want_look(&rc->client);
		engine_kick(rc->engine);
	}
	return false;
}

bool rpc_thread_idle(struct skein_conn *handle, struct conn_thread *rec)
{
	struct rpc_thread *s = rpc_thread_of(rec);
	uint16_t lane;

	if (!s)
		return true;
	if (atomic_load_explicit(&s->orphan, memory_order_relaxed))
		/* Acquire pairs with the release in rpc_thread_sweep(). */
		return atomic_load_explicit(&s->swept, memory_order_acquire);
	/* The thread itself asks. Acquire pairs with the release in
	 * rpc_thread_ended(). */
	if (atomic_load_explicit(&s->ended, memory_order_acquire) != s->begun)
		return false;
	lane = atomic_load_explicit(&rec->lane, memory_order_relaxed);
	return has_passed(s, rpc_conn_of(conn_lane(handle, lane)));
}

void rpc_thread_free(struct skein_conn *handle, struct conn_thread *rec)
{
	struct skein_env *env = conn_env(handle);
	struct rpc_thread *s = rpc_thread_of(rec);

	if (!s)
		return;
	rpc_thread_drop_shown(s);
	/* Each call ends once, reaped or not. Lanes are gone: none is sent. */
	rpc_thread_end_gathered(s);
	rpc_thread_reap(s);
	env_free(env, s->replies_mem);
	env_free(env, s->block);
	env_free(env, s->gather);
	env_free(env, s);
	rec->modules[CONN_MODULE_RPC - 1] = NULL;
}

/* --- sending ------------------------------------------------------------ */

static void count_request(struct rpc_thread *s, size_t len)
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

void rpc_thread_wr(struct conn_thread *rec, size_t len)
{
	struct rpc_thread *s = rpc_thread_of(rec);

	if (s->counts)
		count_request(s, len);
}

static void large_run(struct engine_call *call)
{
	struct rpc_pending *p = container_of(call, struct rpc_pending, call);

	rpc_pending_start(p->rc, p);
}

/* Notes the lane by which the answer will come. */
static void call_goes_by(skein_rpc_done_fn *done, void *arg,
			 struct rpc_conn *rc)
{
	if (done == rpc_async_done)
		((struct rpc_async *)arg)->rc = rc;
	else
		((struct rpc_waiting *)arg)->rc = rc;
}

/* stack: the memory of a thread that waits. NULL: from the heap, with the
 * payload. */
static struct rpc_pending *pending_new(struct rpc_thread *s,
				       struct rpc_conn *rc,
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
				  .held = &s->rec->held,
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

/* Leaves requests to the owner, which sends them. Until it has, the thread is
 * held: it begins no call. All requests are counted before the first one is
 * posted: see rpc_thread_moves(). */
static void leave_to_owner(struct rpc_thread *s, struct rpc_conn *rc,
			   struct rpc_pending *const *p, unsigned n)
{
	atomic_fetch_add_explicit(&s->rec->held, n, memory_order_relaxed);
	for (unsigned i = 0; i < n; i++)
		engine_post(rc->engine, &p[i]->call);
}

static int send_large(struct rpc_thread *s, struct rpc_conn *rc,
		      const struct rpc_client_req *r, struct rpc_pending *stack)
{
	struct rpc_pending *p = pending_new(s, rc, r, stack);

	if (!p)
		return -ENOMEM;
	leave_to_owner(s, rc, &p, 1);
	return 0;
}

/* The lane for a call that the thread begins now. */
static inline int lane_now(struct rpc_thread *s, struct rpc_conn **rc)
{
	int lane;

	if (__builtin_expect(conn_thread_held(s->rec), 0))
		return -EAGAIN;
	lane = conn_thread_lane(s->rec);
	if (__builtin_expect(lane < 0, 0))
		return lane;
	*rc = s->lanes[(unsigned)lane];
	return __builtin_expect(*rc != NULL, 1) ? 0 : -ENOTCONN;
}

/* Inline: a function call would cost a good part of its work. */
static inline int thread_send(struct rpc_thread *s, struct rpc_client_req *r,
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
		err = rpc_lane_client_call(rc, &s->rec->req, r);
	}
	if (__builtin_expect(err != 0, 0))
		s->begun--;
	else if (s->counts)
		count_request(s, r->len);
	return err;
}

/* The lane on which the thread sends now. NULL: it is gone. */
static struct rpc_conn *lane_as_is(const struct rpc_thread *s)
{
	return s->lanes[atomic_load_explicit(&s->rec->lane,
					     memory_order_relaxed)];
}

unsigned rpc_thread_leave_to_owner(struct rpc_thread *s,
				   const struct rpc_client_req *r, unsigned n)
{
	struct rpc_conn *rc = lane_as_is(s);
	struct rpc_pending *p[COMBINER_BOUND];
	unsigned i;

	for (i = 0; rc && i < n; i++) {
		p[i] = pending_new(s, rc, &r[i], NULL);
		if (!p[i])
			break;
		call_goes_by(r[i].done, r[i].arg, rc);
	}
	if (i)
		leave_to_owner(s, rc, p, i);
	return i;
}

int rpc_thread_send(struct rpc_thread *s, struct rpc_client_req *r,
		    struct rpc_pending *stack)
{
	return thread_send(s, r, stack);
}

int rpc_thread_send_some(struct rpc_thread *s, struct rpc_client_req *r,
			 unsigned n, unsigned *sent)
{
	struct rpc_conn *rc;
	int err = lane_now(s, &rc);
	unsigned i;

	*sent = 0;
	if (__builtin_expect(err != 0, 0))
		return err;
	for (i = 0; i < n; i++)
		call_goes_by(r[i].done, r[i].arg, rc);
	/* First: answers may come before rpc_lane_client_calls() returns. */
	s->begun += n;
	err = rpc_lane_client_calls(rc, &s->rec->req, r, n, sent);
	s->begun -= n - *sent;
	for (i = 0; i < *sent && s->counts; i++)
		count_request(s, r[i].len);
	return err;
}

void rpc_thread_gathers(struct rpc_thread *s, size_t len)
{
	s->begun++;
	if (s->counts)
		count_request(s, len);
}

/* As lane_now(), for n gathered calls. Another thread, the owner, does not move
 * the thread to another lane. */
static int lane_gathered(struct rpc_thread *s, bool own, unsigned n,
			 struct rpc_conn **rc)
{
	int err;

	if (own) {
		/* These calls do not keep the thread from moving. Those that
		 * were gathered before them and have left do. */
		s->begun -= n;
		err = lane_now(s, rc);
		s->begun += n;
		return err;
	}
	if (conn_thread_held(s->rec))
		return -EAGAIN;
	*rc = lane_as_is(s);
	return *rc ? 0 : -ENOTCONN;
}

int rpc_thread_send_counted(struct rpc_thread *s, bool own,
			    struct rpc_client_req *r, unsigned n,
			    unsigned *sent)
{
	struct rpc_conn *rc;
	int err = lane_gathered(s, own, n, &rc);

	*sent = 0;
	if (err)
		return err;
	for (unsigned i = 0; i < n; i++)
		call_goes_by(r[i].done, r[i].arg, rc);
	return rpc_lane_client_calls(rc, &s->gather->node, r, n, sent);
}

struct rpc_conn *rpc_thread_moves(struct rpc_conn *rc, uint16_t thread,
				  unsigned waiting)
{
	struct skein_conn *head = conn_lane_head(rc->conn);
	struct conn_thread *rec = conn_thread_at(head, thread);
	uint16_t wanted =
		atomic_load_explicit(&rec->lane_wanted, memory_order_relaxed);
	struct rpc_conn *to = rpc_conn_of(conn_lane(head, wanted));
	struct rpc_thread *s = rpc_thread_of(rec);

	/* All of the thread's requests wait in this list: none is on its way to
	 * it, and what the thread has begun stands still. */
	if (!to || to == rc || !to->up || !to->lane_client->active ||
	    atomic_load_explicit(&rec->held, memory_order_relaxed) != waiting ||
	    s->begun - atomic_load_explicit(&s->ended, memory_order_relaxed) !=
		    waiting ||
	    !has_passed(s, rc) ||
	    rec->wrs_begun !=
		    atomic_load_explicit(&rec->wrs_ended, memory_order_relaxed))
		return NULL;
	/* Relaxed: the thread reads its lane when it is no longer held. */
	atomic_store_explicit(&rec->lane, wanted, memory_order_relaxed);
	return to;
}

void rpc_thread_moved(struct rpc_pending *p, struct rpc_conn *to)
{
	call_goes_by(p->done, p->arg, to);
	p->rc = to;
}

void rpc_threads_reset(struct skein_conn *head)
{
	unsigned n = conn_threads(head);
	struct rpc_thread *s;

	for (unsigned i = 0; i < n; i++) {
		s = rpc_thread_of(conn_thread_at(head, i));
		if (s)
			atomic_store_explicit(&s->passed, 0,
					      memory_order_relaxed);
	}
}

/* --- without room ------------------------------------------------------- */

/* Tries once to send. The state is set first, because the answer may come
 * before thread_send() returns. */
static inline int waiting_send(struct rpc_thread *s, struct rpc_client_req *r)
{
	struct rpc_waiting *w = &s->waiting;
	int err;

	atomic_store_explicit(&w->state, RPC_WAITING, memory_order_relaxed);
	atomic_store_explicit(&w->pending.req_state, RPC_PENDING_READ,
			      memory_order_relaxed);
	err = thread_send(s, r, &w->pending);
	if (__builtin_expect(err != 0, 0))
		atomic_store_explicit(&w->state, RPC_WAITING_ENDED,
				      memory_order_relaxed);
	return err;
}

static bool may_look(void *arg)
{
	struct rpc_room_waiter *room_waiter = arg;

	return atomic_load_explicit(&room_waiter->look, memory_order_acquire);
}

/* Tries each time there may be room, until the deadline. */
static int send_without_room(struct rpc_thread *s, struct rpc_handle *h,
			     struct rpc_client_req *r)
{
	struct rpc_room_waiter *room_waiter = &s->waiting.room_waiter;
	uint64_t now = env_now_ns(h->env), look,
		 end = env_deadline(now, r->timeout_ns);
	struct engine_run how = {
		.done = may_look, .arg = room_waiter, .w = s->waiting.sleep};
	int err;

	room_waiter->rec = s->rec;
	rpc_handle_join(h, room_waiter);
	for (;;) {
		/* Before the attempt: a change after this sets it again. */
		atomic_store_explicit(&room_waiter->look, false,
				      memory_order_relaxed);
		if (end != ENV_NEVER)
			r->timeout_ns = end > now ? end - now : 0;
		err = r->timeout_ns ? conn_check(h->head) : -ETIMEDOUT;
		if (!err)
			err = waiting_send(s, r);
		if (err != -EAGAIN)
			break;
		look = conn_thread_drained_ns(s->rec);
		how.deadline_ns = look < end ? look : end;
		(void)engine_run(h->engine, &how);
		now = env_now_ns(h->env);
	}
	rpc_handle_leave(h, room_waiter);
	return err;
}

/* --- calls -------------------------------------------------------------- */

/* Does the waiting thread itself run the engine? Then it cannot leave its call
 * meanwhile. Any other thread may leave at any moment. */
static inline bool runs_here(const struct rpc_thread *s, struct engine *e)
{
	return engine_runs_in(e, atomic_load_explicit(&s->rec->thread,
						      memory_order_relaxed));
}

/* Owner: may the result be written? True: the thread waits. False: it has
 * left. */
static inline bool take_waiting(struct rpc_waiting *w, bool here)
{
	enum rpc_waiting_state was = RPC_WAITING;

	if (here)
		return atomic_load_explicit(&w->state, memory_order_relaxed) ==
		       RPC_WAITING;
	/* Acquire pairs with the release in waiting_leave(). */
	return atomic_compare_exchange_strong_explicit(&w->state, &was,
						       RPC_WAITING_TAKEN,
						       memory_order_acquire,
						       memory_order_acquire);
}

/* Owner: writes the result. A fetched result stays where it is if another
 * thread waits for it: that thread copies it. */
static inline void take_result(struct rpc_waiting *w, const void *data,
			       size_t len, bool here)
{
	if (__builtin_expect(w->rc->client.rx.result_buf && !here, 0))
		w->buf = rpc_take_buf(w->rc);
	else if (len)
		memcpy(w->resp, data, len);
}

/* Owner. */
static void waiting_done(void *arg, const struct skein_rpc_result *res)
{
	struct rpc_waiting *w = arg;
	struct rpc_thread *s = container_of(w, struct rpc_thread, waiting);
	struct skein_rpc_result *out = w->res;
	struct conn_thread *rec = s->rec;
	struct engine *e = w->rc->engine;
	bool answered = res->outcome == SKEIN_DONE && !res->status;
	bool here = runs_here(s, e);

	if (__builtin_expect(!answered, 0))
		rpc_thread_unanswered(s, w->rc, res->outcome);
	if (__builtin_expect(take_waiting(w, here), 1)) {
		/* Field by field: *res was just written that way, and a wider
		 * load would wait for the store buffer. */
		out->outcome = res->outcome;
		out->status = res->status;
		out->len = res->len;
		out->data = answered ? w->resp : NULL;
		if (__builtin_expect(answered, 1))
			take_result(w, res->data, res->len, here);
	}
	rpc_thread_ended(s);
	/* Release pairs with the acquire in waiting_ended(): the thread that
	 * reads the state also sees the result, and w is its own again. The
	 * thread record lives as long as the handle. */
	atomic_store_explicit(&w->state, RPC_WAITING_ENDED,
			      memory_order_release);
	rpc_thread_wake(e, rec);
}

/* Gives the call up: its time is over, and the owner has not ended it. */
static __attribute__((noinline)) int give_up(struct rpc_thread *s, int err)
{
	struct rpc_waiting *w = &s->waiting;
	struct skein_rpc_result *res = w->res;
	bool back = take_back(&w->pending, s->env);

	if (!waiting_leave(s))
		return 0;
	res->outcome = back ? SKEIN_NOT_SENT : SKEIN_UNKNOWN;
	return err;
}

/* Waits until the blocking call has ended: for timeout_ns, or, if that is 0,
 * until deadline_ns. */
static inline int await_end(struct rpc_thread *s, struct engine *e,
			    uint64_t timeout_ns, uint64_t deadline_ns)
{
	struct engine_run how = {.done = waiting_ended,
				 .arg = &s->waiting,
				 .deadline_ns = deadline_ns,
				 .timeout_ns = timeout_ns,
				 .w = s->waiting.sleep};

	return engine_run(e, &how);
}

static inline int call_and_wait(struct rpc_thread *s, struct rpc_handle *h,
				struct rpc_client_req *r, void *resp,
				struct skein_rpc_result *res)
{
	struct rpc_waiting *w = &s->waiting;
	uint64_t timeout_ns = r->timeout_ns;
	int err = -EAGAIN;

	w->resp = resp;
	w->buf = NULL;
	w->res = res;
	r->done = waiting_done;
	r->arg = w;
	/* A call does not overtake threads that wait for room. */
	if (__builtin_expect(!rpc_handle_wants_room(h), 1))
		err = waiting_send(s, r);
	if (__builtin_expect(err == -EAGAIN, 0)) {
		err = send_without_room(s, h, r);
		timeout_ns = r->timeout_ns; /* the time left */
	}
	if (err)
		return err;
	err = await_end(s, h->engine, timeout_ns, 0);
	if (__builtin_expect(err != 0, 0))
		err = give_up(s, err);
	if (__builtin_expect(!err && w->buf != NULL, 0)) {
		memcpy(w->resp, w->buf->addr, w->res->len);
		w->buf->end(w->buf);
	}
	return err;
}

/* The owner has not ended the thread's last call yet. 0: it has now, and the
 * record is free; or -ETIMEDOUT. */
static __attribute__((noinline)) int await_record(struct rpc_thread *s,
						  struct engine *e,
						  struct rpc_client_req *r)
{
	uint64_t now = env_now_ns(s->env),
		 end = env_deadline(now, r->timeout_ns);
	int err;

	err = await_end(s, e, 0, end);
	now = env_now_ns(s->env);
	if (end != ENV_NEVER)
		r->timeout_ns = end > now ? end - now : 0;
	return err;
}

int rpc_handle_call(struct rpc_conn *rc, struct rpc_client_req *r, void *resp,
		    struct skein_rpc_result *res)
{
	struct rpc_handle *h = rc->lane_client->handle;
	struct conn_thread *rec;
	struct rpc_thread *s;
	int err;

	err = conn_thread(h->head, &rec);
	if (err)
		return err;
	s = rpc_thread_of(rec);
	err = conn_thread_waiter(rec, &s->waiting.sleep);
	if (err)
		return err;
	r->thread = rec->number;
	if (__builtin_expect(s->gathers != 0, 0))
		rpc_thread_send_gathered(s);
	if (__builtin_expect(!waiting_ended(&s->waiting), 0))
		err = await_record(s, h->engine, r);
	if (__builtin_expect(!err, 1))
		err = call_and_wait(s, h, r, resp, res);
	if (s->replies)
		rpc_thread_reap(s);
	conn_replies_reap(h->head);
	return err;
}
