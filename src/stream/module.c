/* SPDX-License-Identifier: MIT */
/*
 * module.c - streams as a module of connections. Streams of two contexts share
 * a connection and a QP. The connection's handshake carries both ends' QP
 * addresses; afterwards it only tells whether the peer lives: bytes go by the
 * QP, to which any thread posts under the connection's lock.
 * docs/protocol/stream.md, "The QP".
 *
 * A round looks at streams that are active. One in which nothing has moved for
 * QUIET_NS asks for a bell, and rounds leave it out until that rings.
 *
 * Thread rule: the engine's owner, but for what state.h says of a function. It
 * holds a connection's lock for the time of a copy at most.
 */
#include "stream/state.h"

#include "base/assert.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAP_NS 1000000u
#define QUIET_NS 10000000u
/* Streams that rest and are counted in one look of the counters. */
#define ASLEEP_TURN 16u
/* A connection without streams is kept so long. */
#define IDLE_NS (10 * 1000 * 1000 * 1000ull)

/* --- context ------------------------------------------------------------- */

static int stream_ctx_open(struct skein_ctx *ctx, void **state)
{
	struct stream_ctx *sx = env_alloc(ctx->env, sizeof(*sx));
	char err[320];
	int rc;

	if (!sx)
		return -ENOMEM;
	sx->ctx = ctx;
	rc = stream_conf_load(&sx->conf, err, sizeof(err));
	if (rc) {
		env_log(ctx->env, ENV_LOG_ERROR, "stream: %s", err);
		env_free(ctx->env, sx);
		return rc;
	}
	env_mutex_init(ctx->env, &sx->lock);
	list_init(&sx->conns);
	list_init(&sx->streams);
	list_init(&sx->listeners);
	stream_host_init_lent(&sx->host, ctx->env, ctx->dev, ctx->pd);
	sx->host.mem_max = sx->conf.mem;
	*state = sx;
	return 0;
}

/* Resets the streams that the application has left open. */
static void stream_ctx_stop(struct skein_ctx *ctx, void *state)
{
	struct stream_ctx *sx = state;

	while (!list_empty(&sx->listeners))
		skein_stream_listener_close(
			container_of(sx->listeners.next,
				     struct skein_stream_listener, link));
	while (!list_empty(&sx->streams))
		skein_stream_close(container_of(sx->streams.next,
						struct skein_stream, link),
				   0);
	stream_sweep_idle(sx, true);
}

static void stream_ctx_close(struct skein_ctx *ctx, void *state)
{
	struct stream_ctx *sx = state;

	stream_host_fini(&sx->host);
	env_mutex_fini(ctx->env, &sx->lock);
	env_free(ctx->env, sx);
}

/* --- connections --------------------------------------------------------- */

static struct skein_env *env_of(const struct stream_conn *sc)
{
	return sc->sx->ctx->env;
}

static struct stream_conn *conn_make(struct stream_ctx *sx,
				     struct skein_engine *eng)
{
	struct stream_conn *sc = env_alloc(sx->ctx->env, sizeof(*sc));

	if (!sc)
		return NULL;
	sc->sx = sx;
	sc->eng = eng;
	sc->look_ns = ENV_NEVER;
	list_init(&sc->active);
	list_init(&sc->asleep);
	env_mutex_init(sx->ctx->env, &sc->lock);
	return sc;
}

/* The QP of an attempt. */
static int qp_make(struct stream_conn *sc)
{
	struct stream_ctx *sx = sc->sx;
	struct stream_qp *q;
	int rc;

	env_mutex_lock(env_of(sc), &sx->lock);
	rc = stream_qp_new(&sx->host, sc->eng->channel, &q);
	env_mutex_unlock(env_of(sc), &sx->lock);
	if (rc)
		return rc;
	q->user = sc;
	q->open = stream_opens;
	env_mutex_lock(env_of(sc), &sc->lock);
	sc->q = q;
	env_mutex_unlock(env_of(sc), &sc->lock);
	return 0;
}

/* Afterwards the peer writes nothing any more. No stream has an owner. */
static void qp_free(struct stream_conn *sc)
{
	struct stream_ctx *sx = sc->sx;
	struct stream_qp *q = sc->q;

	stream_conn_sweep(sc);
	sc->q = NULL;
	if (!q)
		return;
	env_mutex_lock(env_of(sc), &sx->lock);
	/* The QP first: what it has under way uses the streams' memory. */
	stream_qp_free(q);
	env_mutex_unlock(env_of(sc), &sx->lock);
}

static void conn_unmake(struct stream_conn *sc)
{
	struct skein_env *env = env_of(sc);

	skein_assert(!sc->users);
	qp_free(sc);
	env_mutex_fini(env, &sc->lock);
	env_free(env, sc->addr);
	env_free(env, sc);
}

/* The connection of sc is gone. It is freed here, or with its last user. */
static void conn_is_down(struct stream_conn *sc)
{
	struct stream_ctx *sx = sc->sx;
	bool last;

	env_mutex_lock(env_of(sc), &sx->lock);
	sc->down = sc->spent = true;
	last = !sc->users;
	env_mutex_unlock(env_of(sc), &sx->lock);
	if (last)
		conn_unmake(sc);
}

static void leave_call(struct engine_call *call)
{
	struct stream_conn *sc =
		container_of(call, struct stream_conn, leave_call);

	sc->leaving = true;
	if (!sc->conn)
		conn_is_down(sc); /* else closed() does */
}

/* A dialled connection without users, which is in no list any more. The engine
 * ends and frees it; no thread waits for the peer. */
static void conn_leave(struct stream_conn *sc)
{
	struct skein_engine *eng = sc->eng;

	skein_conn_close(sc->handle, 0);
	sc->leave_call.fn = leave_call;
	engine_post(eng->e, &sc->leave_call);
	skein_engine_progress(eng);
}

void stream_conn_put(struct stream_conn *sc)
{
	struct stream_ctx *sx = sc->sx;
	bool last, leave, gone;

	env_mutex_lock(env_of(sc), &sx->lock);
	last = !--sc->users;
	leave = last && sc->dialled && sc->spent;
	gone = last && !sc->dialled && sc->down;
	if (leave)
		list_del(&sc->link);
	sc->idle_ns = env_now_ns(env_of(sc));
	env_mutex_unlock(env_of(sc), &sx->lock);
	if (leave)
		conn_leave(sc);
	else if (gone)
		conn_unmake(sc);
}

void stream_conn_spend(struct stream_conn *sc)
{
	env_mutex_lock(env_of(sc), &sc->sx->lock);
	sc->spent = true;
	env_mutex_unlock(env_of(sc), &sc->sx->lock);
}

bool stream_conn_spent(struct stream_conn *sc)
{
	bool spent;

	env_mutex_lock(env_of(sc), &sc->sx->lock);
	spent = sc->spent;
	env_mutex_unlock(env_of(sc), &sc->sx->lock);
	return spent;
}

void stream_sweep_idle(struct stream_ctx *sx, bool all)
{
	uint64_t now = env_now_ns(sx->ctx->env);
	struct stream_conn *sc, *idle;
	struct list_node *n;

	do {
		idle = NULL;
		env_mutex_lock(sx->ctx->env, &sx->lock);
		list_for_each(n, &sx->conns) {
			sc = container_of(n, struct stream_conn, link);
			if (!sc->users &&
			    (all || sc->spent || now - sc->idle_ns > IDLE_NS))
				idle = sc;
		}
		if (idle)
			list_del(&idle->link);
		env_mutex_unlock(sx->ctx->env, &sx->lock);
		if (idle)
			conn_leave(idle);
	} while (idle);
}

/* A new connection, dialled. */
static int conn_dial(struct stream_ctx *sx, const char *addr,
		     const struct skein_conn_attr *attr,
		     struct stream_conn **out)
{
	struct stream_conn *sc = conn_make(sx, attr->engine);
	struct skein_env *env = sx->ctx->env;
	int rc = -ENOMEM;

	if (!sc)
		return rc;
	sc->dialled = true;
	sc->users = 1;
	sc->shard = attr->shard;
	sc->spent = !sx->conf.qps;
	sc->addr = env_strdup(env, addr);
	if (sc->addr)
		rc = conn_open_sole(sx->ctx, addr, attr, &stream_module, sc,
				    &sc->handle);
	if (rc) {
		sc->users = 0;
		conn_unmake(sc);
		return rc;
	}
	env_mutex_lock(env, &sx->lock);
	list_add_tail(&sx->conns, &sc->link);
	env_mutex_unlock(env, &sx->lock);
	*out = sc;
	return 0;
}

int stream_conn_get(struct stream_ctx *sx, const char *addr,
		    const struct skein_conn_attr *attr,
		    struct stream_conn **out, bool *mine)
{
	struct stream_conn *sc, *best = NULL;
	struct list_node *n;
	unsigned found = 0;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	list_for_each(n, &sx->conns) {
		sc = container_of(n, struct stream_conn, link);
		if (sc->spent || sc->eng != attr->engine ||
		    sc->shard != attr->shard || strcmp(sc->addr, addr) != 0)
			continue;
		found++;
		if (!best || sc->users < best->users)
			best = sc;
	}
	*mine = !best || found < sx->conf.qps;
	if (!*mine)
		best->users++;
	env_mutex_unlock(sx->ctx->env, &sx->lock);
	if (*mine)
		return conn_dial(sx, addr, attr, out);
	*out = best;
	return 0;
}

/* --- handshake ----------------------------------------------------------- */

static int stream_offer(struct skein_conn *conn, struct bytes_out *out)
{
	struct stream_conn *sc = conn_sole_arg(conn);
	struct stream_qp_addr addr;
	int rc;

	rc = qp_make(sc);
	if (rc)
		return rc;
	sc->conn = conn;
	conn_module_set(conn, CONN_MODULE_STREAM, sc);
	stream_qp_addr(sc->q, &addr);
	stream_qp_addr_put(&addr, out);
	return 0;
}

static int addr_get(struct bytes_in *in, struct stream_qp_addr *addr)
{
	return stream_qp_addr_get(in, addr) || bytes_left(in) ? -SKEIN_EPEER
							      : 0;
}

static int stream_taken(struct skein_conn *conn, struct bytes_in *in,
			struct bytes_out *out)
{
	struct stream_qp_addr addr;
	struct stream_conn *sc;
	int rc = addr_get(in, &addr);

	if (rc)
		return rc;
	sc = conn_make(conn_ctx_module(conn_ctx(conn), CONN_MODULE_STREAM),
		       conn->eng);
	if (!sc)
		return -ENOMEM;
	rc = qp_make(sc);
	if (rc == 0)
		rc = stream_qp_connect(sc->q, &addr, &conn->opts);
	if (rc) {
		conn_unmake(sc);
		return rc == -EINVAL ? -SKEIN_EPEER : rc;
	}
	sc->conn = conn;
	conn_module_set(conn, CONN_MODULE_STREAM, sc);
	stream_qp_addr(sc->q, &addr);
	stream_qp_addr_put(&addr, out);
	return 0;
}

static int stream_confirm(struct skein_conn *conn, struct bytes_in *in)
{
	struct stream_conn *sc = conn_module_state(conn, CONN_MODULE_STREAM);
	struct stream_qp_addr addr;
	int rc = addr_get(in, &addr);

	if (rc == 0)
		rc = stream_qp_connect(sc->q, &addr, &conn->opts);
	return rc == -EINVAL ? -SKEIN_EPEER : rc;
}

static void stream_ready(struct skein_conn *conn)
{
	struct stream_conn *sc = conn_module_state(conn, CONN_MODULE_STREAM);

	if (sc)
		snprintf(sc->peer, sizeof(sc->peer), "%s",
			 skein_conn_peer(conn));
}

/* --- while it is up ------------------------------------------------------ */

/* Rounds look at st again. */
static void activate(struct skein_stream *st)
{
	list_del(&st->at);
	list_add_tail(&st->sc->active, &st->at);
}

void stream_conn_poll(struct stream_conn *sc)
{
	struct skein_stream *st;
	struct stream *s;

	stream_qp_poll(sc->q);
	while ((s = stream_qp_woken(sc->q))) {
		st = s->user;
		if (!st)
			continue;
		activate(st);
		if (st->dialled && !st->live && !st->err && !s->asked &&
		    !st->live_by_ns)
			stream_answered(st);
		if (s->peer_closed)
			stream_fail(st, -ECONNRESET);
	}
}

/* Has st become readable or writable? */
static bool look(struct skein_stream *st)
{
	enum stream_type type;
	const uint8_t *data;
	bool changed = false;
	uint32_t len;

	/* Relaxed: a thread that sees them takes the lock and looks again. */
	if (!atomic_load_explicit(&st->readable, memory_order_relaxed) &&
	    stream_peek(st->s, &type, &data, &len)) {
		atomic_store_explicit(&st->readable, true,
				      memory_order_relaxed);
		changed = true;
	}
	if (!atomic_load_explicit(&st->writable, memory_order_relaxed) &&
	    stream_writable(st->s)) {
		atomic_store_explicit(&st->writable, true,
				      memory_order_relaxed);
		changed = true;
	}
	return changed;
}

/* The peer may be gone by now: what it wrote is still read. True: st may be
 * gone. */
static bool look_for_life(struct skein_stream *st, uint64_t now_ns)
{
	struct stream *s = st->s;

	if (st->dialled && (!st->live_by_ns || st->err))
		return false;
	if (stream_accepted(s) &&
	    (st->err || (stream_flush(s) && stream_drained(s)))) {
		st->moved_ns = now_ns;
		stream_go_live(st);
		return true;
	}
	if (!st->err && !s->broken && now_ns <= st->live_by_ns)
		return false;
	stream_not_live(st, st->err ? st->err : -ETIMEDOUT);
	return true;
}

/* All that st waits for rings. Send completions do not. */
static bool may_rest(struct skein_stream *st)
{
	return st->s->sleep == STREAM_ASLEEP &&
	       (atomic_load_explicit(&st->writable, memory_order_relaxed) ||
		(stream_drained(st->s) && stream_qp_slots(st->sc->q)));
}

static int look_at_all(struct stream_conn *sc, uint64_t now_ns)
{
	struct list_node *n, *next;
	struct skein_stream *st;
	int moved = 0;

	list_for_each_safe(n, next, &sc->active) {
		st = container_of(n, struct skein_stream, at);
		if (!st->live) {
			moved |= look_for_life(st, now_ns);
		} else if (look(st)) {
			moved = 1;
			st->moved_ns = now_ns;
		} else if (now_ns - st->moved_ns >= QUIET_NS) {
			if (may_rest(st)) {
				list_del(n);
				list_add_tail(&sc->asleep, n);
			} else {
				stream_ask(st->s, false);
			}
		}
	}
	return moved;
}

static void tend(struct stream_conn *sc, uint64_t now_ns)
{
	env_mutex_lock(env_of(sc), &sc->sx->lock);
	stream_qp_tend(sc->q, now_ns);
	env_mutex_unlock(env_of(sc), &sc->sx->lock);
}

static int round_of(struct skein_conn *conn, void *state, uint64_t now_ns)
{
	struct stream_conn *sc = state;
	int moved, broken;
	bool left;

	env_mutex_lock(env_of(sc), &sc->lock);
	stream_conn_poll(sc);
	if (stream_qp_tends(sc->q, now_ns))
		tend(sc, now_ns);
	moved = look_at_all(sc, now_ns) || sc->found;
	sc->found = false;
	broken = sc->q->broken;
	left = !list_empty(&sc->q->left);
	env_mutex_unlock(env_of(sc), &sc->lock);
	if (left)
		stream_conn_sweep(sc);
	if (!broken)
		return moved;
	if (broken == -ECONNRESET)
		conn_qp_failed(conn);
	else
		conn_break(conn, broken, "stream: its queue pair has failed");
	return 1;
}

/* Asks peers to ring, and does not wait for their answers: until these come the
 * engine looks once a millisecond. */
static int stream_arm(struct skein_conn *conn, void *state)
{
	struct stream_conn *sc = state;
	struct list_node *n, *next;
	struct skein_stream *st;
	bool awake;

	env_mutex_lock(env_of(sc), &sc->lock);
	/* Requested before the queue is polled and the rings are looked at:
	 * what comes after that causes an event. */
	awake = dev_req_notify_cq(sc->q->rcq, 0);
	sc->naps = false;
	list_for_each(n, &sc->active) {
		st = container_of(n, struct skein_stream, at);
		if (st->live)
			awake |= !stream_ask(st->s, false);
	}
	stream_conn_poll(sc);
	list_for_each_safe(n, next, &sc->active) {
		st = container_of(n, struct skein_stream, at);
		/* Threads that wait in places are woken behind a round that
		 * says so. Until a stream is live the ends only write words,
		 * and these cause no event. */
		if (st->live && look(st)) {
			sc->found = true;
		} else if (st->live && may_rest(st)) {
			list_del(n);
			list_add_tail(&sc->asleep, n);
		} else {
			sc->naps = true;
		}
	}
	awake |= sc->found || sc->q->broken || !list_empty(&sc->q->tending);
	sc->look_ns = sc->q->look_ns;
	env_mutex_unlock(env_of(sc), &sc->lock);
	return awake;
}

static uint64_t stream_deadline(struct skein_conn *conn, void *state)
{
	struct stream_conn *sc = state;

	return sc->naps ? engine_now_ns(sc->eng->e) + NAP_NS : sc->look_ns;
}

/* --- counters ------------------------------------------------------------ */

void stream_count(struct skein_stream *st)
{
	struct stream_conn *sc = st->sc;
	const uint64_t now[3] = {st->read, st->written, st->s->records};

	sc->read += now[0] - st->counted[0];
	sc->written += now[1] - st->counted[1];
	sc->records += now[2] - st->counted[2];
	memcpy(st->counted, now, sizeof(now));
}

/* Streams that rest may be used, too: they have their turns. */
static void count_asleep(struct stream_conn *sc)
{
	struct list_node *n;

	for (unsigned i = 0; i < ASLEEP_TURN && i < sc->streams; i++) {
		n = list_pop_head(&sc->asleep);
		if (!n)
			return;
		stream_count(container_of(n, struct skein_stream, at));
		list_add_tail(&sc->asleep, n);
	}
}

static void stream_counters(struct skein_conn *conn, void *state, uint64_t *of)
{
	struct stream_conn *sc = state;
	struct list_node *n;

	env_mutex_lock(env_of(sc), &sc->lock);
	list_for_each(n, &sc->active)
		stream_count(container_of(n, struct skein_stream, at));
	count_asleep(sc);
	of[COUNTER_STREAMS] += sc->streams;
	of[COUNTER_STREAM_RX] += sc->read;
	of[COUNTER_STREAM_TX] += sc->written;
	of[COUNTER_MESSAGES] += sc->records;
	of[COUNTER_BYTES] += sc->written;
	env_mutex_unlock(env_of(sc), &sc->lock);
}

/* --- the end ------------------------------------------------------------- */

static void fail_all(struct stream_conn *sc, struct list_node *list, int err)
{
	struct list_node *n, *next;
	struct skein_stream *st;

	list_for_each_safe(n, next, list) {
		st = container_of(n, struct skein_stream, at);
		stream_fail(st, err);
		if (!st->live)
			look_for_life(st, 0);
	}
}

/* Readers still read what is in the ring; a thread that waits looks again. */
static void stream_broken(struct skein_conn *conn, int err)
{
	struct stream_conn *sc = conn_module_state(conn, CONN_MODULE_STREAM);

	if (!sc)
		return;
	stream_conn_spend(sc);
	env_mutex_lock(env_of(sc), &sc->lock);
	sc->err = err == -ESHUTDOWN ? -ECONNRESET : err;
	/* What has come before is not lost. */
	stream_conn_poll(sc);
	if (!sc->q->broken)
		sc->q->broken = -ECONNRESET;
	fail_all(sc, &sc->active, sc->err);
	fail_all(sc, &sc->asleep, sc->err);
	env_mutex_unlock(env_of(sc), &sc->lock);
}

static void stream_closed(struct skein_conn *conn, void *state)
{
	struct stream_conn *sc = state;

	sc->conn = NULL;
	if (!sc->dialled || sc->leaving)
		conn_is_down(sc);
	else if (!sc->err)
		qp_free(sc); /* of an attempt; another one may follow */
}

const struct conn_module stream_module = {
	.id = CONN_MODULE_STREAM,
	.name = "stream",
	.must_understand = true,
	.sole = true,
	.ctx_open = stream_ctx_open,
	.ctx_stop = stream_ctx_stop,
	.ctx_close = stream_ctx_close,
	.offer = stream_offer,
	.accept = stream_taken,
	.confirm = stream_confirm,
	.ready = stream_ready,
	.poll = round_of,
	.arm = stream_arm,
	.next_deadline = stream_deadline,
	.counters = stream_counters,
	.broken = stream_broken,
	.closed = stream_closed,
};
