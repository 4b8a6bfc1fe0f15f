/* SPDX-License-Identifier: MIT */
/*
 * lanes_rig.h - two contexts with handles of several lanes, and a module that
 * notes what it is told. One thread runs all engines, round by round.
 *
 * It stands in the place of the library's modules (src/modules.c).
 */
#ifndef SKEIN_TESTS_LANES_RIG_H
#define SKEIN_TESTS_LANES_RIG_H

#include "unit/alloc_sweep.h"
#include "unit/patience.h"

#include "base/assert.h"
#include "conn/state.h"
#include "conn/setup/listener.h"

#include <skein/skein.h>
#include <stdlib.h>
#include <string.h>

#define RIG_ENGINES 4
#define RIG_PATIENCE patience_ns(30)

struct rig {
	struct skein_env *env;
	struct alloc_sweep sweep;
	struct skein_ctx *server, *client;
	struct skein_listener *listener;
	struct skein_engine *engines[RIG_ENGINES];
	unsigned n_engines;
	struct skein_conn *accepted;
	atomic_int ups, ends, last; /* on_conn */
	int states[8], n_states;
};

/* What the module keeps of a lane. */
struct rig_lane {
	struct skein_conn *conn;
	bool ready, broken;
};

/* Told so far, of all lanes of both ends. */
struct rig_told {
	atomic_int offers, accepts, readies, broken, closed;
	atomic_int threads_taken, threads_left, threads_freed;
	atomic_int threads_busy; /* seat_idle() says no */
	atomic_bool thread_refused;
};

static struct rig_told told;

static int rig_state(struct skein_conn *conn)
{
	struct rig_lane *l = conn_module_state(conn, CONN_MODULE_MAX);

	if (!l)
		l = env_alloc(conn->ctx->env, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->conn = conn;
	l->ready = l->broken = false;
	conn_module_set(conn, CONN_MODULE_MAX, l);
	return 0;
}

static int rig_offer(struct skein_conn *conn, struct bytes_out *out)
{
	told.offers++;
	return rig_state(conn);
}

static int rig_accept(struct skein_conn *conn, struct bytes_in *in,
		      struct bytes_out *out)
{
	told.accepts++;
	return rig_state(conn);
}

static int rig_confirm(struct skein_conn *conn, struct bytes_in *in)
{
	return 0;
}

static struct rig_lane *rig_lane_of(struct skein_conn *conn)
{
	return conn_module_state(conn, CONN_MODULE_MAX);
}

static void rig_ready(struct skein_conn *conn)
{
	struct rig_lane *l = rig_lane_of(conn);

	skein_assert(!l->ready && !l->broken);
	/* The first of a handle is lane 0. */
	if (conn->lane)
		skein_assert(rig_lane_of(conn_lane_head(conn))->ready);
	l->ready = true;
	told.readies++;
}

static void rig_broken(struct skein_conn *conn, int err)
{
	struct rig_lane *l = rig_lane_of(conn);

	skein_assert(l->ready && !l->broken && err);
	/* Where it was opened all lanes exist until lane 0 is down. */
	for (unsigned i = 0; conn->client && i < conn_lanes(conn); i++)
		skein_assert(conn_lane(conn, i));
	/* ... and the last. */
	if (conn->lane)
		skein_assert(!rig_lane_of(conn_lane_head(conn))->broken);
	l->broken = true;
	l->ready = false;
	told.broken++;
}

static void rig_closed(struct skein_conn *conn, void *state)
{
	skein_assert(!rig_lane_of(conn)->ready);
	told.closed++;
	env_free(conn->ctx->env, state);
}

static int rig_seat_taken(struct skein_conn *handle, struct conn_thread *rec)
{
	void **mine = &rec->modules[CONN_MODULE_MAX - 1];

	skein_assert(!handle->lane);
	if (atomic_load(&told.thread_refused))
		return -EPERM;
	if (!*mine)
		*mine = env_alloc(handle->ctx->env, 16);
	if (!*mine)
		return -ENOMEM;
	told.threads_taken++;
	return 0;
}

static void rig_seat_left(struct skein_conn *handle, struct conn_thread *rec)
{
	told.threads_left++;
}

static bool rig_seat_idle(struct skein_conn *handle, struct conn_thread *rec)
{
	return !atomic_load(&told.threads_busy);
}

static void rig_seat_free(struct skein_conn *handle, struct conn_thread *rec)
{
	told.threads_freed++;
	env_free(handle->ctx->env, rec->modules[CONN_MODULE_MAX - 1]);
}

static const struct conn_module rig_module = {
	.id = CONN_MODULE_MAX,
	.name = "rig",
	.must_understand = true,
	.offer = rig_offer,
	.accept = rig_accept,
	.confirm = rig_confirm,
	.ready = rig_ready,
	.broken = rig_broken,
	.closed = rig_closed,
	.thread_taken = rig_seat_taken,
	.thread_left = rig_seat_left,
	.thread_idle = rig_seat_idle,
	.thread_free = rig_seat_free,
};

const struct conn_module *const conn_modules[] = {&rig_module, NULL};
const struct conn_pool_ops *const conn_pool_ops; /* no connection is pooled */

static void rig_on_conn(void *arg, struct skein_conn *conn,
			enum skein_conn_state state)
{
	struct rig *r = arg;

	skein_assert(!conn->lane);
	if (state == SKEIN_CONN_READY) {
		r->ups++;
		r->accepted = conn;
		skein_assert(skein_conn_get_state(conn) == SKEIN_CONN_READY);
	} else {
		r->ends++;
		skein_assert(r->accepted == conn || r->ups > 1);
		r->accepted = NULL;
	}
	r->last = state;
}

static void rig_on_state(void *arg, struct skein_conn *conn,
			 enum skein_conn_state state)
{
	struct rig *r = arg;

	skein_assert(!conn->lane);
	r->states[r->n_states++ % 8] = state;
}

static void rig_open(struct rig *r, unsigned engines,
		     const struct skein_listener_attr *user)
{
	struct skein_ctx_attr attr = {.size = sizeof(attr), .device = "soft"};
	struct skein_listener_attr l = {.size = sizeof(l)};

	memset(r, 0, sizeof(*r));
	memset(&told, 0, sizeof(told));
	assert_int_equal(env_real_new(&r->env), 0);
	if (!getenv("RIG_LOG"))
		r->env->log = NULL;
	alloc_sweep_init(&r->sweep, r->env);
	assert_int_equal(ctx_open_env(r->env, &attr, &r->server), 0);
	assert_int_equal(ctx_open_env(r->env, &attr, &r->client), 0);
	if (user)
		l = *user;
	l.on_conn = rig_on_conn;
	l.arg = r;
	for (unsigned i = 0; i < engines; i++)
		assert_int_equal(skein_engine_new(r->server, SKEIN_WAIT_POLL,
						  &r->engines[i]),
				 0);
	r->n_engines = engines;
	l.engines = engines ? r->engines : NULL;
	l.engine_count = engines;
	assert_int_equal(skein_listener_open(r->server, "127.0.0.1:0", &l,
					     &r->listener),
			 0);
}

static void rig_round(struct rig *r)
{
	skein_ctx_progress(r->client);
	skein_ctx_progress(r->server);
	for (unsigned i = 0; i < r->n_engines; i++)
		skein_engine_progress(r->engines[i]);
}

/* Rounds until the condition holds. */
#define RIG_UNTIL(r, condition)                                      \
	do {                                                         \
		uint64_t end_ = env_now_ns((r)->env) + RIG_PATIENCE; \
                                                                     \
		while (!(condition)) {                               \
			rig_round(r);                                \
			assert_true(env_now_ns((r)->env) < end_);    \
		}                                                    \
	} while (0)

static struct skein_conn *rig_start(struct rig *r, unsigned qps,
				    const struct skein_conn_attr *user)
{
	struct skein_conn_attr attr = {.size = sizeof(attr)};
	struct skein_conn *conn;

	if (user)
		attr = *user;
	attr.qps = qps;
	attr.on_state = rig_on_state;
	attr.arg = r;
	assert_int_equal(skein_conn_open_async(r->client,
					       skein_listener_addr(r->listener),
					       &attr, &conn),
			 0);
	return conn;
}

static struct skein_conn *rig_connect(struct rig *r, unsigned qps,
				      const struct skein_conn_attr *user)
{
	struct skein_conn *conn = rig_start(r, qps, user);
	int ups = r->ups;

	RIG_UNTIL(r, skein_conn_get_state(conn) != SKEIN_CONN_CONNECTING);
	assert_int_equal(skein_conn_get_state(conn), SKEIN_CONN_READY);
	RIG_UNTIL(r, r->ups > ups);
	return conn;
}

/* Without waiting; then nothing is left of it at either end. */
static void rig_end(struct rig *r, struct skein_conn *conn)
{
	skein_conn_close(conn, 0);
	RIG_UNTIL(r, !atomic_load(&r->client->engine->n_conns));
	RIG_UNTIL(r, !atomic_load(&r->listener->admission.conns));
	RIG_UNTIL(r, !atomic_load(&r->listener->admission.handshakes));
	assert_true(list_empty(&r->server->handles));
}

static void rig_close(struct rig *r)
{
	skein_ctx_close(r->client);
	skein_listener_close(r->listener); /* NULL: it was already */
	skein_ctx_close(r->server);
	env_real_free(r->env);
	assert_int_equal(told.readies, told.broken);
	assert_int_equal(told.threads_taken > 0, told.threads_freed > 0);
}

#endif
