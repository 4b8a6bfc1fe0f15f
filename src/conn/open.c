/* SPDX-License-Identifier: MIT */
/*
 * open.c - the side that opens: looks a name up, tries one address after
 * the other, retries; and the public calls.
 *
 * A second connection to the same target and shard on the same engine shares
 * the control link of the first. docs/design/connections.md.
 */
#include "base/assert.h"
#include "base/hostport.h"
#include "conn/state.h"
#include "conn/setup/listener.h"
#include "conn/setup/path.h"

#include <errno.h>
#include <stdio.h>

/* --- attempts ---------------------------------------------------------- */

static int dial_new(struct conn_peer **peer, struct skein_conn *conn, int fd,
		    struct conn_vqp *vqp, const char *addr)
{
	struct skein_env *env = conn->ctx->env;
	char *target = env_strdup(env, conn->dial->target);
	int rc;

	if (!target)
		return -ENOMEM;
	rc = conn_peer_new(conn->eng, fd, vqp, addr, true, peer);
	if (rc) {
		env_free(env, target);
		return rc;
	}
	(*peer)->target = target;
	(*peer)->shard = conn->shard;
	(*peer)->deadline_ns = conn->deadline_ns;
	return 0;
}

/* Dials addresses until a connect is under way: 0, or the last address's
 * error. */
static int dial(struct skein_conn *conn)
{
	struct conn_dial *d = conn->dial;
	struct skein_env *env = conn->ctx->env;
	char addr[CONN_ADDR_TEXT_MAX];
	struct conn_vqp *vqp = NULL;
	struct conn_peer *peer;
	int fd = -1, rc = -EADDRNOTAVAIL;

	for (; d->i < d->n; d->i++) {
		rc = conn->pool ? conn_pool_ops->dial(conn->pool,
						      &d->addrs[d->i], &vqp)
				: env_sock_connect(env, &d->addrs[d->i], &fd);
		if (rc && conn->lane)
			return rc; /* only to the address of lane 0 */
		if (rc)
			continue;
		conn_addr_format(&d->addrs[d->i], addr, sizeof(addr));
		rc = dial_new(&peer, conn, fd, vqp, addr);
		if (vqp)
			conn_vqp_put(vqp);
		else if (rc)
			env_sock_close(env, fd);
		if (rc)
			return rc;
		rc = conn_peer_attach(peer, conn);
		skein_assert(rc == 0); /* it is the peer's first */
		return 0;
	}
	return rc;
}

void conn_dial_again(struct skein_conn *conn)
{
	struct conn_peer *peer;
	int rc;

	peer = conn->pool ? NULL
			  : conn_peer_find(conn->eng, conn->dial->target,
					   conn->shard);
	conn->fail_err = 0;
	conn->fail_text[0] = 0;
	conn->answered = false;
	if (conn->lanes && !conn->lane)
		conn_lanes_again(conn);
	conn->phase = CONN_P_LINK;
	/* By the deadline of all attempts, if there is one. */
	conn->deadline_ns = conn->dial->retry.deadline_ns;
	if (conn->dial->ever_ready || conn->deadline_ns == ENV_NEVER)
		conn->deadline_ns =
			engine_now_ns(conn->eng->e) + conn->dial->timeout_ns;
	eng_pend(conn->eng, conn);
	if (peer && conn_peer_attach(peer, conn) == 0) {
		if (peer->phase == PEER_READY)
			conn_offer(conn);
		return;
	}
	rc = dial(conn);
	if (rc)
		conn_fail(conn, rc, "no address could be dialled", 0);
}

void conn_waiters_offer(struct conn_peer *peer)
{
	struct list_node *n, *next;
	struct skein_conn *conn;

	list_for_each_safe(n, next, &peer->conns) {
		conn = container_of(n, struct skein_conn, peer_link);
		if (conn->phase == CONN_P_LINK)
			conn_offer(conn);
	}
}

static void finally_failed(struct skein_conn *conn, int err, const char *detail)
{
	conn->phase = CONN_P_DOWN;
	conn->deadline_ns = ENV_NEVER;
	if (!conn->err)
		conn_story(conn, err, "cannot connect to", detail);
	conn_set_state(conn, SKEIN_CONN_BROKEN);
	if (conn->on_state)
		conn->on_state(conn->on_state_arg, conn, SKEIN_CONN_BROKEN);
}

/* A lane other than 0 has failed: the handle's lanes all end. */
static void lane_failed(struct skein_conn *conn, int err, const char *detail)
{
	conn_lane_ended(conn, err, detail);
	conn_opened_lane_down(conn);
}

void conn_attempt_failed(struct skein_conn *conn, int err, const char *detail,
			 uint64_t hint_ns)
{
	struct conn_dial *d = conn->dial;
	bool no_link = conn->phase == CONN_P_LINK;

	conn_attempt_undo(conn);
	if (!conn->client) {
		conn_story(conn, err, "handshake failed with", detail);
		conn_lane_ended(conn, err, detail);
		conn->phase = CONN_P_GONE;
		return;
	}
	if (conn->closing) {
		conn->phase = CONN_P_DOWN;
		return;
	}
	if (no_link && err == -ECANCELED &&
	    !(conn->lane && conn->lanes->ending)) {
		conn_dial_again(conn);
		return;
	}
	if (conn->lane) {
		lane_failed(conn, err, detail);
		return;
	}
	if (no_link && err != -ETIMEDOUT && d->i + 1 < d->n) {
		d->i++;
		conn_dial_again(conn);
		return;
	}
	conn_attempt_next(conn, err, detail, hint_ns);
}

void conn_attempt_next(struct skein_conn *conn, int err, const char *detail,
		       uint64_t hint_ns)
{
	struct conn_dial *d = conn->dial;
	uint64_t at;

	d->i = 0;
	if (retry_next(&d->retry, err, engine_now_ns(conn->eng->e), hint_ns,
		       &at)) {
		env_log(conn->ctx->env, ENV_LOG_DEBUG,
			"cannot connect to %s: %s: %s; trying again",
			conn->name, skein_strerror(err), detail);
		conn->phase = CONN_P_PAUSE;
		conn->deadline_ns = at;
		return;
	}
	finally_failed(conn, err, detail);
}

void conn_start(struct skein_conn *conn)
{
	struct conn_dial *d = conn->dial;
	uint64_t now = engine_now_ns(conn->eng->e);
	uint64_t deadline = env_deadline(now, d->timeout_ns);

	retry_init(&d->retry, d->retries, deadline);
	conn_dial_again(conn);
}

/* --- the public calls -------------------------------------------------- */

static void start_call(struct engine_call *call)
{
	struct skein_conn *conn =
		container_of(call, struct skein_conn, start_call);

	atomic_store_explicit(&conn->started, true, memory_order_release);
	if (!conn->closing)
		conn_start(conn);
}

static int lookup(struct skein_ctx *ctx, const char *text, struct conn_dial *d)
{
	struct hostport addr;
	int rc = hostport_parse(text, &addr);

	if (rc || !strcmp(addr.port, "0")) {
		env_log(ctx->env, ENV_LOG_ERROR,
			"\"%s\" is no address to connect to: write HOST:PORT, "
			"an IPv6 address in brackets",
			text ? text : "");
		return -EINVAL;
	}
	rc = env_resolve(ctx->env, addr.host[0] ? addr.host : "localhost",
			 addr.port, false, d->addrs, CONN_TARGETS_MAX, &d->n);
	if (rc == -EADDRNOTAVAIL)
		env_log(ctx->env, ENV_LOG_ERROR,
			"cannot find host %s: check the name, or give an "
			"address",
			addr.host);
	else if (rc)
		env_log(ctx->env, ENV_LOG_ERROR, "cannot look up \"%s\": %s%s",
			text, skein_strerror(rc),
			rc == -EAGAIN ? " (no name server answers: give an "
					"address)"
				      : "");
	return rc;
}

static int dial_make(struct skein_ctx *ctx, const char *addr,
		     const struct skein_conn_attr *attr, struct conn_dial **out)
{
	struct conn_dial *d = env_alloc(ctx->env, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	rc = lookup(ctx, addr, d);
	if (rc)
		goto err_free;
	d->target = env_strdup(ctx->env, addr);
	if (!d->target) {
		rc = -ENOMEM;
		goto err_free;
	}
	d->timeout_ns = attr->timeout_ns ? attr->timeout_ns : CONN_TIMEOUT_NS;
	d->retries = attr->retries;
	d->reconnect = attr->reconnect;
	*out = d;
	return 0;

err_free:
	env_free(ctx->env, d);
	return rc;
}

/* The pool of a pooled connection, else NULL. Modules' own connections are not
 * pooled. */
static int pool_of(struct skein_ctx *ctx, const struct skein_conn_attr *attr,
		   const struct conn_module *module, unsigned qps,
		   struct conn_pool **pool)
{
	bool pooled;
	int rc;

	*pool = NULL;
	if (module)
		return 0;
	rc = conn_pooled(ctx, attr->pooled, &pooled);
	if (rc || !pooled)
		return rc;
	if (qps > 1) {
		env_log(ctx->env, ENV_LOG_ERROR,
			"a pooled connection has one QP, not %u", qps);
		return -EOPNOTSUPP;
	}
	return conn_pool_get(attr->engine ? attr->engine : ctx->engine, pool);
}

int conn_open_sole(struct skein_ctx *ctx, const char *addr,
		   const struct skein_conn_attr *user,
		   const struct conn_module *module, void *arg,
		   struct skein_conn **out)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_conn *conn;
	struct conn_pool *pool;
	struct lanes_conf lanes;
	struct skein_path path;
	const char *text;
	char err[160];
	int rc;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	rc = skein_ctx_error(ctx, &text);
	if (rc && rc != -ENETDOWN) {
		env_log(ctx->env, ENV_LOG_ERROR, "cannot connect: %s", text);
		return rc;
	}
	rc = ctx_attr_take(ctx, &attr, sizeof(attr), user);
	if (rc)
		return rc;
	lanes = (struct lanes_conf){.qps = attr.qps,
				    .combine = attr.combine,
				    .fetch = (int)attr.return_mode,
				    .latency_bound_ns = attr.latency_bound_ns,
				    .latency_tolerance =
					    attr.latency_tolerance};
	rc = path_over(&attr.path, &ctx->path, &path, err, sizeof(err));
	if (rc == 0)
		rc = conn_lanes_conf(&lanes, &lanes, err, sizeof(err));
	if (rc) {
		env_log(ctx->env, ENV_LOG_ERROR, "%s", err);
		return rc;
	}
	rc = pool_of(ctx, &attr, module, lanes.qps, &pool);
	if (rc)
		return rc;
	rc = conn_new(attr.engine ? attr.engine : ctx->engine, true, &conn);
	if (rc)
		return rc;
	conn_pool_set(conn, pool);
	rc = dial_make(ctx, addr, &attr, &conn->dial);
	if (rc) {
		conn_free(conn);
		return rc;
	}
	path_opts(&path, &conn->opts);
	conn->shard = attr.shard;
	conn->sole = module;
	conn->sole_arg = arg;
	conn->on_state = attr.on_state;
	conn->on_state_arg = attr.arg;
	conn_set_name(conn, addr, 0);
	conn_set_state(conn, SKEIN_CONN_CONNECTING);
	if (!module)
		rc = conn_lanes_make(conn, &lanes);
	if (rc) {
		conn_lanes_unmake(conn);
		return rc;
	}
	env_mutex_lock(ctx->env, &ctx->lock);
	list_add_tail(&ctx->conns, &conn->ctx_link);
	env_mutex_unlock(ctx->env, &ctx->lock);
	conn->start_call.fn = start_call;
	engine_post(conn->eng->e, &conn->start_call);
	*out = conn;
	return 0;
}

int skein_conn_open_async(struct skein_ctx *ctx, const char *addr,
			  const struct skein_conn_attr *attr,
			  struct skein_conn **conn)
{
	return conn_open_sole(ctx, addr, attr, NULL, NULL, conn);
}

static bool settled(void *arg)
{
	return skein_conn_get_state(arg) != SKEIN_CONN_CONNECTING;
}

int skein_conn_wait(struct skein_conn *conn, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	struct skein_env *env = conn->ctx->env;
	uint64_t deadline;
	int rc;

	if (env_forked(env))
		return -SKEIN_EFORKED;
	deadline = env_deadline(env_now_ns(env), timeout_ns);
	/* A loop: it may have ended and begun to connect again. */
	for (;;) {
		switch (skein_conn_get_state(conn)) {
		case SKEIN_CONN_READY:
			return 0;
		case SKEIN_CONN_CONNECTING:
			break;
		default:
			return conn->err ? conn->err : -ECONNABORTED;
		}
		rc = engine_run_until(conn->eng->e, settled, conn, deadline);
		if (rc)
			return rc;
	}
}

int skein_conn_open(struct skein_ctx *ctx, const char *addr,
		    const struct skein_conn_attr *attr, struct skein_conn **out)
{
	ENV_HOLD_CANCEL();
	struct skein_conn *conn;
	uint64_t end;
	int rc;

	rc = conn_open_sole(ctx, addr, attr, NULL, NULL, &conn);
	if (rc)
		return rc;
	/* The engine's owner ends the attempt in time and says why. The grace
	 * is for an owner that is kept busy by a callback. */
	end = env_deadline(env_now_ns(ctx->env), conn->dial->timeout_ns);
	end = env_deadline(end, CONN_GRACE_NS);
	rc = engine_run_until(conn->eng->e, settled, conn, end);
	if (rc == 0 && skein_conn_get_state(conn) != SKEIN_CONN_READY)
		rc = conn->err ? conn->err : -ECONNABORTED;
	if (rc) {
		skein_conn_close(conn, 0);
		return rc;
	}
	*out = conn;
	return 0;
}
