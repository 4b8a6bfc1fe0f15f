/* SPDX-License-Identifier: MIT */
/*
 * gather.c - asynchronous calls that wait for a moment and leave together
 * (docs/design/combining.md). struct rpc_gather says which, and which thread uses
 * them when.
 */
#include <errno.h>
#include <string.h>

#include "conn/ctx.h"
#include "rpc/client/gather.h"

/* Acquire pairs with the release in gather_let(): the thread sees what the owner
 * has sent, the owner sees what the thread has gathered. */
static inline void gather_take(struct rpc_gather *g, struct skein_env *env)
{
	while (atomic_exchange_explicit(&g->taken, true, memory_order_acquire))
		env_yield(env);
}

static inline void gather_let(struct rpc_gather *g)
{
	atomic_store_explicit(&g->taken, false, memory_order_release);
}

/* The thread: what is gathered is its own until gather_leave(). */
static void gather_enter(struct rpc_thread *s)
{
	if (s->gathers & RPC_POSTED)
		gather_take(s->gather, s->env);
}

static void gather_leave(struct rpc_thread *s)
{
	struct rpc_gather *g = s->gather;
	bool posted = g->posted;

	if (!(s->gathers & RPC_POSTED))
		return;
	gather_let(g);
	/* Only this thread posts: nobody else touches g until it does. */
	if (!posted)
		s->gathers &= ~RPC_POSTED;
}

/* Sends the gathered calls. Calls that find no room are left to the owner,
 * because they have begun. Returns how many can be neither, with *err. */
static unsigned gathered_go(struct rpc_thread *s, bool own,
			    struct rpc_client_req unsent[COMBINER_BOUND],
			    int *err)
{
	struct rpc_gather *g = s->gather;
	unsigned i, sent, n = g->n, left = 0;

	*err = 0;
	for (i = 0; i < n && !*err; i += sent)
		*err = rpc_thread_send_counted(s, own, g->req + i, n - i,
					       &sent);
	if (*err == -EAGAIN) {
		i += rpc_thread_leave_to_owner(s, g->req + i, n - i);
		*err = -ENOMEM;
	}
	for (; i < n; i++)
		unsent[left++] = g->req[i];
	g->n = g->len = 0;
	return left;
}

/* Ends a gathered call that cannot be sent. */
static void end_unsent(struct rpc_thread *s, const struct rpc_client_req *r,
		       int err)
{
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT,
				       .status = err};
	struct rpc_async *a = r->arg;
	skein_rpc_done_fn *done = a->done;
	void *arg = a->arg;

	rpc_async_undo(s, a);
	s->begun--;
	s->reaped++;
	done(arg, &res);
}

void rpc_thread_send_gathered(struct rpc_thread *s)
{
	struct skein_conn *conn = s->rec->handle;
	struct rpc_client_req unsent[COMBINER_BOUND];
	unsigned left = 0, n;
	int err = 0;

	if (!s->gather)
		return;
	gather_enter(s);
	n = s->gather->n;
	if (n)
		left = gathered_go(s, true, unsent, &err);
	gather_leave(s);
	/* Not before: a done() may make calls. */
	for (unsigned i = 0; i < left; i++)
		end_unsent(s, &unsent[i], err);
	if (n && !engine_is_owner(conn_engine(conn)))
		rpc_tell_owner(conn);
}

/* --- sent, or ended -------------------------------------------------------- */

void rpc_lane_client_send_gathered(struct rpc_lane_client *sh)
{
	struct rpc_thread *s = sh->gathered;

	sh->gathered = NULL;
	rpc_thread_send_gathered(s);
}

/* Owner, at the begin of a round: the thread has gathered calls and may not come
 * back for long. */
static void gather_run(struct engine_call *call)
{
	struct rpc_gather *g = container_of(call, struct rpc_gather, call);
	struct rpc_thread *s = g->rec;
	struct engine *e = conn_engine(s->rec->handle);
	bool own = engine_runs_in(
		e, atomic_load_explicit(&s->rec->thread, memory_order_relaxed));
	struct skein_rpc_result res = {.outcome = SKEIN_NOT_SENT};
	struct rpc_client_req unsent[COMBINER_BOUND];
	unsigned left;

	gather_take(g, s->env);
	g->posted = false;
	left = gathered_go(s, own, unsent, &res.status);
	gather_let(g);
	if (own)
		s->gathers &= ~RPC_POSTED;
	for (unsigned i = 0; i < left; i++) {
		struct rpc_async *a = unsent[i].arg;

		/* Its lane may be gone; lane 0 is the last. */
		a->rc = rpc_conn_of(s->rec->handle);
		rpc_async_done(a, &res);
	}
	/* It waited for this call. Acquire as in rpc_async_done(). */
	if (atomic_load_explicit(&s->orphan, memory_order_acquire))
		rpc_thread_sweep(s);
}

int rpc_thread_end_gathered(struct rpc_thread *s)
{
	unsigned i, n = s->gather ? s->gather->n : 0;

	if (!n)
		return 0;
	s->gather->n = s->gather->len = 0;
	for (i = 0; i < n; i++)
		end_unsent(s, &s->gather->req[i], -ECANCELED);
	return (int)n;
}

int rpc_thread_drop_gathered(struct rpc_thread *s)
{
	struct skein_conn *head = s->rec->handle;

	for (unsigned i = 0; i < conn_lanes(head); i++)
		if (s->lanes[i] && s->lanes[i]->lane_client->gathered == s)
			s->lanes[i]->lane_client->gathered = NULL;
	return rpc_thread_end_gathered(s);
}

/* --- more of them ---------------------------------------------------------- */

/* With a latency bound: may the thread make another call now? With more of them
 * under way than the size calls for, each would wait for those ahead of it. */
static bool within_bound(const struct rpc_thread *s)
{
	const struct rpc_gather *g = s->gather;
	uint32_t ended = atomic_load_explicit(&s->ended, memory_order_relaxed);

	return s->begun - ended < RPC_BATCHES * g->tuner.size;
}

/* With a latency bound: a call was gathered. */
static void batch_grew(struct rpc_thread *s, struct rpc_async *a)
{
	struct rpc_gather *g = s->gather;

	a->begun_ns = g->n == 1 ? env_now_ns(s->env) : 0;
	if (g->n >= g->tuner.size)
		rpc_thread_send_gathered(s);
	else if (g->n == 1 && s->gathers == RPC_BOUNDED)
		/* Its next progress looks after the thread's replies, and
		 * sends. */
		conn_thread_filled(s->rec);
}

static int gather_long(struct rpc_thread *s, struct rpc_client_req *r)
{
	int err;

	rpc_thread_send_gathered(s);
	err = rpc_thread_send_async(s, r);
	if (!err && !rpc_in_done(s))
		rpc_tell_owner(s->rec->handle);
	return err;
}

/* Puts the call behind the gathered ones. */
static int gather_add(struct rpc_thread *s, struct rpc_client_req *r)
{
	struct rpc_gather *g = s->gather;
	int err = rpc_async_begin(s, r);

	if (err)
		return err;
	if (r->len)
		memcpy(g->bytes[g->n], r->payload, r->len);
	r->payload = g->bytes[g->n];
	g->req[g->n++] = *r;
	g->len += (uint32_t)r->len;
	rpc_thread_gathers(s, r->len);
	return 0;
}

/* Outside done(), without a latency bound: a call was gathered, and they are n
 * now. */
static void outside_grew(struct rpc_thread *s, unsigned n)
{
	struct rpc_gather *g = s->gather;

	if (!s->gathers) {
		g->posted = true;
		s->gathers = RPC_POSTED;
		engine_post(conn_engine(s->rec->handle), &g->call);
	} else if (n == COMBINER_BOUND) {
		rpc_thread_send_gathered(s);
	}
}

int rpc_gather(struct rpc_thread *s, struct rpc_client_req *r)
{
	bool bounded = s->gathers & RPC_BOUNDED, again, full, held;
	struct rpc_gather *g = s->gather;
	unsigned n;
	int err = 0;

	if (conn_thread_held(s->rec) || (bounded && !within_bound(s)))
		return -EAGAIN;
	if (r->len > COMBINER_INLINE)
		return gather_long(s, r);
	gather_enter(s);
	/* The owner may have left some to itself since: it may move them to
	 * another lane, and this call must not overtake them. */
	held = conn_thread_held(s->rec);
	/* Or it has sent them all. */
	again = s->gathers == RPC_POSTED && !g->posted;
	full = g->n == COMBINER_BOUND ||
	       (bounded && g->len + r->len > RPC_BATCH_LEN);
	if (!held && !again && !full)
		err = gather_add(s, r);
	n = g->n;
	gather_leave(s);
	if (held)
		return -EAGAIN;
	if (full)
		rpc_thread_send_gathered(s);
	if (again || full)
		return 1;
	if (err)
		return err;
	if (bounded)
		batch_grew(s, r->arg);
	else if (!rpc_in_done(s))
		outside_grew(s, n);
	return 0;
}

/* --- a thread's ------------------------------------------------------------ */

void rpc_gather_again(struct rpc_thread *s)
{
	/* Nothing is gathered, and its call is not posted: see
	 * rpc_thread_sweep(). */
	s->gathers = s->gather->tuner.bound_ns ? RPC_BOUNDED : 0;
}

int rpc_gather_make(struct rpc_thread *s)
{
	uint64_t bound_ns;
	unsigned tolerance;

	s->gather = env_alloc_aligned(s->env, 64, sizeof(*s->gather));
	if (!s->gather)
		return -ENOMEM;
	s->gather->rec = s;
	s->gather->call.fn = gather_run;
	conn_req_init(&s->gather->node);
	conn_latency_bound(s->rec->handle, &bound_ns, &tolerance);
	tuner_init(&s->gather->tuner, bound_ns, tolerance, COMBINER_BOUND);
	rpc_gather_again(s);
	return 0;
}

void rpc_gather_ended(struct rpc_thread *s, struct rpc_async *a)
{
	struct tuner *t = &s->gather->tuner;

	if (!a->begun_ns)
		return;
	tuner_ended(t, a->begun_ns, env_now_ns(s->env));
	a->begun_ns = 0;
	/* Relaxed: statistics. */
	atomic_store_explicit(&s->batch, t->size, memory_order_relaxed);
	atomic_store_explicit(&s->timed, t->seen_all, memory_order_relaxed);
	atomic_store_explicit(&s->late, t->late_all, memory_order_relaxed);
	atomic_store_explicit(&s->unmet, t->unmet, memory_order_relaxed);
}
