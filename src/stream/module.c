/* SPDX-License-Identifier: MIT */
/*
 * module.c - streams as a module of connections. Each stream has a connection
 * of its own. Its handshake carries both ends' addresses; afterwards it only
 * tells whether the peer lives: bytes go by the stream's own QP, to which any
 * thread posts under the stream's lock. docs/protocol/stream.md, "Opening".
 *
 * Thread rule: the engine's owner. It holds a stream's lock for the time of a
 * copy at most.
 */
#include "stream/state.h"

#include "base/assert.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>

#define NAP_NS 1000000u
/* The time from the end of the handshake until each end has reached the other's
 * memory, at most. */
#define LIVE_NS (5 * 1000 * 1000 * 1000ull)

/* --- context ------------------------------------------------------------- */

static int stream_ctx_open(struct skein_ctx *ctx, void **state)
{
	struct stream_ctx *sx = env_alloc(ctx->env, sizeof(*sx));

	if (!sx)
		return -ENOMEM;
	sx->ctx = ctx;
	env_mutex_init(ctx->env, &sx->lock);
	list_init(&sx->streams);
	list_init(&sx->listeners);
	for (unsigned i = 0; i < STREAM_SIZES; i++)
		stream_host_init_lent(&sx->hosts[i], ctx->env, ctx->dev,
				      ctx->pd, STREAM_RING_MIN << i);
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
}

static void stream_ctx_close(struct skein_ctx *ctx, void *state)
{
	struct stream_ctx *sx = state;

	for (unsigned i = 0; i < STREAM_SIZES; i++)
		stream_host_fini(&sx->hosts[i]);
	env_mutex_fini(ctx->env, &sx->lock);
	env_free(ctx->env, sx);
}

/* --- handles ------------------------------------------------------------- */

int stream_handle_new(struct stream_ctx *sx, struct skein_stream **out)
{
	struct skein_env *env = sx->ctx->env;
	struct skein_stream *st = env_alloc(env, sizeof(*st));

	if (!st)
		return -ENOMEM;
	st->sx = sx;
	env_mutex_init(env, &st->lock);
	*out = st;
	return 0;
}

void stream_handle_free(struct skein_stream *st)
{
	struct skein_env *env = st->sx->ctx->env;

	skein_assert(!st->s);
	env_mutex_fini(env, &st->lock);
	env_free(env, st);
}

void stream_listed(struct skein_stream *st, bool listed)
{
	struct stream_ctx *sx = st->sx;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	if (listed)
		list_add_tail(&sx->streams, &st->link);
	else
		list_del(&st->link);
	env_mutex_unlock(sx->ctx->env, &sx->lock);
}

static uint64_t mem_of(uint32_t ring)
{
	return 2 * (uint64_t)ring + 4096;
}

/* The stream itself: memory and QP. */
static int make(struct skein_stream *st)
{
	struct stream_ctx *sx = st->sx;
	unsigned size = (unsigned)__builtin_ctz(st->ring / STREAM_RING_MIN);
	struct stream *s;
	int rc = -ENOMEM;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	if (sx->mem + mem_of(st->ring) <= SKEIN_STREAM_MEM_MAX)
		rc = stream_new_on(&sx->hosts[size], st->eng->channel, &s);
	if (rc == 0)
		sx->mem += mem_of(st->ring);
	env_mutex_unlock(sx->ctx->env, &sx->lock);
	if (rc)
		return rc;
	env_mutex_lock(sx->ctx->env, &st->lock);
	st->s = s;
	env_mutex_unlock(sx->ctx->env, &st->lock);
	return 0;
}

/* Afterwards the peer writes nothing any more. */
static void unmake(struct skein_stream *st)
{
	struct stream_ctx *sx = st->sx;
	struct stream *s;

	env_mutex_lock(sx->ctx->env, &st->lock);
	s = st->s;
	st->s = NULL;
	env_mutex_unlock(sx->ctx->env, &st->lock);
	if (!s)
		return;
	env_mutex_lock(sx->ctx->env, &sx->lock);
	stream_free(s);
	sx->mem -= mem_of(st->ring);
	env_mutex_unlock(sx->ctx->env, &sx->lock);
}

static void finish(struct skein_stream *st)
{
	unmake(st);
	stream_handle_free(st);
}

void stream_leave(struct engine_call *call)
{
	struct skein_stream *st =
		container_of(call, struct skein_stream, leave_call);

	st->leaving = true;
	if (!st->conn)
		finish(st);
	else if (!st->dialled)
		conn_close_start(st->conn, 0); /* closed() finishes */
}

/* --- handshake ----------------------------------------------------------- */

static void put(struct skein_stream *st, enum stream_answer answer,
		struct bytes_out *out)
{
	struct stream_section s = {.number = st->number, .answer = answer};

	if (st->s)
		stream_addr(st->s, &s.addr);
	stream_section_put(&s, out);
}

static int stream_offer(struct skein_conn *conn, struct bytes_out *out)
{
	struct skein_stream *st = conn_sole_arg(conn);
	int rc;

	rc = make(st);
	if (rc)
		return rc;
	st->conn = conn;
	conn_module_set(conn, CONN_MODULE_STREAM, st);
	put(st, STREAM_TAKEN, out);
	return 0;
}

/* Locked. */
static struct skein_stream_listener *find(struct stream_ctx *sx,
					  uint32_t number)
{
	struct skein_stream_listener *l;
	struct list_node *n;

	list_for_each(n, &sx->listeners) {
		l = container_of(n, struct skein_stream_listener, link);
		if (l->number == number)
			return l;
	}
	return NULL;
}

/* Takes a place in the listener's queue. */
static enum stream_answer take_place(struct stream_ctx *sx, uint32_t number)
{
	enum stream_answer answer = STREAM_NOBODY;
	struct skein_stream_listener *l;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	l = find(sx, number);
	if (l)
		answer = l->n < l->backlog ? STREAM_TAKEN : STREAM_FULL;
	if (answer == STREAM_TAKEN)
		l->n++;
	env_mutex_unlock(sx->ctx->env, &sx->lock);
	return answer;
}

static void give_place(struct stream_ctx *sx, uint32_t number)
{
	struct skein_stream_listener *l;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	l = find(sx, number);
	if (l && l->n)
		l->n--;
	env_mutex_unlock(sx->ctx->env, &sx->lock);
}

static int take_offer(struct skein_conn *conn, struct stream_ctx *sx,
		      const struct stream_section *s, struct bytes_out *out)
{
	struct skein_stream *st;
	int rc = stream_handle_new(sx, &st);

	if (rc)
		return rc;
	st->eng = conn->eng;
	st->number = s->number;
	st->ring = s->addr.ring_size;
	rc = make(st);
	if (rc == 0)
		rc = stream_connect(st->s, &s->addr);
	if (rc) {
		unmake(st);
		stream_handle_free(st);
		return rc == -EINVAL ? -SKEIN_EPEER : rc;
	}
	st->conn = conn;
	conn_module_set(conn, CONN_MODULE_STREAM, st);
	put(st, STREAM_TAKEN, out);
	return 0;
}

/* Both ends fail, in the same words. */
static int not_taken(struct skein_conn *conn, const struct stream_section *s)
{
	bool full = s->answer == STREAM_FULL;
	int err = full ? -SKEIN_EBUSY : -ECONNREFUSED;
	char text[80];

	snprintf(text, sizeof(text),
		 full ? "too many streams of number %u wait to be accepted"
		      : "nobody listens for stream number %u",
		 s->number);
	conn->answered = true;
	if (conn->client)
		conn_give_up(conn, err, text);
	else
		conn_fail(conn, err, text, 0);
	return err;
}

static int stream_taken(struct skein_conn *conn, struct bytes_in *in,
			struct bytes_out *out)
{
	struct stream_ctx *sx =
		conn_ctx_module(conn_ctx(conn), CONN_MODULE_STREAM);
	struct stream_section s;
	int rc = stream_section_get(in, &s);

	if (rc)
		return rc;
	if (s.answer != STREAM_TAKEN)
		return -SKEIN_EPEER;
	s.answer = take_place(sx, s.number);
	if (s.answer != STREAM_TAKEN) {
		/* Behind the answer, by which the other end gives up too. */
		not_taken(conn, &s);
		stream_section_put(&s, out);
		return 0;
	}
	rc = take_offer(conn, sx, &s, out);
	if (rc)
		give_place(sx, s.number);
	return rc;
}

static int stream_confirm(struct skein_conn *conn, struct bytes_in *in)
{
	struct skein_stream *st = conn_module_state(conn, CONN_MODULE_STREAM);
	struct stream_section s;
	int rc = stream_section_get(in, &s);

	if (rc)
		return rc;
	if (s.number != st->number)
		return -SKEIN_EPEER;
	if (s.answer != STREAM_TAKEN)
		return not_taken(conn, &s);
	rc = stream_connect(st->s, &s.addr);
	return rc == -EINVAL ? -SKEIN_EPEER : rc;
}

/* Puts the stream into its listener's queue. False: the listener is gone. */
static bool queue(struct skein_stream *st)
{
	struct stream_ctx *sx = st->sx;
	struct skein_stream_listener *l;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	l = find(sx, st->number);
	if (l) {
		st->owned = true;
		list_add_tail(&l->queue, &st->queued);
		list_add_tail(&sx->streams, &st->link);
		atomic_fetch_add(&l->waiting, 1);
	}
	env_mutex_unlock(sx->ctx->env, &sx->lock);
	return l;
}

/* Each end writes a word into the other's memory. When this end's word has
 * arrived there and the peer's word here, the device has found the way: later
 * WRITEs are placed at once. */
static void stream_ready(struct skein_conn *conn)
{
	struct skein_stream *st = conn_module_state(conn, CONN_MODULE_STREAM);
	struct skein_env *env;

	if (!st)
		return;
	env = st->sx->ctx->env;
	st->up = true;
	st->live_by_ns = engine_now_ns(st->eng->e) + LIVE_NS;
	snprintf(st->peer, sizeof(st->peer), "%s", skein_conn_peer(conn));
	atomic_store_explicit(&st->writable, true, memory_order_relaxed);
	env_mutex_lock(env, &st->lock);
	stream_accept(st->s);
	env_mutex_unlock(env, &st->lock);
}

static void go_live(struct skein_stream *st)
{
	atomic_store_explicit(&st->live, true, memory_order_relaxed);
	if (st->dialled)
		atomic_store_explicit(&st->opened, true, memory_order_release);
	else if (!queue(st))
		conn_break(st->conn, -ECONNREFUSED,
			   "stream: nobody listens for it any more");
	else if (st->eng != st->sx->ctx->engine)
		engine_kick(st->sx->ctx->engine->e);
}

/* --- while it is up ------------------------------------------------------ */

bool stream_look(struct skein_stream *st)
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

static int round_of(struct skein_conn *conn, void *state, uint64_t now_ns)
{
	struct skein_stream *st = state;
	struct skein_env *env = st->sx->ctx->env;
	bool lives = st->live;
	int moved, broken;

	env_mutex_lock(env, &st->lock);
	stream_poll(st->s);
	/* The peer may be gone by now: what it wrote is still read. */
	if (!lives)
		lives = stream_flush(st->s) && stream_drained(st->s) &&
			stream_accepted(st->s);
	moved = stream_look(st) || st->found;
	st->found = false;
	broken = st->s->broken;
	env_mutex_unlock(env, &st->lock);
	if (lives && !st->live) {
		go_live(st);
		moved = 1;
	}
	if (!lives && !broken && now_ns > st->live_by_ns) {
		conn_break(conn, -ETIMEDOUT,
			   "stream: the peer has not written its first word");
		return 1;
	}
	if (!broken)
		return moved;
	if (broken == -EPROTO)
		return -SKEIN_EPEER;
	if (broken == -ECONNRESET)
		conn_qp_failed(conn);
	else
		conn_break(conn, broken, "stream: its queue pair has failed");
	return 1;
}

/* Asks the peer to ring, and does not wait for its answer: until it comes the
 * engine looks once a millisecond. */
static int stream_arm(struct skein_conn *conn, void *state)
{
	struct skein_stream *st = state;
	struct skein_env *env = st->sx->ctx->env;
	bool awake;

	/* Until the stream is live the ends only write words, and these cause
	 * no event. */
	st->naps = !st->live;
	if (st->naps)
		return 0;
	env_mutex_lock(env, &st->lock);
	/* Requested before the queue is polled and the ring is looked at: what
	 * comes after that causes an event. */
	awake = dev_req_notify_cq(st->s->rcq, 0) || !stream_ask(st->s);
	awake |= stream_poll(st->s);
	/* Threads that wait in places are woken behind a round that says so. */
	st->found |= stream_look(st);
	awake |= st->found;
	st->naps = st->s->sleep != STREAM_ASLEEP;
	env_mutex_unlock(env, &st->lock);
	return awake;
}

static uint64_t stream_deadline(struct skein_conn *conn, void *state)
{
	struct skein_stream *st = state;

	return st->naps ? engine_now_ns(st->eng->e) + NAP_NS : ENV_NEVER;
}

/* Readers still read what is in the ring; a thread that waits looks again. */
static void stream_broken(struct skein_conn *conn, int err)
{
	struct skein_stream *st = conn_module_state(conn, CONN_MODULE_STREAM);
	struct skein_env *env;
	bool lives;

	if (!st)
		return;
	env = st->sx->ctx->env;
	env_mutex_lock(env, &st->lock);
	lives = stream_accepted(st->s);
	if (!st->err)
		st->err = err == -ESHUTDOWN ? -ECONNRESET : err;
	atomic_store_explicit(&st->readable, true, memory_order_relaxed);
	atomic_store_explicit(&st->writable, true, memory_order_relaxed);
	env_mutex_unlock(env, &st->lock);
	atomic_store_explicit(&st->over, true, memory_order_relaxed);
	if (lives && !st->live)
		go_live(st);
	atomic_store_explicit(&st->opened, true, memory_order_release);
}

static void stream_closed(struct skein_conn *conn, void *state)
{
	struct skein_stream *st = state;

	st->conn = NULL;
	if (st->leaving) {
		finish(st);
		return;
	}
	/* The application reads what has come until it closes the stream. */
	if (st->owned || (st->dialled && st->up))
		return;
	unmake(st);
	if (st->dialled)
		return;
	give_place(st->sx, st->number);
	stream_handle_free(st);
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
	.broken = stream_broken,
	.closed = stream_closed,
};
