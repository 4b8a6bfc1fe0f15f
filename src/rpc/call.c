/* SPDX-License-Identifier: MIT */
/*
 * call.c - the public calls.
 *
 * Whoever runs the engine calls straight into the client. Others become the
 * engine's owner for the moment if nobody is, and else hand the call to the
 * owner. A blocking caller runs the engine while it waits.
 *
 * Posting, waking and sleeping are points of cancellation, and an engine whose
 * owner is no more is nobody's ever again: so whoever becomes the owner for a
 * moment is not cancelled, nor who waits while another writes his result on his
 * stack. Who runs the engine himself until his call has ended may be, as in
 * skein_engine_run(): it would cost each such call 67 instructions.
 */
#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "conn/ctx.h"
#include "conn/lanes.h"
#include "rpc/share.h"

int skein_rpc_handle(struct skein_ctx *ctx, uint16_t id, skein_rpc_fn *fn,
		     void *arg)
{
	struct rpc_ctx *rx;
	int rc;

	if (!ctx || !fn)
		return -EINVAL;
	rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	env_mutex_lock(ctx->env, &rx->lock);
	rc = rpc_handlers_add(&rx->handlers, ctx->env, id, fn, arg);
	env_mutex_unlock(ctx->env, &rx->lock);
	return rc;
}

/* Why a call cannot even be tried: 0 when it can. Any thread. */
static int check(struct skein_conn *conn, struct rpc_conn *rc, size_t req_len,
		 size_t resp_max)
{
	int err = conn_check(conn);

	if (err)
		return err;
	if (!rc)
		return -ENOTCONN;
	if (!rc->caller)
		return -EOPNOTSUPP;
	if (req_len > SKEIN_RPC_LEN_MAX || resp_max > SKEIN_RPC_LEN_MAX)
		return -EMSGSIZE;
	return 0;
}

static int call_inside(struct rpc_conn *rc, uint16_t id, const void *req,
		       size_t req_len, size_t resp_max, uint64_t timeout_ns,
		       skein_rpc_done_fn *done, void *arg)
{
	/* Owner: up and the state of the connection change in this thread. */
	if (__builtin_expect(!rc->up, 0))
		return -ENOTCONN;
	return rpc_client_call(&rc->client, id, req, req_len, resp_max,
			       timeout_ns, done, arg);
}

static void pending_run(struct engine_call *call)
{
	struct rpc_pending *p = container_of(call, struct rpc_pending, call);

	rpc_pending_start(p->rc, p);
}

/* Hands p to the owner. Its done() tells the end. */
static void pending_post(struct rpc_conn *rc, struct rpc_pending *p)
{
	p->rc = rc;
	p->call.fn = pending_run;
	atomic_fetch_add_explicit(&rc->foreign, 1, memory_order_relaxed);
	engine_post(rc->engine, &p->call);
}

/* Another thread runs the engine: the request goes along on the heap. */
static int call_foreign(struct rpc_conn *rc, uint16_t id, const void *req,
			size_t req_len, size_t resp_max, uint64_t timeout_ns,
			skein_rpc_done_fn *done, void *arg)
{
	struct rpc_pending *p;

	if (atomic_load_explicit(&rc->foreign, memory_order_relaxed) >=
	    rc->ctx->conf.window)
		return -EAGAIN;
	p = env_alloc(conn_env(rc->conn), sizeof(*p) + req_len);
	if (!p)
		return -ENOMEM;
	*p = (struct rpc_pending){.id = id,
				  .req = p + 1,
				  .req_len = req_len,
				  .resp_max = resp_max,
				  .timeout_ns = timeout_ns,
				  .done = done,
				  .arg = arg,
				  .own = true};
	if (req_len)
		memcpy(p + 1, req, req_len);
	pending_post(rc, p);
	return 0;
}

int skein_rpc_call_async(struct skein_conn *conn, uint16_t id, const void *req,
			 size_t req_len, size_t resp_max, uint64_t timeout_ns,
			 skein_rpc_done_fn *done, void *arg)
{
	struct rpc_conn *rc = rpc_conn_of(conn);
	int err, cancel;

	/* The owner needs no look at the state of the connection: it changes
	 * in this thread. */
	if (__builtin_expect(rc && engine_is_owner(rc->engine), 1) &&
	    rc->caller && !rc->share)
		return call_inside(rc, id, req, req_len, resp_max, timeout_ns,
				   done, arg);
	err = check(conn, rc, req_len, resp_max);
	if (__builtin_expect(err != 0, 0))
		return err;
	if (rc->share) {
		struct rpc_client_req r = {.payload = req,
					   .len = req_len,
					   .resp_max = resp_max,
					   .timeout_ns = timeout_ns,
					   .done = done,
					   .arg = arg,
					   .id = id};

		return rpc_shared_call_async(conn, &r);
	}
	cancel = env_cancel_off(conn_env(conn));
	if (engine_has_background(rc->engine) ||
	    !engine_try_enter(rc->engine)) {
		err = call_foreign(rc, id, req, req_len, resp_max, timeout_ns,
				   done, arg);
	} else {
		err = call_inside(rc, id, req, req_len, resp_max, timeout_ns,
				  done, arg);
		engine_leave(rc->engine);
	}
	env_cancel_back(conn_env(conn), cancel);
	return err;
}

/* --- several at once ----------------------------------------------------- */

/* Why not even one of them can be tried. */
static int check_batch(struct skein_conn *conn, struct rpc_conn *rc,
		       const struct skein_rpc_entry *calls, unsigned n)
{
	int err = check(conn, rc, 0, 0);

	for (unsigned i = 0; !err && i < n; i++)
		if (calls[i].req_len > SKEIN_RPC_LEN_MAX ||
		    calls[i].resp_max > SKEIN_RPC_LEN_MAX)
			err = -EMSGSIZE;
	return err;
}

/* Of a connection of its own: one by one, in either way. How many have begun. */
static unsigned batch_by(struct rpc_conn *rc,
			 const struct skein_rpc_entry *calls, unsigned n,
			 bool inside, int *err)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		*err = (inside ? call_inside : call_foreign)(
			rc, calls[i].id, calls[i].req, calls[i].req_len,
			calls[i].resp_max, calls[i].timeout_ns, calls[i].done,
			calls[i].arg);
		if (*err)
			break;
	}
	return i;
}

static unsigned batch_outside(struct rpc_conn *rc,
			      const struct skein_rpc_entry *calls, unsigned n,
			      int *err)
{
	struct skein_env *env = conn_env(rc->conn);
	int cancel = env_cancel_off(env);
	bool inside = !engine_has_background(rc->engine) &&
		      engine_try_enter(rc->engine);
	unsigned i = batch_by(rc, calls, n, inside, err);

	if (inside) {
		if (i)
			(void)rpc_client_flush(&rc->client); /* or a round */
		engine_leave(rc->engine);
	}
	env_cancel_back(env, cancel);
	return i;
}

int skein_rpc_call_batch(struct skein_conn *conn,
			 const struct skein_rpc_entry *calls, unsigned n,
			 unsigned *begun)
{
	struct rpc_conn *rc = rpc_conn_of(conn);
	int err = check_batch(conn, rc, calls, n);
	unsigned i;

	if (err)
		return err;
	if (rc->share)
		return rpc_shared_call_batch(conn, calls, n, begun);
	i = engine_is_owner(rc->engine) ? batch_by(rc, calls, n, true, &err)
					: batch_outside(rc, calls, n, &err);
	if (err && !i)
		return err;
	*begun = i;
	return 0;
}

static bool is_private(const struct rpc_wanted *w, skein_rpc_done_fn *done,
		       const void *arg)
{
	return done == w->done && arg == w->arg;
}

static int cancel_inside(struct rpc_conn *rc, const struct rpc_wanted *wanted)
{
	int err = rc->up ? rpc_client_cancel(&rc->client, wanted) : -ENOENT;

	return err ? rpc_pending_cancel(rc, wanted) : 0;
}

static int cancel_outside(struct rpc_conn *rc, const struct rpc_wanted *wanted)
{
	struct skein_env *env = conn_env(rc->conn);
	int cancel = env_cancel_off(env), err;

	err = engine_enter(rc->engine, ENV_NEVER);
	if (!err) {
		/* What was handed to the owner gets there. */
		(void)engine_poll(rc->engine);
		err = cancel_inside(rc, wanted);
		engine_leave(rc->engine);
	}
	env_cancel_back(env, cancel);
	return err;
}

int skein_rpc_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		     void *arg)
{
	ENV_HOLD_CANCEL();
	struct rpc_wanted wanted = {is_private, done, arg};
	struct rpc_conn *rc = rpc_conn_of(conn);
	int err;

	if (!done)
		return -EINVAL;
	err = check(conn, rc, 0, 0);
	if (err)
		return err == -ENOTCONN ? -ENOENT : err;
	if (rc->share)
		return rpc_shared_cancel(conn, done, arg);
	if (engine_is_owner(rc->engine))
		return cancel_inside(rc, &wanted);
	return cancel_outside(rc, &wanted);
}

static int flush_outside(struct rpc_conn *rc)
{
	struct skein_env *env = conn_env(rc->conn);
	int cancel = env_cancel_off(env), err = 0;

	if (engine_try_enter(rc->engine)) {
		err = rc->up ? rpc_client_flush(&rc->client) : -ENOTCONN;
		engine_leave(rc->engine);
	} else {
		engine_kick(rc->engine); /* the owner's next round sends */
	}
	env_cancel_back(env, cancel);
	return err;
}

int skein_rpc_flush(struct skein_conn *conn)
{
	struct rpc_conn *rc = rpc_conn_of(conn);
	int err;

	/* As in skein_rpc_call_async(). */
	if (rc && engine_is_owner(rc->engine) && rc->caller && !rc->share)
		return rc->up ? rpc_client_flush(&rc->client) : -ENOTCONN;
	err = check(conn, rc, 0, 0);
	if (err)
		return err;
	if (rc->share)
		return 0; /* nothing is gathered: who calls sends */
	return flush_outside(rc);
}

/* --- blocking ----------------------------------------------------------- */

struct blocked {
	struct rpc_pending pending;
	struct skein_rpc_result *res;
	void *resp;
	size_t resp_max;
	atomic_bool ended;
};

static void blocked_done(void *arg, const struct skein_rpc_result *res)
{
	struct blocked *b = arg;

	*b->res = *res;
	b->res->data = NULL;
	if (res->outcome == SKEIN_DONE && !res->status) {
		b->res->data = b->resp;
		if (res->len)
			memcpy(b->resp, res->data, res->len);
	}
	/* Release: pairs with the acquire in blocked_ended(); the waiting
	 * thread sees the result, and b is not touched after this. */
	atomic_store_explicit(&b->ended, true, memory_order_release);
}

static bool blocked_ended(void *arg)
{
	struct blocked *b = arg;

	return atomic_load_explicit(&b->ended, memory_order_acquire);
}

/* Owner: starts the call, or queues it when there is no room. */
static int blocked_start(struct rpc_conn *rc, struct blocked *b)
{
	struct rpc_pending *p = &b->pending;
	int err = -EAGAIN;

	if (!rc->waiting)
		err = call_inside(rc, p->id, p->req, p->req_len, p->resp_max,
				  p->timeout_ns, p->done, p->arg);
	if (!err) {
		(void)rpc_client_flush(&rc->client); /* or the next round */
		return 0;
	}
	if (err != -EAGAIN)
		return err;
	p->rc = rc;
	atomic_fetch_add_explicit(&rc->foreign, 1, memory_order_relaxed);
	rpc_pending_start(rc, p);
	return 0;
}

/* Runs the engine, or waits for who does, until b has ended. The deadline is
 * the call's own: it ends in any case while somebody runs the engine. */
static int blocked_wait(struct rpc_conn *rc, struct blocked *b)
{
	int err, cancel;

	if (engine_try_enter(rc->engine)) {
		err = blocked_start(rc, b);
		if (!err)
			engine_run_inside(rc->engine, blocked_ended, b,
					  ENV_NEVER);
		engine_leave(rc->engine);
		return err;
	}
	cancel = env_cancel_off(conn_env(rc->conn));
	pending_post(rc, &b->pending);
	err = engine_run_until(rc->engine, blocked_ended, b, ENV_NEVER);
	env_cancel_back(conn_env(rc->conn), cancel);
	return err;
}

static int blocking(struct rpc_conn *rc, uint16_t id, const void *req,
		    size_t req_len, void *resp, size_t resp_max,
		    uint64_t timeout_ns, struct skein_rpc_result *result)
{
	struct blocked b;
	int err;

	b.pending = (struct rpc_pending){.id = id,
					 .req = req,
					 .req_len = req_len,
					 .resp_max = resp_max,
					 .timeout_ns = timeout_ns,
					 .done = blocked_done,
					 .arg = &b};
	b.res = result;
	b.resp = resp;
	b.resp_max = resp_max;
	atomic_init(&b.ended, false);
	err = blocked_wait(rc, &b);
	return err;
}

int skein_rpc_call(struct skein_conn *conn, uint16_t id, const void *req,
		   size_t req_len, void *resp, size_t resp_max,
		   uint64_t timeout_ns, struct skein_rpc_result *result)
{
	ENV_HOLD_CANCEL();
	struct rpc_conn *rc = rpc_conn_of(conn);
	struct skein_rpc_result own;
	int err;

	if (!result)
		result = &own;
	*result = (struct skein_rpc_result){.outcome = SKEIN_NOT_SENT};
	err = check(conn, rc, req_len, resp_max);
	if (!err && engine_is_owner(rc->engine))
		err = -EDEADLK;
	if (!err && rc->share) {
		struct rpc_client_req r = {.payload = req,
					   .len = req_len,
					   .resp_max = resp_max,
					   .timeout_ns = timeout_ns,
					   .id = id};

		err = rpc_shared_call(rc, &r, resp, result);
	} else if (!err) {
		err = blocking(rc, id, req, req_len, resp, resp_max, timeout_ns,
			       result);
	}
	if (__builtin_expect(err != 0, 0))
		result->status = err;
	return result->status;
}

/* What the lanes of a served handle have done together: the owner's own numbers
 * are lane 0's. */
static void stats_of_lanes(struct rpc_conn *rc, struct skein_rpc_stats *stats)
{
	struct aqp_stats st;

	if (rc->caller ||
	    !aqp_stats(&rc->ctx->aqp, conn_lane_head(rc->conn), &st))
		return;
	stats->calls = st.calls;
	stats->messages_received = st.messages;
	stats->credit_grants = st.grants;
	stats->credit_declines = st.declines;
	stats->lanes = st.lanes;
	stats->lanes_active = st.active;
}

static void stats_inside(struct rpc_conn *rc, struct skein_rpc_stats *stats)
{
	if (rc->share) {
		rpc_handle_stats(rc->share->handle, stats);
		return;
	}
	*stats = (struct skein_rpc_stats){
		.calls = rc->port.stats.calls,
		.messages_sent = rc->port.stats.messages_sent,
		.messages_received = rc->port.stats.messages_received,
		.doorbells =
			rc->port.stats.messages_sent + rc->port.stats.reads,
		.bytes_sent = rc->port.stats.bytes_sent,
		.head_reads = rc->port.stats.head_reads,
		.full = rc->port.stats.full,
		.wakeups_sent = rc->port.stats.wakeups_sent,
		.deferred = rc->port.stats.later,
	};
	stats_of_lanes(rc, stats);
}

int skein_rpc_stats(struct skein_conn *conn, struct skein_rpc_stats *stats)
{
	ENV_HOLD_CANCEL();
	struct rpc_conn *rc = rpc_conn_of(conn);
	struct skein_env *env;
	int err, cancel;

	if (!rc)
		return -ENOTCONN;
	if (engine_is_owner(rc->engine)) {
		stats_inside(rc, stats);
		return 0;
	}
	env = conn_env(conn);
	cancel = env_cancel_off(env);
	err = engine_enter(rc->engine, env_now_ns(env) + SKEIN_S(1));
	if (!err) {
		stats_inside(rc, stats);
		engine_leave(rc->engine);
	}
	env_cancel_back(env, cancel);
	return err;
}
