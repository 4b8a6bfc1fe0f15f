/* SPDX-License-Identifier: MIT */
/*
 * pool.c - pools of engines and listeners, and what their vqps bring.
 */
#include "conn/pool.h"

#include "base/conf.h"
#include "conn/setup/listener.h"
#include "conn/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#define EVENTS_A_ROUND 64

/* --- configuration ----------------------------------------------------- */

struct pooled_conf {
	int pooled;
};

static const char *const names[] = {"no", "pool", NULL};

static const struct conf_row rows[] = {
	CONF_ROW(struct pooled_conf, pooled, "POOLED", "no",
		 "pool: connections and listeners use virtual queue pairs",
		 conf_enum, names),
	CONF_END};

static const char *lookup(void *arg, const char *name)
{
	return getenv(name);
}

int conn_pooled(struct skein_ctx *ctx, enum skein_pooled attr, bool *pooled)
{
	struct pooled_conf c;
	char err[160];
	int rc;

	if (attr != SKEIN_POOLED_DEFAULT) {
		*pooled = attr == SKEIN_POOLED_POOL;
		return 0;
	}
	conf_defaults(rows, &c);
	rc = conf_load(rows, &c, lookup, NULL, err, sizeof(err));
	if (rc)
		env_log(ctx->env, ENV_LOG_ERROR, "%s", err);
	else
		*pooled = c.pooled;
	return rc;
}

/* --- pools ------------------------------------------------------------- */

static bool is_called(void *arg)
{
	struct conn_pool *pool = arg;

	/* Acquire pairs with the releases in list() and unlist(). */
	return atomic_load_explicit(&pool->called, memory_order_acquire);
}

static void list(struct engine_call *call)
{
	struct conn_pool *pool = container_of(call, struct conn_pool, call);

	list_add_tail(&pool->eng->pools, &pool->link);
	atomic_store_explicit(&pool->called, true, memory_order_release);
}

static void unlist(struct engine_call *call)
{
	struct conn_pool *pool = container_of(call, struct conn_pool, call);

	list_del(&pool->link);
	atomic_store_explicit(&pool->called, true, memory_order_release);
}

static void call(struct conn_pool *pool, void (*fn)(struct engine_call *))
{
	atomic_store(&pool->called, false);
	pool->call.fn = fn;
	engine_post(pool->eng->e, &pool->call);
	engine_run_until(pool->eng->e, is_called, pool, ENV_NEVER);
}

static int pool_open(struct skein_engine *eng, struct skein_listener *l,
		     uint16_t port, struct conn_pool **out)
{
	struct conn_pool *pool;
	int rc;

	if (engine_is_owner(eng->e)) {
		env_log(eng->env, ENV_LOG_ERROR,
			"a callback cannot open a pool: open the first pooled "
			"connection of an engine outside");
		return -EDEADLK;
	}
	rc = conn_pool_ops->open(eng, port, &pool);
	if (rc)
		return rc;
	pool->eng = eng;
	pool->listener = l;
	call(pool, list);
	*out = pool;
	return 0;
}

int conn_pool_get(struct skein_engine *eng, struct conn_pool **out)
{
	struct conn_pool *pool;
	int rc = 0;

	/* Acquire pairs with the release below. */
	pool = atomic_load_explicit(&eng->pool, memory_order_acquire);
	if (!pool && engine_is_owner(eng->e))
		return pool_open(eng, NULL, 0, &pool);
	if (!pool) {
		env_mutex_lock(eng->env, &eng->pool_lock);
		pool = atomic_load_explicit(&eng->pool, memory_order_acquire);
		if (!pool)
			rc = pool_open(eng, NULL, 0, &pool);
		if (rc == 0)
			atomic_store_explicit(&eng->pool, pool,
					      memory_order_release);
		env_mutex_unlock(eng->env, &eng->pool_lock);
	}
	if (rc == 0)
		*out = pool;
	return rc;
}

int conn_pool_listen(struct skein_listener *l, uint16_t port)
{
	return pool_open(l->eng, l, port, &l->pool);
}

static bool no_conns(void *arg)
{
	struct conn_pool *pool = arg;

	/* Acquire pairs with the release in conn_free(). */
	return !atomic_load_explicit(&pool->conns, memory_order_acquire);
}

void conn_pool_end(struct conn_pool *pool)
{
	/* Some were closed without waiting. */
	engine_run_until(pool->eng->e, no_conns, pool, ENV_NEVER);
	call(pool, unlist);
	conn_pool_ops->close(pool);
}

void conn_pools_end(struct skein_ctx *ctx)
{
	struct skein_engine *eng;
	struct conn_pool *pool;
	struct list_node *n;

	list_for_each(n, &ctx->engines) {
		eng = container_of(n, struct skein_engine, ctx_link);
		pool = atomic_exchange(&eng->pool, NULL);
		if (pool)
			conn_pool_end(pool);
	}
}

void conn_vqp_put(struct conn_vqp *vqp)
{
	if (!--vqp->refs)
		conn_pool_ops->free(vqp);
}

/* --- events ------------------------------------------------------------ */

static void failed(struct conn_peer *peer, int err)
{
	if (peer->phase == PEER_DIALLING)
		conn_peer_down(
			peer, err,
			err == -ECONNREFUSED
				? "the meta server knows no such node: it does not "
				  "run, or is not pooled"
				: "the node was not found");
	else if (peer->phase == PEER_SHAKING && peer->dialled)
		conn_peer_down(peer, -ECONNREFUSED, "the node is gone");
	else
		conn_peer_down(peer, err,
			       err == -SKEIN_EDEAD
				       ? "its node does not answer"
				       : "its virtual queue pair has failed");
}

static void bytes(struct conn_vqp *vqp, const uint8_t *data, uint32_t len,
		  uint64_t now_ns)
{
	struct skein_listener *l = vqp->pool->listener;

	if (!vqp->peer && l)
		listener_admit_vqp(l, vqp, now_ns);
	if (!vqp->peer)
		return;
	vqp->peer->link.in = data;
	vqp->peer->link.in_len = len;
	conn_peer_beat(vqp->peer, now_ns);
	if (vqp->peer)
		vqp->peer->link.in_len = 0;
}

/* Each pooled connection has a link of its own. */
static struct skein_conn *conn_of(struct conn_peer *peer)
{
	if (list_empty(&peer->conns))
		return NULL;
	return container_of(peer->conns.next, struct skein_conn, peer_link);
}

static void take(struct skein_engine *eng, struct conn_pool_event *ev,
		 uint64_t now_ns)
{
	struct conn_peer *peer;
	struct skein_conn *conn;

	if (ev->kind == CONN_POOL_BYTES) {
		bytes(ev->vqp, ev->data, ev->len, now_ns);
		return;
	}
	if (ev->kind == CONN_POOL_SENT)
		for (int i = 0; i < ev->n; i++)
			conn_complete(eng, &ev->wc[i]);
	peer = ev->vqp->peer;
	if (!peer)
		return;
	conn = conn_of(peer);
	if (ev->kind == CONN_POOL_FAILED)
		failed(peer, ev->err);
	else if (ev->kind == CONN_POOL_IMM && conn)
		conn_imm(conn, ntohl(ev->imm));
	else if (ev->kind == CONN_POOL_CONNECTED || peer->link.out_len)
		conn_peer_beat(peer, now_ns);
}

static int poll_one(struct skein_engine *eng, struct conn_pool *pool,
		    uint64_t now_ns)
{
	struct conn_pool_event ev;
	int n = 0;

	while (n < EVENTS_A_ROUND && conn_pool_ops->poll(pool, !n, &ev)) {
		n++;
		ev.vqp->refs++; /* its peer may end */
		take(eng, &ev, now_ns);
		conn_pool_ops->done(pool, &ev);
		conn_vqp_put(ev.vqp);
	}
	return n;
}

int conn_pools_poll(struct skein_engine *eng, uint64_t now_ns)
{
	struct list_node *n;
	int moved = 0;

	list_for_each(n, &eng->pools)
		moved += poll_one(eng, container_of(n, struct conn_pool, link),
				  now_ns);
	return moved;
}

int conn_pools_arm(struct skein_engine *eng)
{
	struct list_node *n;
	int awake = 0;

	list_for_each(n, &eng->pools)
		awake |= conn_pool_ops->arm(
			container_of(n, struct conn_pool, link));
	return awake;
}

uint64_t conn_pools_deadline(struct skein_engine *eng)
{
	uint64_t t = ENV_NEVER, at, now = engine_now_ns(eng->e);
	struct list_node *n;

	list_for_each(n, &eng->pools) {
		at = conn_pool_ops->next_deadline(
			container_of(n, struct conn_pool, link), now);
		t = at < t ? at : t;
	}
	return t;
}
