/* SPDX-License-Identifier: MIT */
/*
 * down.c - how a connection ends.
 *
 *	DRAIN	modules and operations may finish, until a deadline
 *	BYE	CLOSE is sent; the peer ends its side and answers
 *	FLUSH	the QP is in ERR with a marker on each queue: when both have
 *		completed, every operation before them has ended
 *	DOWN	quiesced, the QP destroyed, modules told
 *
 * A broken connection begins at FLUSH. Every operation's done() runs before
 * broken(); after it no peer writes to memory, unless conn_stuck() says so.
 * BYE and FLUSH have deadlines: after them the QP is destroyed in any case.
 */
#include "base/assert.h"
#include "conn/state.h"
#include "conn/setup/listener.h"
#include "conn/mem/mem_handle.h"

#include <errno.h>

#define SLICE_NS (1000 * 1000ull)

/* --- flush ------------------------------------------------------------- */

static void marker_done(struct conn_op *op, enum ibv_wc_status status)
{
	container_of(op, struct skein_conn, marker)->sq_flushed = true;
}

static void flush_start(struct skein_conn *conn)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	int rc;

	conn->postable = false;
	conn_sendq_close(conn);
	conn_lane_dead(conn);
	conn->suspected = IBV_WC_SUCCESS;
	conn->close_code = 0;
	conn->phase = CONN_P_FLUSH;
	conn->deadline_ns = engine_now_ns(conn->eng->e) + CONN_FLUSH_NS;
	eng_polls_del(conn->eng, conn);
	if (conn->peer && !conn->bye_got && !conn->bye_acked && conn->err)
		conn_peer_send_close(conn->peer, conn->number.number,
				     handshake_error_code(conn->err), false);
	rc = conn_qp_err(conn);
	conn->marker.done = marker_done;
	if (rc == 0)
		rc = conn_post_own(conn, &wr, &conn->marker);
	if (rc == 0 && !conn->pool)
		rc = conn_recvs_post(conn, 1);
	/* rxe flushes receives that are posted in ERR only after a second move
	 * to ERR (docs/design/semantics.md, teardown). */
	if (rc == 0)
		rc = conn_qp_err(conn);
	/* Without markers the deadline is now. */
	if (rc)
		conn->deadline_ns = 0;
}

/* Ends the operations that have had no completion: none comes any more. */
static void end_ops(struct skein_conn *conn)
{
	struct conn_op *op = NULL;

	while (!optable_idle(&conn->ops)) {
		optable_complete(&conn->ops, conn->ops.head, &op);
		conn_chain_end(op, IBV_WC_WR_FLUSH_ERR);
	}
}

static void modules_broken(struct skein_conn *conn)
{
	const struct conn_module *m;

	if (!conn->was_ready)
		return;
	conn->was_ready = false;
	if (!conn->begun)
		return;
	counters_down(conn);
	conn->begun = false;
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->broken && conn_module_state(conn, m->id))
			m->broken(conn, conn->err ? conn->err : -ESHUTDOWN);
}

static void modules_closed(struct skein_conn *conn)
{
	const struct conn_module *m;
	void *state;

	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		state = conn_module_state(conn, m->id);
		if (!state)
			continue;
		if (m->closed)
			m->closed(conn, state);
		conn_module_set(conn, m->id, NULL);
	}
}

static void drop_handshake(struct skein_conn *conn)
{
	env_free(conn->ctx->env, conn->hs);
	conn->hs = NULL;
	conn->keyless_up = false;
}

static void leave_peer(struct skein_conn *conn)
{
	if (!conn->peer)
		return;
	if (conn->bye_got)
		conn_peer_send_close(conn->peer, conn->number.number, 0, true);
	conn->peer->probing = false;
	conn_peer_detach(conn->peer, conn);
}

/* Once a connection was ready modules keep their state until it is closed: a
 * thread that saw it ready may be about to use the state. */
static void modules_undo(struct skein_conn *conn)
{
	if (conn->client && conn->dial->ever_ready)
		return;
	/* Lane 0 is the last: first the other lanes' state, of an earlier
	 * attempt. */
	if (conn->client && conn->lanes && !conn->lane)
		for (unsigned i = 1; i < conn->lanes->count; i++)
			if (conn->lanes->lane[i])
				modules_closed(conn->lanes->lane[i]);
	modules_closed(conn);
}

void conn_attempt_undo(struct skein_conn *conn)
{
	conn->postable = false;
	conn_sendq_close(conn);
	if (conn->connected && conn_qp_err(conn))
		conn->stuck = true;
	conn_qp_free(conn);
	modules_undo(conn);
	drop_handshake(conn);
	leave_peer(conn);
	conn->bye_got = conn->bye_acked = false;
}

/* --- down -------------------------------------------------------------- */

/* An accepted connection: the listener's application is told, and the engine
 * frees it. */
static void accepted_down(struct skein_conn *conn, enum skein_conn_state state)
{
	struct skein_listener *l = conn->listener;

	conn_set_state(conn, state);
	if (conn->announced && l->on_conn)
		l->on_conn(l->arg, conn, state);
	modules_closed(conn);
	conn->phase = CONN_P_GONE;
}

static void opened_down(struct skein_conn *conn)
{
	struct conn_dial *d = conn->dial;
	int err = conn->err;

	conn->phase = CONN_P_DOWN;
	conn->deadline_ns = ENV_NEVER;
	if (conn->closing)
		return;
	if (conn_lanes_coming(conn)) {
		conn->err = 0;
		conn_attempt_next(conn, err, conn->fail_text,
				  conn->fail_hint_ns);
		return;
	}
	if (d->reconnect && !atomic_load(&conn->ctx->failed)) {
		retry_init(&d->retry, RETRY_UNLIMITED, ENV_NEVER);
		conn->phase = CONN_P_PAUSE;
		conn->deadline_ns =
			engine_now_ns(conn->eng->e) + RETRY_PAUSE_MIN_NS;
		conn_set_state(conn, SKEIN_CONN_CONNECTING);
		if (conn->on_state)
			conn->on_state(conn->on_state_arg, conn,
				       SKEIN_CONN_CONNECTING);
		return;
	}
	conn_set_state(conn, SKEIN_CONN_BROKEN);
	if (conn->on_state)
		conn->on_state(conn->on_state_arg, conn, SKEIN_CONN_BROKEN);
}

static void flush_finish(struct skein_conn *conn)
{
	struct dev *dev = conn->eng->dev;
	bool polite = !conn->err || conn->err == -ESHUTDOWN;

	if (!conn->pool && dev->ops->quiesce_qp &&
	    dev->ops->quiesce_qp(dev, conn->qp))
		conn->stuck = true;
	conn_qp_free(conn);
	end_ops(conn);
	conn_mem_room(conn);
	mem_finds_end(conn);
	drop_handshake(conn);
	modules_broken(conn);
	leave_peer(conn);
	conn->bye_got = conn->bye_acked = false;
	if (conn->client && conn->lane)
		conn_opened_lane_down(conn);
	else if (conn->client)
		opened_down(conn);
	else
		accepted_down(conn,
			      polite ? SKEIN_CONN_CLOSING : SKEIN_CONN_BROKEN);
}

/* --- close ------------------------------------------------------------- */

static bool modules_busy(struct skein_conn *conn)
{
	const struct conn_module *m;
	void *state;

	for (unsigned i = 0; (m = conn_modules[i]); i++) {
		state = conn_module_state(conn, m->id);
		if (state && m->busy && m->busy(conn, state))
			return true;
	}
	return false;
}

static void drain(struct skein_conn *conn, uint64_t now_ns)
{
	bool busy = !optable_idle(&conn->ops) ||
		    !list_empty(&conn->mem_waiting) || modules_busy(conn);

	busy = conn_lane_stays(conn, busy);
	if (busy && now_ns < conn->drain_until_ns && !conn->bye_got)
		return;
	conn->phase = CONN_P_BYE;
	conn->deadline_ns = now_ns + CONN_BYE_NS;
	if (!conn->bye_got)
		conn_peer_send_close(conn->peer, conn->number.number, 0, false);
}

void conn_close_start(struct skein_conn *conn, uint64_t timeout_ns)
{
	uint64_t now = engine_now_ns(conn->eng->e);

	conn->closing = true;
	if (conn->phase == CONN_P_READY) {
		conn_set_state(conn, SKEIN_CONN_CLOSING);
		conn->phase = CONN_P_DRAIN;
		conn->drain_until_ns = env_deadline(now, timeout_ns);
		conn->deadline_ns = conn->drain_until_ns;
	}
	eng_pend(conn->eng, conn);
	if (conn->client && conn->lanes && !conn->lane)
		conn_lanes_close(conn, timeout_ns);
}

/* Words for the code of the peer's CLOSE, which says what the peer has seen. */
static const char *close_words(uint32_t code)
{
	if (!code)
		return "the peer has closed it";
	if (code == HANDSHAKE_ERR_GARBAGE)
		return "the peer has broken it: it says that this side sent "
		       "what the protocol does not allow";
	if (code == HANDSHAKE_ERR_OTHER)
		return "the peer has broken it, for a reason that its own log "
		       "has";
	return "the peer has broken it";
}

void conn_break_by_code(struct skein_conn *conn, uint32_t code)
{
	int err = code ? handshake_error_errno(code) : -ESHUTDOWN;

	if (code == HANDSHAKE_ERR_GARBAGE)
		err = -ECONNABORTED; /* this side sent the garbage */
	conn_break(conn, err, "%s", close_words(code));
}

void conn_close_frame(struct skein_conn *conn, uint32_t code)
{
	conn->bye_got = true;
	switch (conn->phase) {
	case CONN_P_LINK:
	case CONN_P_SHAKE:
		conn_fail(conn, code ? handshake_error_errno(code) : -ESHUTDOWN,
			  "the peer gave it up", 0);
		return;
	case CONN_P_READY:
		/* The peer broke it for the request that failed here: the
		 * request's status says more than the code, unless it says
		 * no more than that the peer does not answer. */
		if (code && conn->suspected &&
		    conn->suspected != IBV_WC_RETRY_EXC_ERR)
			conn_suspicion_over(conn);
		else if (!conn_suspect_own(conn, code))
			conn_break_by_code(conn, code);
		return;
	case CONN_P_DRAIN:
	case CONN_P_BYE: /* both close at once: as good as an answer */
		conn->bye_acked = true;
		eng_pend(conn->eng, conn);
		return;
	default:
		return;
	}
}

void conn_close_acked(struct skein_conn *conn)
{
	conn->bye_acked = true;
	eng_pend(conn->eng, conn);
}

void conn_peer_lost(struct skein_conn *conn, int err, const char *why)
{
	switch (conn->phase) {
	case CONN_P_LINK:
	case CONN_P_SHAKE:
		conn_fail(conn, err ? err : -ECONNRESET, why, 0);
		return;
	case CONN_P_READY:
	case CONN_P_DRAIN:
		if (conn->close_code) /* that was its last word */
			conn_suspicion_over(conn);
		else
			conn_break(conn, err ? err : -ESHUTDOWN, "%s", why);
		return;
	case CONN_P_BYE:
		conn->bye_acked = true;
		eng_pend(conn->eng, conn);
		return;
	default:
		return;
	}
}

/* --- service ----------------------------------------------------------- */

static void gone(struct skein_conn *conn)
{
	struct skein_engine *eng = conn->eng;
	bool free_self = conn->free_self;

	list_del(&conn->pending_link);
	if (!conn->client) {
		admission_conn_gone(&conn->listener->admission);
		/* Last use of the listener: it may be freed from here on. */
		if (conn->lanes)
			listener_lane_gone(conn->listener);
		list_add_tail(&eng->dead, &conn->pending_link);
		return;
	}
	modules_closed(conn);
	if (conn->lane) {
		conn->lanes->lane[conn->lane] = NULL;
		eng_pend(eng, conn->lanes->lane[0]);
		list_add_tail(&eng->dead, &conn->pending_link);
		return;
	}
	conn_set_state(conn,
		       conn->err ? SKEIN_CONN_BROKEN : SKEIN_CONN_CLOSING);
	if (free_self)
		list_add_tail(&eng->dead, &conn->pending_link);
	else /* last: the thread that closes it frees it */
		atomic_store_explicit(&conn->gone, true, memory_order_release);
}

static void connecting(struct skein_conn *conn, uint64_t now_ns)
{
	if (!conn->fail_err && conn->closing)
		conn_give_up(conn, -ESHUTDOWN, "closed");
	if (!conn->fail_err &&
	    eng_is_late(conn->eng, conn->deadline_ns, now_ns)) {
		if (!conn->client)
			atomic_fetch_add(&conn->ctx->counts.timeouts, 1);
		conn_give_up(conn, -ETIMEDOUT,
			     conn->phase == CONN_P_LINK
				     ? "no answer to the dial"
				     : "the handshake took too long");
	}
	/* Acquire pairs with the release in on_reached(). */
	if (!conn->fail_err && conn->reaching &&
	    atomic_load_explicit(&conn->reached, memory_order_acquire)) {
		conn->reaching = false;
		conn_reached(conn);
	}
	if (conn->fail_err)
		conn_attempt_failed(conn, conn->fail_err, conn->fail_text,
				    conn->fail_hint_ns);
}

static void step(struct skein_conn *conn, uint64_t now_ns)
{
	switch (conn->phase) {
	case CONN_P_NEW:
		if (conn->closing)
			conn->phase = CONN_P_DOWN;
		break;
	case CONN_P_PAUSE:
		if (conn->closing)
			conn->phase = CONN_P_DOWN;
		else if (now_ns >= conn->deadline_ns)
			conn_dial_again(conn);
		break;
	case CONN_P_LINK:
	case CONN_P_SHAKE:
		connecting(conn, now_ns);
		break;
	case CONN_P_READY:
		if (conn->suspected) {
			if (eng_is_late(conn->eng, conn->deadline_ns, now_ns) ||
			    (conn->close_code && optable_idle(&conn->ops)))
				conn_suspicion_over(conn);
			break;
		}
		conn_return_credits(conn);
		if (eng_is_late(conn->eng, conn->deadline_ns, now_ns))
			conn_break(conn, -ETIMEDOUT,
				   conn->begun || !conn->lanes
					   ? "its last handshake message did "
					     "not come"
					   : "its lanes did not all come");
		break;
	case CONN_P_DRAIN:
		drain(conn, now_ns);
		break;
	case CONN_P_BYE:
		if (conn->bye_acked || conn->bye_got ||
		    now_ns >= conn->deadline_ns)
			flush_start(conn);
		break;
	case CONN_P_BREAK:
		flush_start(conn);
		break;
	case CONN_P_FLUSH:
		if (((conn->sq_flushed && conn->rq_flushed) ||
		     now_ns >= conn->deadline_ns) &&
		    conn_lanes_down(conn))
			flush_finish(conn);
		break;
	case CONN_P_DOWN:
		if (conn->closing && conn_lanes_freed(conn)) {
			if (conn->lanes && !conn->lane)
				conn_threads_fini(conn);
			modules_closed(conn);
			conn->phase = CONN_P_GONE;
		}
		break;
	case CONN_P_GONE:
		break;
	}
}

/* Does it need service in coming rounds, even if nothing happens to it? */
static bool wants_service(const struct skein_conn *conn)
{
	switch (conn->phase) {
	case CONN_P_NEW:
	case CONN_P_DOWN:
		return false;
	case CONN_P_READY:
		return conn->recv_owed >= CONN_RECVS / 2 ||
		       conn->deadline_ns != ENV_NEVER;
	default:
		return true;
	}
}

void conn_service(struct skein_conn *conn, uint64_t now_ns)
{
	enum conn_phase was;

	conn_lanes_step(conn);
	do {
		was = conn->phase;
		step(conn, now_ns);
	} while (conn->phase != was);
	/* A wake-up under way is waited for: woken() asks for service again. */
	if (conn->phase == CONN_P_GONE && conn_lane_gone(conn) &&
	    !atomic_load(&conn->waking))
		gone(conn);
	else if (!wants_service(conn))
		list_del(&conn->pending_link);
}

uint64_t conn_next_deadline(const struct skein_conn *conn)
{
	/* Waits for other lanes, which poke it or have it serviced. */
	if (conn->lanes && (conn->phase == CONN_P_GONE ||
			    (conn->phase == CONN_P_FLUSH && conn->sq_flushed &&
			     conn->rq_flushed)))
		return ENV_NEVER;
	/* These phases look at modules and queues, which make no event. */
	if (conn->phase == CONN_P_DRAIN || conn->phase == CONN_P_FLUSH)
		return engine_now_ns(conn->eng->e) + ENGINE_BEAT_NS / 4;
	if (conn->phase == CONN_P_READY && conn->recv_owed >= CONN_RECVS / 2)
		return engine_now_ns(conn->eng->e) + ENGINE_BEAT_NS;
	return conn->deadline_ns;
}

/* --- the public call --------------------------------------------------- */

static void close_call(struct engine_call *call)
{
	struct skein_conn *conn =
		container_of(call, struct skein_conn, close_call);

	conn_close_start(conn, conn->drain_until_ns);
}

static bool is_gone(void *arg)
{
	struct skein_conn *conn = arg;

	/* Acquire pairs with the release in gone(): a thread that reads true
	 * may free conn, as the engine uses it no more. */
	return atomic_load_explicit(&conn->gone, memory_order_acquire);
}

static void close_begin(struct skein_conn *conn, uint64_t timeout_ns)
{
	/* Carries the timeout; conn_close_start() makes it a time. */
	conn->drain_until_ns = timeout_ns;
	conn->close_call.fn = close_call;
	engine_post(conn->eng->e, &conn->close_call);
}

static bool on_one_engine(const struct list_node *closing)
{
	const struct list_node *n;
	const struct skein_engine *eng = NULL;

	list_for_each(n, closing) {
		struct skein_conn *conn =
			container_of(n, struct skein_conn, ctx_link);

		if (eng && conn->eng != eng)
			return false;
		eng = conn->eng;
	}
	return true;
}

/* Runs their engines in turn, as each may have no thread of its own. One alone
 * sleeps until something happens: of many processes that end at once, each
 * waits for a peer that has the others to answer too. */
static void wait_gone(struct skein_env *env, struct list_node *closing)
{
	struct list_node *n, *next;
	struct skein_conn *conn;
	bool alone = on_one_engine(closing);

	while (!list_empty(closing)) {
		list_for_each_safe(n, next, closing) {
			conn = container_of(n, struct skein_conn, ctx_link);
			engine_run_until(conn->eng->e, is_gone, conn,
					 alone ? ENV_NEVER
					       : env_now_ns(env) + SLICE_NS);
			if (!is_gone(conn))
				continue;
			list_del(n);
			conn_free(conn);
		}
	}
}

void conn_close_all(struct skein_ctx *ctx, bool pooled, uint64_t timeout_ns)
{
	struct list_node closing, *n, *next;
	struct skein_conn *conn;

	list_init(&closing);
	env_mutex_lock(ctx->env, &ctx->lock);
	list_for_each_safe(n, next, &ctx->conns) {
		conn = container_of(n, struct skein_conn, ctx_link);
		if (pooled && !conn->pool)
			continue;
		list_del(n);
		conn->with_ctx = true;
		list_add_tail(&closing, n);
	}
	env_mutex_unlock(ctx->env, &ctx->lock);
	list_for_each(n, &closing)
		close_begin(container_of(n, struct skein_conn, ctx_link),
			    timeout_ns);
	wait_gone(ctx->env, &closing);
}

void skein_conn_close(struct skein_conn *conn, uint64_t timeout_ns)
{
	ENV_HOLD_CANCEL();
	struct engine *e;
	bool wait, with_ctx;

	if (!conn)
		return;
	skein_assert(conn->client);
	if (ctx_forked(conn->ctx))
		return;
	e = conn->eng->e;
	env_mutex_lock(conn->ctx->env, &conn->ctx->lock);
	with_ctx = conn->with_ctx;
	if (!with_ctx)
		list_del(&conn->ctx_link);
	env_mutex_unlock(conn->ctx->env, &conn->ctx->lock);
	if (with_ctx) /* called in a callback of skein_ctx_close() */
		return;
	/* A thread inside a round cannot wait. */
	conn->free_self = !timeout_ns || engine_is_owner(e);
	wait = !conn->free_self; /* read now: conn may be freed once posted */
	close_begin(conn, timeout_ns);
	if (!wait)
		return;
	engine_run_until(e, is_gone, conn, ENV_NEVER);
	conn_free(conn);
}
