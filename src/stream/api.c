/* SPDX-License-Identifier: MIT */
/*
 * api.c - the public calls of streams.
 *
 * A call works under the stream's lock, posts its work requests itself, and
 * runs the engine only to wait.
 *
 * Thread rule: any thread.
 */
#include "stream/state.h"

#include "base/assert.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OPEN_NS SKEIN_S(5)
#define BACKLOG 128u
/* Without a word of the connection's: its engine has not been run. */
#define VERDICT_NS (2 * CONN_SUSPECT_NS)

static struct skein_env *env_of(const struct skein_stream *st)
{
	return st->sc->sx->ctx->env;
}

static struct skein_ctx *ctx_of(const struct skein_stream *st)
{
	return st->sc->sx->ctx;
}

static struct engine *engine_of(const struct skein_stream *st)
{
	return st->sc->eng->e;
}

static struct stream_ctx *streams_of(struct skein_ctx *ctx)
{
	return conn_ctx_module(ctx, CONN_MODULE_STREAM);
}

static void lock(struct skein_stream *st)
{
	env_mutex_lock(env_of(st), &st->sc->lock);
}

static void unlock(struct skein_stream *st)
{
	env_mutex_unlock(env_of(st), &st->sc->lock);
}

/* --- waiting ------------------------------------------------------------- */

struct deadline {
	uint64_t ns; /* 0: do not wait */
};

static struct deadline deadline_of(struct skein_env *env, uint64_t timeout_ns)
{
	struct deadline d = {0};

	if (timeout_ns)
		d.ns = env_deadline(env_now_ns(env), timeout_ns);
	return d;
}

static bool is_set(void *arg)
{
	/* Relaxed: the waiting thread takes the lock and looks again. */
	return atomic_load_explicit((atomic_bool *)arg, memory_order_relaxed);
}

static bool is_clear(void *arg)
{
	return !is_set(arg);
}

/* Runs the engine without the lock until done(arg): 0, -EAGAIN, -ETIMEDOUT,
 * -EDEADLK. */
static int wait_for(struct skein_stream *st, bool (*done)(void *arg),
		    atomic_bool *arg, struct deadline d)
{
	int rc;

	if (!d.ns)
		return -EAGAIN;
	unlock(st);
	rc = engine_run_until(engine_of(st), done, arg, d.ns);
	lock(st);
	return rc;
}

static int turn_take(struct skein_stream *st, struct stream_turn *t,
		     struct deadline d)
{
	int rc = 0;

	while (atomic_load_explicit(&t->taken, memory_order_relaxed) && !rc) {
		t->waits++;
		rc = wait_for(st, is_clear, &t->taken, d);
		t->waits--;
	}
	if (rc == 0)
		atomic_store_explicit(&t->taken, true, memory_order_relaxed);
	return rc;
}

static void turn_give(struct skein_stream *st, struct stream_turn *t)
{
	t->held = false;
	t->room = 0;
	atomic_store_explicit(&t->taken, false, memory_order_relaxed);
	if (t->waits)
		engine_kick(engine_of(st));
}

/* Why it is over, in the words of the interface. Of a queue pair that has
 * failed the connection knows soon whether the peer's process has ended:
 * -EAGAIN until then. */
static int reason(struct skein_stream *st, int rc)
{
	uint64_t now;

	if (rc == -EPROTO)
		return -SKEIN_EPEER;
	if (rc != -ECONNRESET)
		return rc;
	if (st->err)
		return st->err;
	now = env_now_ns(env_of(st));
	if (!st->failed_ns) {
		st->failed_ns = now;
		engine_kick(engine_of(st)); /* it may not have noticed */
	}
	return now - st->failed_ns < VERDICT_NS ? -EAGAIN : rc;
}

/* reason() was -EAGAIN. 0: ask again; else as wait_for(). */
static int wait_reason(struct skein_stream *st, struct deadline d)
{
	struct deadline until = {st->failed_ns + VERDICT_NS};
	int rc;

	if (!d.ns || d.ns < until.ns)
		return wait_for(st, is_set, &st->over, d);
	rc = wait_for(st, is_set, &st->over, until);
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* The same for a call that has no deadline of its own. */
static int reason_at_last(struct skein_stream *st, int rc)
{
	int why;

	while ((why = reason(st, rc)) == -EAGAIN)
		if (wait_reason(st, (struct deadline){ENV_NEVER}))
			return rc;
	return why;
}

/* Locked: 0 if the call may go on. */
static int begin(struct skein_stream *st)
{
	if (ctx_forked(ctx_of(st)))
		return -SKEIN_EFORKED;
	lock(st);
	return 0;
}

/* --- writing ------------------------------------------------------------- */

/* 0, or the error that ended the connection: then nothing is written, for the
 * peer would not read it. */
static int write_state(struct skein_stream *st)
{
	/* This answers the peer's questions too, so that the peer may sleep. */
	stream_conn_poll(st->sc);
	return st->err;
}

/* Waits for room, or to hear why there will be none. Locked; the turn is
 * ours. */
static int wait_room(struct skein_stream *st, struct deadline d)
{
	if (st->s->broken)
		return wait_reason(st, d);
	st->full++;
	atomic_store_explicit(&st->writable, false, memory_order_relaxed);
	/* No other thread would see a Head that came before this. */
	if (stream_writable(st->s)) {
		atomic_store_explicit(&st->writable, true,
				      memory_order_relaxed);
		return 0;
	}
	return wait_for(st, is_set, &st->writable, d);
}

static int write_all(struct skein_stream *st, const uint8_t *buf, size_t len,
		     struct deadline d, size_t *done)
{
	ssize_t n;
	int rc;

	while (*done < len) {
		struct iovec iov = {(void *)(uintptr_t)(buf + *done),
				    len - *done};

		rc = write_state(st);
		if (rc)
			return rc;
		n = stream_write(st->s, &iov, 1);
		if (n > 0) {
			*done += (size_t)n;
			continue;
		}
		rc = reason(st, (int)n);
		if (rc == -EAGAIN)
			rc = wait_room(st, d);
		if (rc)
			return rc;
	}
	return 0;
}

int skein_stream_write(struct skein_stream *st, const void *buf, size_t len,
		       uint64_t timeout_ns, size_t *written)
{
	ENV_HOLD_CANCEL();
	struct deadline d = deadline_of(env_of(st), timeout_ns);
	size_t done = 0;
	int rc = begin(st);

	if (rc)
		return rc;
	rc = turn_take(st, &st->tx, d);
	if (rc == 0) {
		rc = write_all(st, buf, len, d, &done);
		st->written += done;
		st->copied += done;
		turn_give(st, &st->tx);
	}
	unlock(st);
	if (rc && !done)
		return rc;
	*written = done;
	return 0;
}

int skein_stream_reserve(struct skein_stream *st, uint64_t timeout_ns,
			 void **buf, size_t *room)
{
	ENV_HOLD_CANCEL();
	struct deadline d = deadline_of(env_of(st), timeout_ns);
	uint8_t *at;
	int rc = begin(st);

	if (rc)
		return rc;
	rc = turn_take(st, &st->tx, d);
	if (rc) {
		unlock(st);
		return rc;
	}
	for (;;) {
		rc = write_state(st);
		if (rc == 0)
			rc = reason(st,
				    stream_reserve(st->s, &at, &st->tx.room));
		if (rc != -EAGAIN)
			break;
		rc = wait_room(st, d);
		if (rc)
			break;
	}
	if (rc == 0) {
		st->tx.held = true;
		*buf = at;
		*room = st->tx.room;
	} else {
		turn_give(st, &st->tx);
	}
	unlock(st);
	return rc;
}

int skein_stream_commit(struct skein_stream *st, size_t len)
{
	int rc = begin(st);

	if (rc)
		return rc;
	if (!st->tx.held || len > st->tx.room) {
		unlock(st);
		return -EINVAL;
	}
	rc = write_state(st);
	if (rc == 0)
		rc = stream_commit(st->s, (uint32_t)len);
	rc = reason_at_last(st, rc);
	if (rc == 0)
		st->written += len;
	turn_give(st, &st->tx);
	unlock(st);
	return rc;
}

/* Locked; this thread has the turn. */
static int end_writing(struct skein_stream *st, struct deadline d)
{
	int rc;

	for (;;) {
		rc = write_state(st);
		if (rc == 0)
			rc = stream_end(st->s);
		if (rc == 0) /* so that its arrival can be known */
			stream_flush(st->s);
		rc = reason(st, rc);
		if (rc != -EAGAIN)
			return rc;
		rc = wait_room(st, d);
		if (rc)
			return rc;
	}
}

int skein_stream_end(struct skein_stream *st, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	struct deadline d = deadline_of(env_of(st), timeout_ns);
	int rc = begin(st);

	if (rc)
		return rc;
	rc = turn_take(st, &st->tx, d);
	if (rc == 0) {
		rc = end_writing(st, d);
		turn_give(st, &st->tx);
	}
	unlock(st);
	return rc;
}

/* --- reading ------------------------------------------------------------- */

/* 1: *len bytes at *data, *len 0 at the end of the stream. 0: nothing yet. */
static int look(struct skein_stream *st, const uint8_t **data, uint32_t *len)
{
	enum stream_type type;
	int rc = stream_peek(st->s, &type, data, len);

	if (rc < 0)
		rc = reason(st, rc);
	if (rc == 0 || rc == -EAGAIN)
		return st->err;
	if (rc < 0)
		return rc;
	if (type == STREAM_SWITCH) /* for streams of `skein run` alone */
		return -SKEIN_EPEER;
	return 1;
}

/* Waits for bytes. Locked; this thread has the turn. As look(), but not 0. */
static int look_for(struct skein_stream *st, struct deadline d,
		    const uint8_t **data, uint32_t *len)
{
	int rc;

	for (;;) {
		rc = look(st, data, len);
		if (rc)
			return rc;
		/* Takes in the peer's questions and bells. */
		atomic_store_explicit(&st->readable, false,
				      memory_order_relaxed);
		stream_conn_poll(st->sc);
		rc = look(st, data, len);
		if (rc)
			return rc;
		rc = st->s->broken ? wait_reason(st, d)
				   : wait_for(st, is_set, &st->readable, d);
		if (rc)
			return rc;
	}
}

static size_t take(struct skein_stream *st, uint8_t *buf, size_t max,
		   const uint8_t *data, uint32_t len)
{
	size_t got = 0;

	do {
		if (len > max - got)
			len = (uint32_t)(max - got);
		memcpy(buf + got, data, len);
		stream_consume(st->s, len);
		got += len;
	} while (got < max && look(st, &data, &len) == 1 && len);
	st->read += got;
	st->copied += got;
	return got;
}

int skein_stream_read(struct skein_stream *st, void *buf, size_t len,
		      uint64_t timeout_ns, size_t *got)
{
	ENV_HOLD_CANCEL();
	struct deadline d = deadline_of(env_of(st), timeout_ns);
	const uint8_t *data;
	uint32_t there;
	size_t n = 0;
	int rc = begin(st);

	if (rc)
		return rc;
	rc = turn_take(st, &st->rx, d);
	if (rc == 0) {
		rc = len ? look_for(st, d, &data, &there) : 0;
		if (rc == 1) {
			n = there && len ? take(st, buf, len, data, there) : 0;
			rc = 0;
		}
		turn_give(st, &st->rx);
	}
	unlock(st);
	if (rc == 0)
		*got = n;
	return rc;
}

int skein_stream_peek(struct skein_stream *st, uint64_t timeout_ns,
		      const void **data, size_t *len)
{
	ENV_HOLD_CANCEL();
	struct deadline d = deadline_of(env_of(st), timeout_ns);
	const uint8_t *at;
	uint32_t there;
	int rc = begin(st);

	if (rc)
		return rc;
	rc = turn_take(st, &st->rx, d);
	if (rc) {
		unlock(st);
		return rc;
	}
	rc = look_for(st, d, &at, &there);
	if (rc == 1 && there) {
		st->rx.held = true;
		st->rx.room = there;
	} else {
		turn_give(st, &st->rx);
	}
	unlock(st);
	if (rc != 1)
		return rc;
	*data = at;
	*len = there;
	return 0;
}

int skein_stream_consume(struct skein_stream *st, size_t n)
{
	int rc = begin(st);

	if (rc)
		return rc;
	if (!st->rx.held || n > st->rx.room) {
		unlock(st);
		return -EINVAL;
	}
	if (n)
		stream_consume(st->s, (uint32_t)n);
	st->read += n;
	turn_give(st, &st->rx);
	unlock(st);
	return 0;
}

unsigned skein_stream_ready(struct skein_stream *st)
{
	const uint8_t *data;
	unsigned bits = 0;
	uint32_t len;

	if (begin(st))
		return SKEIN_STREAM_IN | SKEIN_STREAM_OUT | SKEIN_STREAM_ERR;
	stream_conn_poll(st->sc);
	if (look(st, &data, &len))
		bits |= SKEIN_STREAM_IN;
	if (st->err || (st->s->broken && reason(st, st->s->broken) != -EAGAIN))
		bits |= SKEIN_STREAM_OUT | SKEIN_STREAM_ERR;
	else if (!st->s->broken && stream_writable(st->s))
		bits |= SKEIN_STREAM_OUT;
	/* A stream that is not readable (writable) now makes the engine move
	 * when it becomes so. */
	if (!(bits & SKEIN_STREAM_IN))
		atomic_store_explicit(&st->readable, false,
				      memory_order_relaxed);
	if (!(bits & SKEIN_STREAM_OUT))
		atomic_store_explicit(&st->writable, false,
				      memory_order_relaxed);
	unlock(st);
	return bits;
}

/* --- opening ------------------------------------------------------------- */

static int attr_settle(struct skein_ctx *ctx, struct skein_stream_attr *attr,
		       const struct skein_stream_attr *user)
{
	int rc = ctx_attr_take(ctx, attr, sizeof(*attr), user);

	if (rc)
		return rc;
	if (!attr->timeout_ns)
		attr->timeout_ns = OPEN_NS;
	if (!attr->ring)
		return 0; /* it grows */
	if (attr->ring >= STREAM_RING_MIN && attr->ring <= STREAM_RING_MAX &&
	    !(attr->ring & (attr->ring - 1)))
		return 0;
	env_log(ctx->env, ENV_LOG_ERROR,
		"ring %u: a power of two from %u to %u", attr->ring,
		STREAM_RING_MIN, STREAM_RING_MAX);
	return -EINVAL;
}

static void leave(struct skein_stream *st)
{
	struct stream_conn *sc = st->sc;

	stream_handle_free(st);
	stream_conn_put(sc);
}

/* Opens st on its connection, which is up. */
static int open_on(struct skein_stream *st,
		   const struct skein_stream_attr *attr, uint64_t deadline_ns)
{
	struct stream_conn *sc = st->sc;
	int rc;

	lock(st);
	snprintf(st->peer, sizeof(st->peer), "%s", sc->peer);
	rc = sc->err;
	if (rc == 0)
		rc = stream_make(st,
				 attr->ring ? attr->ring : STREAM_RING_FIRST,
				 !attr->ring);
	if (rc == 0)
		rc = stream_ask_open(st->s, attr->number);
	unlock(st);
	if (rc)
		return rc;
	engine_kick(engine_of(st));
	rc = engine_run_until(engine_of(st), is_set, &st->opened, deadline_ns);
	/* The peer may have written, and may be gone already. Acquire pairs
	 * with the release in stream_fail() and stream_go_live(). */
	if (atomic_load_explicit(&st->live, memory_order_acquire))
		return 0;
	if (rc)
		return rc;
	lock(st);
	rc = st->err;
	unlock(st);
	return rc;
}

/* What opening needs at each attempt. */
struct stream_dial {
	struct stream_ctx *sx;
	const char *addr;
	struct skein_stream_attr attr;
	struct skein_conn_attr conn;
	uint64_t deadline_ns;
};

/* *was_up: the peer has said no to this stream. */
static int attempt(struct stream_dial *o, struct skein_stream **out,
		   bool *was_up)
{
	struct skein_env *env = o->sx->ctx->env;
	struct skein_stream *st;
	struct stream_conn *sc;
	bool mine, spent;
	uint64_t now;
	int rc;

	do {
		rc = stream_conn_get(o->sx, o->addr, &o->conn, &sc, &mine);
		if (rc)
			return rc;
		now = env_now_ns(env);
		/* The engine keeps the deadline of the handshake. This one is
		 * for when another thread keeps the engine busy. */
		rc = skein_conn_wait(sc->handle, now < o->deadline_ns
							 ? o->deadline_ns - now
							 : 0);
		*was_up = rc == 0;
		if (rc)
			stream_conn_spend(sc);
		else
			rc = stream_handle_new(sc, &st);
		if (rc == 0) {
			st->dialled = true;
			st->number = o->attr.number;
			rc = open_on(st, &o->attr, o->deadline_ns);
			if (rc)
				stream_handle_free(st);
		}
		spent = stream_conn_spent(sc);
		if (rc)
			stream_conn_put(sc);
		/* One that was there has ended just now: another one. */
	} while (rc && !mine && spent && env_now_ns(env) < o->deadline_ns);
	if (rc == 0)
		*out = st;
	return rc;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

int skein_stream_open(struct skein_ctx *ctx, const char *addr,
		      const struct skein_stream_attr *user,
		      struct skein_stream **stream)
{
	ENV_HOLD_CANCEL();
	struct stream_dial o = {.sx = streams_of(ctx),
				.addr = addr,
				.attr = {.size = sizeof(o.attr)},
				.conn = {.size = sizeof(o.conn)}};
	bool was_up = false;
	struct retry retry;
	uint64_t at_ns;
	int rc = attr_settle(ctx, &o.attr, user);

	if (rc)
		return rc;
	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	o.conn.engine = o.attr.engine ? o.attr.engine : ctx->engine;
	o.conn.shard = o.attr.shard;
	o.conn.timeout_ns = o.attr.timeout_ns;
	o.conn.retries = o.attr.retries;
	if (engine_is_owner(o.conn.engine->e))
		return -EDEADLK;
	stream_sweep_idle(o.sx, false);
	at_ns = env_deadline(env_now_ns(ctx->env), o.attr.timeout_ns);
	o.deadline_ns = env_deadline(at_ns, CONN_GRACE_NS);
	retry_init(&retry, o.attr.retries, at_ns);
	for (;;) {
		rc = attempt(&o, stream, &was_up);
		/* A connection that does not come up has its own retries. */
		if (rc == 0 || !was_up ||
		    !retry_next(&retry, rc, env_now_ns(ctx->env), 0, &at_ns))
			break;
		engine_run_until(o.conn.engine->e, never, NULL, at_ns);
	}
	if (rc == 0)
		stream_listed(*stream, true);
	return rc;
}

static bool has_waiting(void *arg)
{
	struct skein_stream_listener *l = arg;

	return atomic_load_explicit(&l->waiting, memory_order_acquire);
}

int skein_stream_listen(struct skein_ctx *ctx,
			const struct skein_stream_listener_attr *user,
			struct skein_stream_listener **listener)
{
	struct skein_stream_listener_attr attr = {.size = sizeof(attr)};
	struct stream_ctx *sx = streams_of(ctx);
	struct skein_stream_listener *l;
	struct list_node *n;
	int rc = ctx_attr_take(ctx, &attr, sizeof(attr), user);

	if (rc)
		return rc;
	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	l = env_alloc(ctx->env, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->sx = sx;
	l->number = attr.number;
	l->backlog = attr.backlog ? attr.backlog : BACKLOG;
	list_init(&l->queue);
	env_mutex_lock(ctx->env, &sx->lock);
	list_for_each(n, &sx->listeners) {
		if (container_of(n, struct skein_stream_listener, link)
			    ->number == l->number)
			rc = -EADDRINUSE;
	}
	if (rc == 0)
		list_add_tail(&sx->listeners, &l->link);
	env_mutex_unlock(ctx->env, &sx->lock);
	if (rc) {
		env_free(ctx->env, l);
		return rc;
	}
	*listener = l;
	return 0;
}

static struct skein_stream *pop(struct skein_stream_listener *l)
{
	struct skein_env *env = l->sx->ctx->env;
	struct list_node *n;

	env_mutex_lock(env, &l->sx->lock);
	n = list_pop_head(&l->queue);
	if (n) {
		l->n -= l->n != 0;
		atomic_fetch_sub(&l->waiting, 1);
	}
	env_mutex_unlock(env, &l->sx->lock);
	return n ? container_of(n, struct skein_stream, queued) : NULL;
}

int skein_stream_accept(struct skein_stream_listener *l, uint64_t timeout_ns,
			struct skein_stream **stream)
{
	ENV_HOLD_CANCEL();
	struct skein_ctx *ctx = l->sx->ctx;
	struct deadline d = deadline_of(ctx->env, timeout_ns);
	struct skein_stream *st;
	int rc;

	if (ctx_forked(ctx))
		return -SKEIN_EFORKED;
	while (!(st = pop(l))) {
		if (!d.ns)
			return -EAGAIN;
		rc = engine_run_until(ctx->engine->e, has_waiting, l, d.ns);
		if (rc)
			return rc;
	}
	*stream = st;
	return 0;
}

void skein_stream_listener_close(struct skein_stream_listener *l)
{
	ENV_HOLD_CANCEL();
	struct skein_ctx *ctx;
	struct skein_stream *st;

	if (!l || ctx_forked(l->sx->ctx))
		return;
	ctx = l->sx->ctx;
	env_mutex_lock(ctx->env, &l->sx->lock);
	list_del(&l->link);
	env_mutex_unlock(ctx->env, &l->sx->lock);
	while ((st = pop(l)))
		skein_stream_close(st, 0);
	env_free(ctx->env, l);
}

/* --- closing ------------------------------------------------------------- */

/* Waits until END is in the peer's ring: 0, -ETIMEDOUT, or why that cannot
 * be. */
static int drain(struct skein_stream *st, struct deadline d)
{
	struct skein_env *env = env_of(st);
	int rc = 0;

	lock(st);
	while (!rc && !stream_end_there(st->s)) {
		stream_flush(st->s);
		rc = st->s->broken ? reason(st, st->s->broken) : st->err;
		if (rc == -EAGAIN)
			rc = 0;
		if (rc)
			break;
		/* Send completions cause no event. */
		unlock(st);
		skein_engine_progress(st->sc->eng);
		env_yield(env);
		if (env_now_ns(env) >= d.ns)
			rc = -ETIMEDOUT;
		lock(st);
	}
	unlock(st);
	return rc;
}

/* Is END written? Then it does not matter if the peer is gone. */
static bool has_ended(struct skein_stream *st)
{
	bool ended;

	lock(st);
	ended = st->s->ended;
	unlock(st);
	return ended;
}

int skein_stream_close(struct skein_stream *st, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	struct deadline d;
	int rc = 0;

	if (!st || ctx_forked(ctx_of(st)))
		return 0;
	if (engine_is_owner(engine_of(st)))
		return -EDEADLK;
	d = deadline_of(env_of(st), timeout_ns);
	if (timeout_ns) {
		if (!has_ended(st))
			rc = skein_stream_end(st, timeout_ns);
		if (rc == 0)
			rc = drain(st, d);
	}
	stream_listed(st, false);
	leave(st);
	return rc;
}

const char *skein_stream_peer(struct skein_stream *st)
{
	return st->peer;
}

uint32_t skein_stream_number(struct skein_stream *st)
{
	return st->number;
}

int skein_stream_get_stats(struct skein_stream *st,
			   struct skein_stream_stats *stats)
{
	struct skein_stream_stats all = {.size = sizeof(all)};
	int rc = begin(st);

	if (rc)
		return rc;
	all.written = st->written;
	all.read = st->read;
	all.copied = st->copied;
	all.full = st->full;
	all.records = st->s->records;
	all.bells = st->s->bells;
	all.wrs = st->s->stats->send_wrs;
	all.doorbells = st->s->stats->doorbells;
	unlock(st);
	return ctx_struct_fill(stats, sizeof(size_t), &all, sizeof(all));
}
