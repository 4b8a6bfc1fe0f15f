/* SPDX-License-Identifier: MIT */
/*
 * events.c - asynchronous events of the device (IBA 11.6.3).
 *
 * The default engine's owner reads events on its beat; the owner of another
 * engine reads them when it meets a flush. The reader acknowledges at once, as
 * destroying a QP waits for that. Events go to the engines with QP numbers,
 * never pointers: the QP may be gone when its engine looks.
 *
 * Thread rule: events_beat() by the engine's owner. The ring of the last
 * CTX_EVENTS is under ctx->lock; event_seq is read without it.
 */
#include "conn/events.h"

#include "conn/state.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

#define EVENTS_A_BEAT 16
#define ALL_QPS UINT32_MAX /* no QPN: they have 24 bits */

/* --- reading ----------------------------------------------------------- */

static void publish(struct skein_ctx *ctx, uint32_t qpn, int err)
{
	struct list_node *n;
	uint64_t seq;

	env_mutex_lock(ctx->env, &ctx->lock);
	seq = atomic_load_explicit(&ctx->event_seq, memory_order_relaxed);
	ctx->events[seq % CTX_EVENTS] = (struct ctx_event){qpn, err};
	/* event_seq only tells the engines to look: they read the entry under
	 * the lock. */
	atomic_store_explicit(&ctx->event_seq, seq + 1, memory_order_release);
	list_for_each(n, &ctx->engines)
		engine_kick(container_of(n, struct skein_engine, ctx_link)->e);
	env_mutex_unlock(ctx->env, &ctx->lock);
}

bool ctx_port_lost(struct skein_ctx *ctx)
{
	uint64_t since =
		atomic_load_explicit(&ctx->port_down_ns, memory_order_relaxed);

	return __builtin_expect(since != 0, 0) &&
	       env_now_ns(ctx->env) - since >= CTX_PORT_DOWN_NS;
}

static void log_port(struct skein_ctx *ctx, const struct ibv_async_event *ev)
{
	bool down = ev->event_type == IBV_EVENT_PORT_ERR;

	if (ev->element.port_num == ctx->dev->port)
		atomic_store(&ctx->port_down_ns,
			     down ? env_now_ns(ctx->env) : 0);
	env_log(ctx->env, down ? ENV_LOG_WARN : ENV_LOG_INFO,
		"%s (%s): port %d is %s", ctx->dev->ops->kind, ctx->dev->name,
		ev->element.port_num,
		down ? "down: connections wait for it for some seconds" : "up");
}

/* An event of the port: asks the device what has changed. */
static void look_again(struct skein_ctx *ctx, const struct ibv_async_event *ev)
{
	struct dev *dev = ctx->dev;
	struct dev_path path;
	unsigned changes = 0;
	int rc;

	if (ev->element.port_num != dev->port || !dev->ops->refresh)
		return;
	rc = dev->ops->refresh(dev, &changes);
	if (rc)
		env_log(ctx->env, ENV_LOG_WARN,
			"%s (%s): cannot look at port %u again: %s",
			dev->ops->kind, dev->name, dev->port,
			skein_strerror(rc));
	if (!(changes & DEV_CHANGE_ADDR))
		return;
	dev_path_now(dev, &path);
	env_log(ctx->env, ENV_LOG_WARN,
		"%s (%s): its address has changed: connections end; GID %d "
		"from now on: %s",
		dev->ops->kind, dev->name, path.gid.index, path.gid.why);
	publish(ctx, ALL_QPS, -EADDRNOTAVAIL);
}

static void device_failed(struct skein_ctx *ctx)
{
	struct dev *dev = ctx->dev;

	env_mutex_lock(ctx->env, &ctx->lock);
	if (!ctx->failed)
		snprintf(ctx->story, sizeof(ctx->story),
			 "%s (%s): the device failed or was removed: close the "
			 "context, and open another when it is back",
			 dev->ops->kind, dev->name);
	/* Release: a thread that reads failed also sees the whole text. */
	atomic_store_explicit(&ctx->failed, -ENODEV, memory_order_release);
	env_mutex_unlock(ctx->env, &ctx->lock);
	env_log(ctx->env, ENV_LOG_ERROR, "%s", ctx->story);
	publish(ctx, ALL_QPS, -ENODEV);
}

static void take_event(struct skein_ctx *ctx, const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_QP_FATAL:
		publish(ctx, ev->element.qp->qp_num, -EIO);
		break;
	case IBV_EVENT_QP_ACCESS_ERR:
		publish(ctx, ev->element.qp->qp_num, -EACCES);
		break;
	case IBV_EVENT_QP_REQ_ERR:
		publish(ctx, ev->element.qp->qp_num, -SKEIN_EPEER);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		device_failed(ctx);
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		log_port(ctx, ev);
		look_again(ctx, ev);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		look_again(ctx, ev);
		break;
	case IBV_EVENT_CQ_ERR: /* polling it fails, and says so */
	default:
		break;
	}
}

static int read_events(struct skein_ctx *ctx)
{
	struct dev *dev = ctx->dev;
	struct ibv_async_event ev;
	int n;

	for (n = 0; n < EVENTS_A_BEAT; n++) {
		if (dev->ops->get_async_event(dev, &ev))
			break;
		take_event(ctx, &ev);
		dev->ops->ack_async_event(dev, &ev);
	}
	return n;
}

/* --- each engine's part ------------------------------------------------ */

static const char *words(int err)
{
	switch (-err) {
	case ENETDOWN:
		return "the device's port is down";
	case EACCES:
		return "the peer asked for memory that it may not touch";
	case SKEIN_EPEER:
		return "the peer sent a request that the device finds invalid";
	case ENODEV:
		return "the device failed or was removed";
	case EADDRNOTAVAIL:
		return "this end's address (GID or LID) is gone from the port";
	default:
		return "the device reports a fatal error of its QP";
	}
}

static void tell(struct skein_conn *conn, int err)
{
	/* The end of the peer's process may be such an error too. */
	if (err == -EIO && conn->peer && conn_qp_probe(conn) == -ENOTCONN)
		conn_peer_down(conn->peer, -SKEIN_EDEAD,
			       "its process has ended");
	else
		conn_break(conn, err, "%s", words(err));
}

static void take(struct skein_engine *eng, const struct ctx_event *ev)
{
	struct skein_conn *conn;

	for (uint32_t i = 0; i < eng->table_cap; i++) {
		conn = eng->table[i];
		if (conn && conn->qp &&
		    (ev->qpn == ALL_QPS ||
		     (!conn->pool && ev->qpn == conn->qp->qp_num)))
			tell(conn, ev->err);
	}
}

static int take_all(struct skein_engine *eng)
{
	struct skein_ctx *ctx = eng->ctx;
	struct ctx_event ev;
	uint64_t seq;
	int moved = 0;

	seq = atomic_load_explicit(&ctx->event_seq, memory_order_acquire);
	if (__builtin_expect(seq == eng->events_seen, 1))
		return moved;
	/* Overwritten events are lost: flushed requests break those QPs'
	 * connections. */
	if (seq - eng->events_seen > CTX_EVENTS)
		eng->events_seen = seq - CTX_EVENTS;
	while (eng->events_seen < seq) {
		env_mutex_lock(ctx->env, &ctx->lock);
		ev = ctx->events[eng->events_seen++ % CTX_EVENTS];
		env_mutex_unlock(ctx->env, &ctx->lock);
		take(eng, &ev);
		moved++;
	}
	return moved;
}

/* The port has been down for long enough: ends all connections, idle ones
 * too. */
static int port_beat(struct skein_engine *eng)
{
	struct ctx_event ev = {ALL_QPS, -ENETDOWN};

	if (!ctx_port_lost(eng->ctx))
		return 0;
	take(eng, &ev);
	return 0;
}

int events_beat(struct skein_engine *eng)
{
	int moved = 0;

	if (eng == eng->ctx->engine)
		moved = read_events(eng->ctx);
	return moved + take_all(eng) + port_beat(eng);
}

void events_now(struct skein_engine *eng)
{
	read_events(eng->ctx);
	take_all(eng);
}

int events_watch(struct skein_engine *eng)
{
	eng->events_seen = atomic_load(&eng->ctx->event_seq);
	if (eng->ctx->engine)
		return 0;
	return env_waiter_watch(eng->env, engine_waiter(eng->e),
				eng->dev->verbs->async_fd, EPOLLIN);
}

void events_unwatch(struct skein_engine *eng)
{
	if (eng == eng->ctx->engine)
		env_waiter_unwatch(eng->env, engine_waiter(eng->e),
				   eng->dev->verbs->async_fd);
}
