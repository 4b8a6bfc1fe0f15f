/* SPDX-License-Identifier: MIT */
/*
 * post.c - the hot path of a connection: posts, completions, receives.
 *
 * The operation table alone knows the room in the QP's send queue. CONN_SQ_OWN
 * WRs are kept for the connection itself: a full queue can still send a probe,
 * a return of credits and a marker.
 *
 * Receive credits: the peer may send CONN_RECVS immediates. Each used receive
 * is replaced at once, and after CONN_RECVS / 2 of them one immediate of kind
 * CONN_IMM_CREDIT gives as many credits back. These immediates consume receives
 * at the other end too: at most two are under way, and CONN_RECVS_OWN more
 * receives than credits are posted. docs/protocol/immediate.md.
 */
#include "base/assert.h"
#include "base/fmt.h"
#include "conn/events.h"
#include "conn/state.h"
#include "conn/wc_status.h"

#include <arpa/inet.h>
#include <errno.h>

static inline int post(struct skein_conn *conn, struct ibv_send_wr *wr,
		       struct conn_op *op)
{
	struct ibv_send_wr *bad;
	int rc;

	wr->next = NULL;
	wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	if (op)
		op->chain = NULL;
	if (optable_take(&conn->ops, op, &wr->wr_id)) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		conn->eng->cq_waits = ENG_CQ_NOW; /* a completion comes */
	}
	rc = dev_post_send(conn->post_stats, conn->qp, wr, &bad);
	if (__builtin_expect(rc == 0, 1))
		return 0;
	/* The device has not taken it: it may be posted again. */
	if (rc == -ENOMEM) {
		optable_untake(&conn->ops, wr->send_flags & IBV_SEND_SIGNALED);
		return rc;
	}
	/* The table holds a WR that the device may not have: the connection
	 * breaks, and the flush calls done(). */
	conn_break(conn, rc, "the device refused a work request");
	return op ? 0 : -ENOTCONN;
}

static int post_held(struct skein_conn *conn, struct ibv_send_wr *wr,
		     struct conn_op *op)
{
	if (__builtin_expect(!conn->postable, 0))
		return -ENOTCONN;
	if (__builtin_expect(optable_room(&conn->ops) <= CONN_SQ_OWN, 0)) {
		conn->eng->cq_waits = ENG_CQ_NOW; /* there may be room */
		return -EAGAIN;
	}
	return post(conn, wr, op);
}

int conn_post(struct skein_conn *conn, struct ibv_send_wr *wr,
	      struct conn_op *op)
{
	int rc;

	if (!conn->sendq || conn->sendq->held)
		return post_held(conn, wr, op);
	conn_sendq_hold(conn);
	rc = post_held(conn, wr, op);
	conn_sendq_release(conn);
	return rc;
}

int conn_post_own(struct skein_conn *conn, struct ibv_send_wr *wr,
		  struct conn_op *op)
{
	return optable_room(&conn->ops) ? post(conn, wr, op) : -EAGAIN;
}

bool conn_stuck(const struct skein_conn *conn)
{
	return conn->stuck;
}

uint32_t conn_inline_max(struct skein_conn *conn)
{
	return conn->inline_max;
}

unsigned conn_send_room(struct skein_conn *conn)
{
	return conn->postable ? conn_post_room(conn) : 0;
}

void conn_expect_recv(struct skein_conn *conn)
{
	conn->eng->cq_waits = ENG_CQ_NOW;
}

bool conn_imm_credit(struct skein_conn *conn)
{
	uint32_t taken =
		atomic_load_explicit(&conn->imm_taken, memory_order_relaxed);

	/* Relaxed: a count, which orders nothing. */
	if (taken ==
	    atomic_load_explicit(&conn->imm_given, memory_order_relaxed))
		return false;
	atomic_store_explicit(&conn->imm_taken, taken + 1,
			      memory_order_relaxed);
	return true;
}

void conn_imm_refund(struct skein_conn *conn)
{
	atomic_store_explicit(&conn->imm_taken,
			      atomic_load_explicit(&conn->imm_taken,
						   memory_order_relaxed) -
				      1,
			      memory_order_relaxed);
}

int conn_recvs_post(struct skein_conn *conn, unsigned n)
{
	struct ibv_recv_wr wr = {0}, *bad;
	int rc;

	while (n--) {
		wr.wr_id = conn->ops.tag | OPTABLE_RECV | conn->recv_tail;
		rc = dev_post_recv(&conn->eng->stats, conn->qp, &wr, &bad);
		if (rc)
			return rc;
		conn->recv_tail++;
	}
	return 0;
}

/* False: no room now. */
static bool credits_posted(struct skein_conn *conn)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM};

	/* Leaves one WR for the probe and one for the marker. */
	if (optable_room(&conn->ops) < CONN_SQ_OWN)
		return false;
	wr.imm_data = htonl(CONN_IMM(CONN_IMM_CREDIT, conn->recv_owed));
	return conn_post_own(conn, &wr, NULL) == 0;
}

void conn_return_credits(struct skein_conn *conn)
{
	bool posted;

	if (conn->recv_owed < CONN_RECVS / 2 || !conn->postable)
		return;
	conn_sendq_hold(conn);
	posted = credits_posted(conn);
	conn_sendq_release(conn);
	if (posted) {
		conn->recv_owed = 0;
		return;
	}
	/* Again in the next round: completions make room. */
	conn->eng->again = true;
	conn->eng->cq_waits = ENG_CQ_NOW;
}

static void probe_done(struct conn_op *op, enum ibv_wc_status status)
{
	struct skein_conn *conn = container_of(op, struct skein_conn, probe);

	if (!conn->peer)
		return;
	conn->peer->probing = false;
	/* The NIC has answered for its process: counts as input of the link. */
	if (status == IBV_WC_SUCCESS)
		conn->peer->rx_ns = engine_now_ns(conn->eng->e);
}

void conn_probe(struct skein_conn *conn)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

	conn->probe.done = probe_done;
	conn_sendq_hold(conn);
	/* A full queue needs no probe: its WRs are retried and time out. */
	if (optable_room(&conn->ops) >= 2)
		conn->peer->probing =
			conn_post_own(conn, &wr, &conn->probe) == 0;
	conn_sendq_release(conn);
}

/* Relaxed loads suffice: a credit that comes back was taken and posted before,
 * so the load of imm_taken counts it. */
static void take_credits(struct skein_conn *conn, uint32_t n)
{
	uint32_t given =
		atomic_load_explicit(&conn->imm_given, memory_order_relaxed);
	uint32_t room = given - atomic_load_explicit(&conn->imm_taken,
						     memory_order_relaxed);

	if (n > CONN_RECVS || room + n > CONN_RECVS)
		conn_break(conn, -SKEIN_EPEER,
			   "it returned %u receive credits of %u", n,
			   CONN_RECVS - room);
	else
		atomic_store_explicit(&conn->imm_given, given + n,
				      memory_order_relaxed);
}

/* The module that takes immediates of this kind here, or NULL. */
static const struct conn_module *imm_owner(const struct skein_conn *conn,
					   unsigned kind)
{
	static const enum conn_module_id owner[16] = {
		[CONN_IMM_WAKE] = CONN_MODULE_RPC,
		[CONN_IMM_EVENT_MODE] = CONN_MODULE_RPC,
		[CONN_IMM_CREDITS] = CONN_MODULE_RPC,
		[CONN_IMM_MCAST] = CONN_MODULE_MCAST,
	};
	const struct conn_module *m;

	for (unsigned i = 0; owner[kind] && (m = conn_modules[i]); i++)
		if (m->id == owner[kind] && m->imm && conn->modules[m->id - 1])
			return m;
	return NULL;
}

static void take_imm(struct skein_conn *conn, uint32_t imm, uint32_t len)
{
	const struct conn_module *m;
	unsigned kind = CONN_IMM_KIND(imm);

	if (kind == CONN_IMM_CREDIT) {
		take_credits(conn, CONN_IMM_VALUE(imm));
		return;
	}
	conn->recv_owed++;
	m = imm_owner(conn, kind);
	if (m)
		m->imm(conn, imm, len);
	else
		conn_break(conn, -SKEIN_EPEER, "an immediate of kind %u came",
			   kind);
}

/* A receive of a connection that has ended: it may have come before the end. */
static void take_last(struct skein_conn *conn, const struct ibv_wc *wc)
{
	const struct conn_module *m;
	uint32_t imm;

	if (wc->status != IBV_WC_SUCCESS || !(wc->wc_flags & IBV_WC_WITH_IMM) ||
	    !conn->begun)
		return;
	imm = ntohl(wc->imm_data);
	m = imm_owner(conn, CONN_IMM_KIND(imm));
	if (m && m->hears_out)
		m->imm(conn, imm, wc->byte_len);
}

/*
 * The kernel removes an ending process's regions before its QPs and sockets. A
 * requester gets an access error in between, and hears of the death a moment
 * later. (A peer that breaks the connection because of our request says so in
 * its CLOSE, as soon.)
 */
static bool may_be_dying(struct skein_conn *conn, enum ibv_wc_status status)
{
	return conn->phase == CONN_P_READY && status == IBV_WC_REM_ACCESS_ERR &&
	       conn->peer && conn->peer->phase == PEER_READY &&
	       /* failed() has just asked a device that has probe() */
	       conn_qp_probe(conn);
}

/*
 * The device knows that the peer's process lives, so what does not answer is the
 * peer's QP. A request of the peer that was refused here breaks both QPs: then
 * an event of our device names the cause, and it may come after the end of a
 * request of ours (a probe). In all other cases the peer's CLOSE says it.
 */
static bool cause_may_come(struct skein_conn *conn, enum ibv_wc_status status)
{
	return conn->phase == CONN_P_READY && status == IBV_WC_RETRY_EXC_ERR &&
	       conn->peer && conn->peer->phase == PEER_READY &&
	       conn_qp_probe(conn) == 0;
}

static void suspect(struct skein_conn *conn, enum ibv_wc_status status)
{
	conn->suspected = status;
	conn->postable = false;
	conn->deadline_ns = engine_now_ns(conn->eng->e) + CONN_SUSPECT_NS;
	eng_polls_del(conn->eng, conn);
	eng_pend(conn->eng, conn);
}

void conn_qp_failed(struct skein_conn *conn)
{
	if (conn->suspected)
		return;
	if (conn->phase != CONN_P_READY)
		conn_break(conn, wc_status_err(IBV_WC_WR_FLUSH_ERR), "%s",
			   wc_status_text(IBV_WC_WR_FLUSH_ERR));
	else if (conn->peer && conn_qp_probe(conn) == -ENOTCONN)
		conn_peer_down(conn->peer, -SKEIN_EDEAD,
			       "its process has ended");
	else
		suspect(conn, IBV_WC_WR_FLUSH_ERR);
}

static void break_by(struct skein_conn *conn, enum ibv_wc_status status,
		     const char *what)
{
	char last[FMT_LEN] = "";

	fmt_ns(last, sizeof(last), conn_patience_ns(conn));
	if (status == IBV_WC_RETRY_EXC_ERR && conn_patience_ns(conn))
		conn_break(conn, wc_status_err(status), "%s%s; retries last %s",
			   what, wc_status_text(status), last);
	else
		conn_break(conn, wc_status_err(status), "%s%s", what,
			   wc_status_text(status));
}

/* What a device refuses of ours breaks the peer's QP, and by itself says no more
 * in CLOSE than these codes; our own completion says what was refused. On a busy
 * machine CLOSE may be the first that we see. */
bool conn_suspect_own(struct skein_conn *conn, uint32_t code)
{
	if (code != HANDSHAKE_ERR_OTHER && code != HANDSHAKE_ERR_GARBAGE)
		return false;
	conn->close_code = code;
	suspect(conn, IBV_WC_WR_FLUSH_ERR);
	return true;
}

void conn_suspicion_over(struct skein_conn *conn)
{
	if (conn->close_code)
		conn_break_by_code(conn, conn->close_code);
	else
		break_by(conn, conn->suspected, "");
}

/* A request has failed behind the peer's CLOSE. That its QP is gone is no
 * reason. */
static void failed_behind_close(struct skein_conn *conn,
				enum ibv_wc_status status, const char *what)
{
	if (status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR)
		conn_suspicion_over(conn);
	else
		break_by(conn, status, what);
}

/* A status says how a request ended, not why. An event of the device may say
 * why, before a flush. Or the peer's process has ended, and then all
 * connections of its link tell that story. */
static void failed(struct skein_conn *conn, enum ibv_wc_status status,
		   const char *what)
{
	if (conn->phase < CONN_P_BREAK && conn->close_code)
		failed_behind_close(conn, status, what);
	if (conn->phase >= CONN_P_BREAK || conn->suspected)
		return;
	if (status == IBV_WC_WR_FLUSH_ERR)
		events_now(conn->eng);
	if (conn->phase >= CONN_P_BREAK)
		return;
	if (conn->peer && conn->peer->phase != PEER_DEAD &&
	    conn_qp_probe(conn) == -ENOTCONN) {
		conn_peer_down(conn->peer, -SKEIN_EDEAD,
			       "its process has ended");
		return;
	}
	/* A peer that breaks a connection first sends CLOSE with the cause. */
	if (status == IBV_WC_RETRY_EXC_ERR && conn->peer &&
	    conn->peer->phase == PEER_READY)
		conn_peer_beat(conn->peer, engine_now_ns(conn->eng->e));
	if (conn->phase >= CONN_P_BREAK)
		return;
	if (atomic_load(&conn->ctx->port_down_ns)) {
		conn_break(conn, -ENETDOWN, "the device's port is down");
		return;
	}
	if (may_be_dying(conn, status) || cause_may_come(conn, status)) {
		suspect(conn, status);
		return;
	}
	break_by(conn, status, what);
}

static void take_recv(struct skein_conn *conn, const struct ibv_wc *wc)
{
	uint32_t seq = (uint32_t)wc->wr_id;
	int rc;

	if (seq != conn->recv_head || seq == conn->recv_tail) {
		conn_break(conn, -EIO, "the device completed a receive twice");
		return;
	}
	conn->recv_head++;
	if (conn->phase == CONN_P_FLUSH || conn->phase == CONN_P_BREAK) {
		conn->rq_flushed = conn->recv_head == conn->recv_tail;
		take_last(conn, wc);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		failed(conn, wc->status, "a receive failed: ");
		return;
	}
	if (!(wc->wc_flags & IBV_WC_WITH_IMM)) {
		conn_break(conn, -SKEIN_EPEER,
			   "a SEND came, which nobody uses");
		return;
	}
	/* This attempt was given up: no receive brings it up any more. */
	if (conn->phase == CONN_P_SHAKE && conn->fail_err)
		return;
	/* The QP leads to the client that the handshake has proven, and the
	 * client posts only after READY: that is still in the socket. */
	if (conn->phase == CONN_P_SHAKE && !conn->client) {
		conn->keyless_up = true;
		conn_up(conn);
	}
	rc = conn_recvs_post(conn, 1);
	if (rc) {
		conn_break(conn, rc, "cannot post a receive");
		return;
	}
	/* It may announce bytes in a ring: poll the connection again. */
	conn_active(conn);
	take_imm(conn, ntohl(wc->imm_data), wc->byte_len);
	conn_return_credits(conn);
}

void conn_imm(struct skein_conn *conn, uint32_t imm)
{
	if (conn->phase != CONN_P_READY && conn->phase != CONN_P_DRAIN)
		return;
	conn_active(conn);
	take_imm(conn, imm, 0);
	conn_return_credits(conn);
}

void conn_chain_end(struct conn_op *op, enum ibv_wc_status status)
{
	struct conn_op *next;

	for (; op; op = next) {
		next = op->chain;
		op->done(op, status);
	}
}

/* As optable_complete(). In a flush requests that the device never took may be
 * older than seq: they end first. */
static int complete_late(struct skein_conn *conn, uint32_t seq,
			 struct conn_op **op)
{
	struct optable *t = &conn->ops;

	if (conn->phase == CONN_P_BREAK || conn->phase == CONN_P_FLUSH)
		while (seq != t->head &&
		       seq - t->head < optable_tail(t) - t->head) {
			optable_complete(t, t->head, op);
			conn_chain_end(*op, IBV_WC_WR_FLUSH_ERR);
		}
	return optable_complete(t, seq, op);
}

/* An operation in the middle of a chain has failed: those before it have
 * succeeded, those behind it end with the chain. */
static void chain_failed(struct skein_conn *conn, const struct ibv_wc *wc)
{
	unsigned place = OPTABLE_PLACE(wc->wr_id);
	struct conn_op **chain, *op;

	if (!place || wc->status == IBV_WC_WR_FLUSH_ERR)
		return;
	chain = optable_oldest(&conn->ops, (uint32_t)wc->wr_id);
	while (chain && (op = *chain) && place--) {
		*chain = op->chain;
		op->done(op, place ? IBV_WC_SUCCESS : wc->status);
	}
}

static void complete_slow(struct skein_conn *conn, const struct ibv_wc *wc)
{
	struct conn_op *op = NULL;

	if (wc->wr_id & OPTABLE_RECV) {
		take_recv(conn, wc);
		return;
	}
	if (wc->status == IBV_WC_SUCCESS && wc->wr_id & OPTABLE_UNSIGNALLED) {
		/* Some devices signal all the same: harmless. */
		return;
	}
	if (!(wc->wr_id & OPTABLE_UNSIGNALLED) &&
	    complete_late(conn, (uint32_t)wc->wr_id, &op)) {
		conn_break(conn, -EIO,
			   "a completion came for no operation under way");
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		failed(conn, wc->status, "");
	if (wc->wr_id & OPTABLE_UNSIGNALLED)
		chain_failed(conn, wc);
	else
		conn_chain_end(op, wc->status);
}

void conn_complete(struct skein_engine *eng, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)(wc->wr_id >> OPTABLE_CONN_SHIFT);
	struct skein_conn *conn;
	struct conn_op *op;

	conn = index < eng->table_cap ? eng->table[index] : NULL;
	if (__builtin_expect(!conn || conn->qp->qp_num != wc->qp_num, 0)) {
		eng->strays++; /* of a QP that is gone */
		return;
	}
	if (__builtin_expect(wc->status != IBV_WC_SUCCESS ||
				     wc->wr_id & (OPTABLE_RECV |
						  OPTABLE_UNSIGNALLED) ||
				     optable_complete(&conn->ops,
						      (uint32_t)wc->wr_id, &op),
			     0)) {
		complete_slow(conn, wc);
		return;
	}
	conn_chain_end(op, IBV_WC_SUCCESS);
	if (__builtin_expect(!list_empty(&conn->mem_waiting), 0))
		conn_mem_room(conn);
}
