/* SPDX-License-Identifier: MIT */
/*
 * lanes_accept.c - lanes at the end that accepts them, perhaps on several
 * engines.
 *
 * Lane 0 founds the handle. The others find it by the id of the client's
 * context and the handle's random number. Modules have no ready() and no poll()
 * of a lane before all lanes have come: the application gets no request on a
 * connection that it was not told of. Lane 0 goes last, as modules of the other
 * lanes may read it until they are done.
 *
 * No lane waits for another engine, except lane 0 for the end of the others.
 * They end by their own deadlines, so their engines must be run.
 *
 * Thread rule: the owner of the lane's engine; shared fields under ctx->lock.
 */
#include "base/assert.h"
#include "conn/state.h"
#include "conn/setup/listener.h"

#include <errno.h>
#include <stdio.h>

static void lock(struct conn_lanes *ls)
{
	env_mutex_lock(ls->ctx->env, &ls->ctx->lock);
}

static void unlock(struct conn_lanes *ls)
{
	env_mutex_unlock(ls->ctx->env, &ls->ctx->lock);
}

/* --- telling other lanes ----------------------------------------------- */

static void poked(struct engine_call *call)
{
	struct skein_conn *conn =
		container_of(call, struct skein_conn, poke_call);

	/* First: a poke that comes from here on posts another call. */
	atomic_store(&conn->poked, false);
	eng_pend(conn->eng, conn);
}

/* Under the lock, so that the lane exists. Its engine stays the same. */
static void poke(struct skein_conn *lane)
{
	if (!lane || atomic_exchange(&lane->poked, true))
		return;
	lane->poke_call.fn = poked;
	engine_post(lane->eng->e, &lane->poke_call);
}

static void poke_others(struct conn_lanes *ls, const struct skein_conn *but)
{
	for (unsigned i = 0; i < ls->count; i++)
		if (ls->lane[i] != but)
			poke(ls->lane[i]);
}

/* --- coming ------------------------------------------------------------ */

static struct conn_lanes *find(struct skein_conn *conn,
			       const struct handshake_params *p)
{
	struct conn_lanes *ls;
	struct list_node *n;

	list_for_each(n, &conn->ctx->handles) {
		ls = container_of(n, struct conn_lanes, link);
		if (ls->id == p->handle.id && ls->listener == conn->listener &&
		    !memcmp(ls->peer_id, p->ctx_id, sizeof(ls->peer_id)))
			return ls;
	}
	return NULL;
}

static void add(struct conn_lanes *ls, struct skein_conn *conn, unsigned i)
{
	ls->lane[i] = conn;
	ls->here++;
	atomic_fetch_add(&ls->refs, 1);
	atomic_fetch_add(&conn->listener->lanes, 1);
	conn->lanes = ls;
	conn->lane = (uint16_t)i;
}

static int found(struct skein_conn *conn, const struct handshake_params *p,
		 const char **text)
{
	struct skein_ctx *ctx = conn->ctx;
	struct conn_lanes *ls;
	bool twice;

	*text = "the server takes not that many connections more";
	if (!admission_has(&conn->listener->admission, p->handle.count - 1u))
		return -SKEIN_EBUSY;
	*text = "the server has no memory for a handle";
	ls = env_alloc_aligned(
		ctx->env, alignof(struct conn_lanes),
		sizeof(*ls) + p->handle.count * sizeof(struct skein_conn *));
	if (!ls)
		return -ENOMEM;
	ls->ctx = ctx;
	ls->listener = conn->listener;
	ls->id = p->handle.id;
	ls->count = p->handle.count;
	ls->combine = ls->least = 1;
	memcpy(ls->peer_id, p->ctx_id, sizeof(ls->peer_id));
	lock(ls);
	twice = find(conn, p);
	if (!twice) {
		list_add_tail(&ctx->handles, &ls->link);
		add(ls, conn, 0);
	}
	unlock(ls);
	if (!twice)
		return 0;
	env_free(ctx->env, ls);
	*text = "there is such a handle already";
	return -SKEIN_EPEER;
}

static int join(struct skein_conn *conn, const struct handshake_params *p,
		const char **text)
{
	struct skein_ctx *ctx = conn->ctx;
	struct conn_lanes *ls;
	int rc = 0;

	env_mutex_lock(ctx->env, &ctx->lock);
	ls = find(conn, p);
	if (!ls) {
		*text = "its handle has ended, or never was";
		rc = -ESHUTDOWN;
	} else if (ls->count != p->handle.count || ls->lane[p->handle.index]) {
		*text = "its handle has no such lane, or has it already";
		rc = -SKEIN_EPEER;
	} else {
		add(ls, conn, p->handle.index);
	}
	env_mutex_unlock(ctx->env, &ctx->lock);
	return rc;
}

int conn_lanes_join(struct skein_conn *conn, const struct handshake_params *p,
		    struct handshake_handle *answer, const char **text)
{
	int rc;

	if (!p->handle.count)
		return 0;
	rc = p->handle.index ? join(conn, p, text) : found(conn, p, text);
	if (rc == -SKEIN_EPEER)
		atomic_fetch_add(&conn->ctx->counts.garbage, 1);
	*answer = p->handle;
	answer->engines = conn->listener->n_engines;
	return rc;
}

void conn_accepted_lane_up(struct skein_conn *conn)
{
	struct conn_lanes *ls = conn->lanes;

	/* Under the lock, so that lane 0's engine sees what the engines of all
	 * lanes did before. */
	lock(ls);
	if (atomic_fetch_add(&ls->ready, 1) + 1 == ls->count) {
		/* ls stays in ctx->handles: its id is taken. */
		poke(ls->lane[0]);
	}
	unlock(ls);
}

/* Lane 0, in its engine. */
static void all_up(struct skein_conn *head)
{
	struct conn_lanes *ls = head->lanes;

	if (!head->keyless_up)
		head->deadline_ns = ENV_NEVER;
	if (!conn_begin(head))
		return;
	conn_tell_ready(head);
	lock(ls);
	atomic_store_explicit(&ls->up, true, memory_order_release);
	poke_others(ls, head);
	unlock(ls);
}

/* --- going ------------------------------------------------------------- */

void conn_accepted_lane_ended(struct skein_conn *conn, int err, const char *why)
{
	struct conn_lanes *ls = conn->lanes;

	lock(ls);
	/* From here on no lane joins the handle. */
	list_del(&ls->link);
	if (!ls->broken) {
		ls->broken = err;
		snprintf(ls->why, sizeof(ls->why), "lane %u of %u: %.130s",
			 conn->lane, ls->count, why);
		poke_others(ls, conn);
	}
	unlock(ls);
}

static int broken(struct conn_lanes *ls, char why[sizeof(ls->why)])
{
	int err;

	lock(ls);
	err = ls->broken;
	memcpy(why, ls->why, sizeof(ls->why));
	unlock(ls);
	return err;
}

void conn_accepted_lanes_step(struct skein_conn *conn)
{
	struct conn_lanes *ls = conn->lanes;
	char why[sizeof(ls->why)];
	int err;

	if (conn->phase != CONN_P_SHAKE && conn->phase != CONN_P_READY &&
	    conn->phase != CONN_P_DRAIN)
		return;
	err = broken(ls, why);
	if (err && conn->phase == CONN_P_SHAKE)
		conn_give_up(conn, -ESHUTDOWN, "its handle has ended");
	else if (err)
		conn_end(conn, err, why);
	if (err || conn->begun || conn->phase != CONN_P_READY)
		return;
	if (!conn->lane && atomic_load(&ls->ready) == ls->count)
		all_up(conn);
	else if (conn->lane &&
		 atomic_load_explicit(&ls->up, memory_order_acquire) &&
		 conn_begin(conn))
		conn_set_state(conn, SKEIN_CONN_READY);
}

bool conn_accepted_lanes_down(struct skein_conn *head)
{
	struct conn_lanes *ls = head->lanes;
	bool alone;

	lock(ls);
	alone = ls->here == 1;
	unlock(ls);
	return alone;
}

bool conn_accepted_lane_gone(struct skein_conn *conn)
{
	struct conn_lanes *ls = conn->lanes;
	bool stays;

	lock(ls);
	stays = !conn->lane && ls->here > 1;
	if (!stays && ls->lane[conn->lane] == conn) {
		ls->lane[conn->lane] = NULL;
		ls->here--;
		list_del(&ls->link);
		poke(ls->lane[0]);
	}
	unlock(ls);
	/* From here on no lane pokes conn. A poke under way is waited for. */
	return !stays && !atomic_load(&conn->poked);
}
