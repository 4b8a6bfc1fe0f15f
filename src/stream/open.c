/* SPDX-License-Identifier: MIT */
/*
 * open.c - a stream begins on a connection: its memory, the message that opens
 * it and the answer, the listener's queue. docs/protocol/stream.md, "Opening".
 *
 * Thread rule: any thread, with the connection's lock where a function says so.
 */
#include "stream/state.h"

#include "base/assert.h"
#include "env/env.h"

#include <errno.h>
#include <stdio.h>

/* The time from the answer until each end has reached the other's memory, at
 * most. */
#define LIVE_NS (5 * 1000 * 1000 * 1000ull)

static struct skein_env *env_of(const struct stream_conn *sc)
{
	return sc->sx->ctx->env;
}

int stream_handle_new(struct stream_conn *sc, struct skein_stream **out)
{
	struct skein_stream *st = env_alloc(env_of(sc), sizeof(*st));

	if (!st)
		return -ENOMEM;
	st->sc = sc;
	*out = st;
	return 0;
}

void stream_handle_free(struct skein_stream *st)
{
	struct stream_conn *sc = st->sc;

	env_mutex_lock(env_of(sc), &sc->lock);
	list_del(&st->at);
	if (st->s) {
		stream_count(st);
		sc->streams--;
		stream_leave(st->s);
	}
	env_mutex_unlock(env_of(sc), &sc->lock);
	env_free(env_of(sc), st);
}

void stream_listed(struct skein_stream *st, bool listed)
{
	struct stream_ctx *sx = st->sc->sx;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	if (listed)
		list_add_tail(&sx->streams, &st->link);
	else
		list_del(&st->link);
	env_mutex_unlock(sx->ctx->env, &sx->lock);
}

int stream_make(struct skein_stream *st, uint32_t ring, bool grows)
{
	struct stream_conn *sc = st->sc;
	struct stream_ctx *sx = sc->sx;
	uint32_t max = grows ? (uint32_t)sx->conf.ring : ring;
	struct stream *s = NULL;
	int rc;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	rc = stream_new(&sx->host, ring, max, &s);
	if (rc == 0)
		rc = stream_join(s, sc->q);
	if (rc && s)
		stream_free(s);
	env_mutex_unlock(sx->ctx->env, &sx->lock);
	if (rc)
		return rc;
	st->s = s;
	s->user = st;
	list_add_tail(&sc->active, &st->at);
	sc->streams++;
	return 0;
}

void stream_conn_sweep(struct stream_conn *sc)
{
	struct stream_ctx *sx = sc->sx;
	struct stream *s;

	for (;;) {
		env_mutex_lock(env_of(sc), &sc->lock);
		s = sc->q ? stream_qp_over(sc->q) : NULL;
		env_mutex_unlock(env_of(sc), &sc->lock);
		if (!s)
			return;
		env_mutex_lock(env_of(sc), &sx->lock);
		stream_free(s);
		env_mutex_unlock(env_of(sc), &sx->lock);
	}
}

void stream_fail(struct skein_stream *st, int err)
{
	if (!st->err)
		st->err = err;
	/* What the peer wrote before its end is read. */
	if (st->dialled && st->live_by_ns && stream_accepted(st->s))
		atomic_store_explicit(&st->live, true, memory_order_relaxed);
	atomic_store_explicit(&st->readable, true, memory_order_relaxed);
	atomic_store_explicit(&st->writable, true, memory_order_relaxed);
	atomic_store_explicit(&st->over, true, memory_order_relaxed);
	/* Release pairs with the acquire of the opening thread. */
	atomic_store_explicit(&st->opened, true, memory_order_release);
}

/* --- the end that opens --------------------------------------------------- */

/* Both ends say it in the same words. */
static int not_taken(struct stream_conn *sc, uint32_t number,
		     enum stream_answer answer, const char *doing,
		     const char *peer)
{
	if (answer == STREAM_SHORT) {
		env_log(env_of(sc), ENV_LOG_ERROR,
			"%s %s: no memory for a stream of number %u", doing,
			peer, number);
		return -SKEIN_ERESOURCE;
	}
	env_log(env_of(sc), ENV_LOG_ERROR,
		answer == STREAM_FULL
			? "%s %s: too many streams of number %u wait to be "
			  "accepted"
			: "%s %s: nobody listens for stream number %u",
		doing, peer, number);
	return answer == STREAM_FULL ? -SKEIN_EBUSY : -ECONNREFUSED;
}

/* Each end writes a word into the other's memory. When this end's word has
 * arrived there and the peer's word here, the device has found the way: later
 * WRITEs are placed at once. */
static void begin(struct skein_stream *st)
{
	st->live_by_ns = engine_now_ns(st->sc->eng->e) + LIVE_NS;
	atomic_store_explicit(&st->writable, true, memory_order_relaxed);
	stream_accept(st->s);
}

void stream_answered(struct skein_stream *st)
{
	struct stream *s = st->s;

	if (s->broken || s->answer != STREAM_TAKEN)
		stream_fail(st,
			    s->broken ? -SKEIN_EPEER
				      : not_taken(st->sc, st->number, s->answer,
						  "cannot open a stream to",
						  st->peer));
	else
		begin(st);
}

/* --- the end that accepts ------------------------------------------------- */

struct skein_stream_listener *stream_listener(struct stream_ctx *sx,
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
	l = stream_listener(sx, number);
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
	l = stream_listener(sx, number);
	if (l && l->n)
		l->n--;
	env_mutex_unlock(sx->ctx->env, &sx->lock);
}

/* This end of the stream that m opens. Locked. */
static int take(struct stream_conn *sc, const struct stream_msg *m,
		struct stream_msg *answer)
{
	struct skein_stream *st;
	int rc = stream_handle_new(sc, &st);

	if (rc)
		return rc;
	st->number = m->number;
	snprintf(st->peer, sizeof(st->peer), "%s", sc->peer);
	rc = stream_make(st, m->addr.ring_size, m->addr.grows);
	if (rc) {
		env_free(env_of(sc), st);
		return rc;
	}
	stream_connect(st->s, &m->addr);
	stream_addr(st->s, &answer->addr);
	env_mutex_lock(env_of(sc), &sc->sx->lock);
	sc->users++;
	env_mutex_unlock(env_of(sc), &sc->sx->lock);
	begin(st);
	return 0;
}

void stream_opens(struct stream_qp *q, const struct stream_msg *m)
{
	struct stream_conn *sc = q->user;
	struct stream_msg answer = {.type = STREAM_OPENED,
				    .number = m->addr.number};

	answer.answer = take_place(sc->sx, m->number);
	if (answer.answer == STREAM_TAKEN && take(sc, m, &answer)) {
		give_place(sc->sx, m->number);
		answer.answer = STREAM_SHORT;
	}
	if (answer.answer != STREAM_TAKEN)
		not_taken(sc, m->number, answer.answer, "refused a stream of",
			  sc->peer);
	/* Its ACCEPT may be there before: it is a word in memory. */
	if (stream_qp_send(q, &answer))
		q->broken = -ENOMEM;
}

/* Puts the stream into its listener's queue. False: the listener is gone. */
static bool queue(struct skein_stream *st)
{
	struct stream_ctx *sx = st->sc->sx;
	struct skein_stream_listener *l;

	env_mutex_lock(sx->ctx->env, &sx->lock);
	l = stream_listener(sx, st->number);
	if (l) {
		list_add_tail(&l->queue, &st->queued);
		list_add_tail(&sx->streams, &st->link);
		atomic_fetch_add(&l->waiting, 1);
	}
	env_mutex_unlock(sx->ctx->env, &sx->lock);
	return l;
}

/* An accepted end that no application has. Locked, by the engine's owner: the
 * connection outlives its last user here. */
static void discard(struct skein_stream *st)
{
	struct stream_conn *sc = st->sc;

	list_del(&st->at);
	stream_leave(st->s);
	env_mutex_lock(env_of(sc), &sc->sx->lock);
	sc->users--;
	env_mutex_unlock(env_of(sc), &sc->sx->lock);
	env_free(env_of(sc), st);
}

void stream_go_live(struct skein_stream *st)
{
	struct skein_engine *engine = st->sc->sx->ctx->engine;

	atomic_store_explicit(&st->live, true, memory_order_relaxed);
	if (st->dialled)
		/* Release pairs with the acquire of the opening thread. */
		atomic_store_explicit(&st->opened, true, memory_order_release);
	else if (!queue(st))
		discard(st);
	else if (st->sc->eng != engine)
		engine_kick(engine->e);
}

void stream_not_live(struct skein_stream *st, int err)
{
	if (st->dialled) {
		stream_fail(st, err);
		return;
	}
	give_place(st->sc->sx, st->number);
	discard(st);
}
