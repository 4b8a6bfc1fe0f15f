/* SPDX-License-Identifier: MIT */
/*
 * call.c - the public calls: checked here, made in thread.c and replies.c with
 * the calling thread's record.
 *
 * Thread rule: any thread.
 */
#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "conn/ctx.h"
#include "conn/handle/lanes.h"
#include "rpc/client/lane_client.h"

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

int skein_rpc_call_async(struct skein_conn *conn, uint16_t id, const void *req,
			 size_t req_len, size_t resp_max, uint64_t timeout_ns,
			 skein_rpc_done_fn *done, void *arg)
{
	struct rpc_client_req r = {.payload = req,
				   .len = req_len,
				   .resp_max = resp_max,
				   .timeout_ns = timeout_ns,
				   .done = done,
				   .arg = arg,
				   .id = id};
	int err = check(conn, rpc_conn_of(conn), req_len, resp_max);

	return __builtin_expect(err == 0, 1) ? rpc_handle_call_async(conn, &r)
					     : err;
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

int skein_rpc_call_batch(struct skein_conn *conn,
			 const struct skein_rpc_entry *calls, unsigned n,
			 unsigned *begun)
{
	int err = check_batch(conn, rpc_conn_of(conn), calls, n);

	return err ? err : rpc_handle_call_batch(conn, calls, n, begun);
}

int skein_rpc_cancel(struct skein_conn *conn, skein_rpc_done_fn *done,
		     void *arg)
{
	ENV_HOLD_CANCEL();
	int err;

	if (!done)
		return -EINVAL;
	err = check(conn, rpc_conn_of(conn), 0, 0);
	if (err)
		return err == -ENOTCONN ? -ENOENT : err;
	return rpc_handle_cancel(conn, done, arg);
}

int skein_rpc_call(struct skein_conn *conn, uint16_t id, const void *req,
		   size_t req_len, void *resp, size_t resp_max,
		   uint64_t timeout_ns, struct skein_rpc_result *result)
{
	ENV_HOLD_CANCEL();
	struct rpc_client_req r = {.payload = req,
				   .len = req_len,
				   .resp_max = resp_max,
				   .timeout_ns = timeout_ns,
				   .id = id};
	struct rpc_conn *rc = rpc_conn_of(conn);
	struct skein_rpc_result own;
	int err;

	if (!result)
		result = &own;
	*result = (struct skein_rpc_result){.outcome = SKEIN_NOT_SENT};
	err = check(conn, rc, req_len, resp_max);
	if (!err && engine_is_owner(rc->engine))
		err = -EDEADLK;
	if (!err)
		err = rpc_handle_call(rc, &r, resp, result);
	if (__builtin_expect(err != 0, 0))
		result->status = err;
	return result->status;
}

/* Adds what the lanes of a served handle have done together: the owner's own
 * numbers are of lane 0. */
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
	if (rc->lane_client) {
		rpc_handle_stats(rc->lane_client->handle, stats);
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
		.fetched = rc->port.stats.fetched,
		.fetched_messages = rc->port.stats.fetched_messages,
		.resent = rc->port.stats.resent,
		.replied = rc->port.stats.replied,
		.posts = rc->port.stats.messages_sent + rc->port.stats.reads +
			 rc->port.stats.signals,
	};
	stats_of_lanes(rc, stats);
}

int skein_rpc_get_stats(struct skein_conn *conn, struct skein_rpc_stats *stats)
{
	ENV_HOLD_CANCEL();
	struct rpc_conn *rc = rpc_conn_of(conn);
	struct skein_rpc_stats all;
	struct skein_env *env;
	int err, cancel;

	if (!rc)
		return -ENOTCONN;
	if (engine_is_owner(rc->engine)) {
		stats_inside(rc, &all);
		return ctx_struct_fill(stats, sizeof(size_t), &all,
				       sizeof(all));
	}
	env = conn_env(conn);
	cancel = env_cancel_off(env);
	err = engine_enter(rc->engine, env_now_ns(env) + SKEIN_S(1));
	if (!err) {
		stats_inside(rc, &all);
		engine_leave(rc->engine);
		err = ctx_struct_fill(stats, sizeof(size_t), &all, sizeof(all));
	}
	env_cancel_back(env, cancel);
	return err;
}
