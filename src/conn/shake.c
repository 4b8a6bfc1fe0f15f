/* SPDX-License-Identifier: MIT */
/*
 * shake.c - carries out the actions of handshake.h, on both sides.
 *
 * The side that opens: conn_offer(), then CONNECT. The side that listens:
 * conn_shake_new(), then DECIDE, perhaps on another engine, then UP. A side
 * that fails sends REFUSE with the cause before it gives up.
 */
#include "base/assert.h"
#include "conn/state.h"
#include "conn/setup/listener.h"

#include <errno.h>
#include <stdio.h>
#include <skein/error.h>

struct handshake *conn_handshake_new(struct skein_conn *conn, bool client)
{
	struct skein_ctx *ctx = conn->ctx;
	struct handshake_conf conf = {
		.key = ctx->key,
		.key_len = ctx->key_len,
		.proven = conn->peer->phase == PEER_READY,
	};
	struct handshake *hs = env_alloc(ctx->env, sizeof(*hs));

	if (!hs)
		return NULL;
	env_random(ctx->env, conf.nonce, sizeof(conf.nonce));
	memcpy(conf.ctx_id, ctx->id, sizeof(conf.ctx_id));
	if (client)
		handshake_client_init(hs, &conf);
	else
		handshake_server_init(hs, &conf);
	return hs;
}

void conn_fail(struct skein_conn *conn, int err, const char *text,
	       uint64_t hint_ns)
{
	if (conn->fail_err)
		return;
	conn->fail_err = err ? err : -ECONNABORTED;
	conn->fail_hint_ns = hint_ns;
	snprintf(conn->fail_text, sizeof(conn->fail_text), "%s",
		 text ? text : "");
	eng_pend(conn->eng, conn);
}

void conn_give_up(struct skein_conn *conn, int err, const char *text)
{
	uint8_t buf[256];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	if (!conn->hs || !conn->peer || conn->fail_err) {
		conn_fail(conn, err, text, 0);
		return;
	}
	handshake_refuse(conn->hs, handshake_error_code(err), err, text, &out);
	conn_peer_send_shake(conn->peer, conn->number.number, &out);
	conn_fail(conn, err, text, 0);
}

/* --- the side that opens ----------------------------------------------- */

void conn_offer(struct skein_conn *conn)
{
	uint8_t buf[HANDSHAKE_MSG_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct handshake_params own;
	struct conn_sections s;
	int rc;

	conn->phase = CONN_P_SHAKE;
	eng_pend(conn->eng, conn);
	conn->hs = conn_handshake_new(conn, true);
	if (!conn->hs) {
		conn_fail(conn, -ENOMEM, "no memory for the handshake", 0);
		return;
	}
	rc = conn_qp_make(conn);
	if (rc) {
		conn_fail(conn, rc, "cannot make a QP", 0);
		return;
	}
	conn_qp_params(conn, &own);
	/* For one QP no handle is asked for: every version knows that. */
	if (conn_lanes(conn) > 1)
		conn_lanes_ask(conn, &own.handle);
	rc = conn_sections_offer(conn, &s, &own);
	if (rc == 0)
		rc = handshake_offer(conn->hs, &own, &out);
	if (rc)
		conn_fail(conn, rc, "cannot make an offer", 0);
	else
		conn_peer_send_shake(conn->peer, conn->number.number, &out);
}

static void qp_failed(struct skein_conn *conn, int rc)
{
	const char *words = dev_qp_rtr_error(rc);
	char why[sizeof(conn->fail_text)];

	snprintf(why, sizeof(why), "the %s cannot connect a QP: %s",
		 conn->client ? "client" : "server",
		 words ? words : skein_strerror(rc));
	conn_give_up(conn, rc, why);
}

static void connect_qp(struct skein_conn *conn)
{
	const struct handshake_params *p = &conn->hs->peer;
	uint8_t buf[256];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	int rc;

	rc = conn_qp_connect(conn, p);
	if (rc) {
		qp_failed(conn, rc);
		return;
	}
	rc = conn_lanes_check(conn, p);
	if (rc) {
		conn_give_up(conn, rc,
			     rc == -SKEIN_EVERSION
				     ? "the server knows no handles of several "
				       "QPs"
				     : "the answer is to another handle");
		return;
	}
	rc = conn_sections_confirm(conn, p);
	if (rc) {
		conn_give_up(conn, rc, "the server's answer is of no use");
		return;
	}
	handshake_ready(conn->hs, &out);
	conn_peer_send_shake(conn->peer, conn->number.number, &out);
	conn_up(conn);
}

/* --- the side that listens --------------------------------------------- */

static void refuse_number(struct conn_peer *peer, uint16_t number,
			  enum handshake_error code, const char *text)
{
	uint8_t buf[256];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	handshake_put_refuse(&out, code, ADMISSION_HINT_MS, text);
	conn_peer_send_shake(peer, number, &out);
}

void conn_shake_new(struct conn_peer *peer, uint16_t number, const uint8_t *msg,
		    size_t len)
{
	struct skein_listener *l = peer->listener;
	uint64_t now = engine_now_ns(peer->eng->e);
	struct skein_conn *conn;

	if (atomic_load(&l->closing)) {
		refuse_number(peer, number, HANDSHAKE_ERR_CLOSING,
			      "the server is shutting down");
		return;
	}
	if (!admission_conn(&l->admission)) {
		refuse_number(peer, number, HANDSHAKE_ERR_BUSY,
			      "the server has all the connections it takes");
		return;
	}
	if (conn_new(peer->eng, false, &conn))
		goto err_admission;
	conn->number.number = number;
	if (conn_peer_attach(peer, conn))
		goto err_conn;
	conn->listener = l;
	if (peer->link.vqp)
		conn_pool_set(conn, peer->link.vqp->pool);
	conn->phase = CONN_P_SHAKE;
	conn->deadline_ns = now + l->handshake_ns;
	if (peer->phase == PEER_SHAKING && peer->deadline_ns != ENV_NEVER) {
		/* The offer is read late, and has its time from now on. */
		if (peer->deadline_ns <= now)
			peer->deadline_ns = conn->deadline_ns;
		conn->deadline_ns = peer->deadline_ns;
	}
	conn_set_name(conn, peer->addr, peer->pid);
	conn_set_state(conn, SKEIN_CONN_CONNECTING);
	eng_pend(peer->eng, conn);
	conn->hs = conn_handshake_new(conn, false);
	if (conn->hs) {
		conn_shake_input(conn, msg, len);
		return;
	}
	/* Without an answer the client would wait until its deadline. */
	refuse_number(peer, number, HANDSHAKE_ERR_RESOURCE,
		      "the server has no memory for a handshake");
	conn_fail(conn, -ENOMEM, "no memory for the handshake", 0);
	return;

err_conn:
	conn_free(conn);
err_admission:
	admission_conn_gone(&l->admission);
	refuse_number(peer, number, HANDSHAKE_ERR_RESOURCE,
		      "the server has no memory for a connection");
}

static int same_kind(struct skein_conn *conn, const struct handshake_params *p)
{
	if (!p->device[0] || !strcmp(p->device, conn->eng->dev->ops->kind))
		return 0;
	return -ENETUNREACH;
}

/* The server's QP is made, and can be connected. */
static void accept_connect(struct skein_conn *conn)
{
	const struct handshake_params *p = &conn->hs->peer;
	uint8_t buf[HANDSHAKE_MSG_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct handshake_params own;
	struct conn_sections s;
	int rc;

	rc = conn_qp_connect(conn, p);
	if (rc) {
		qp_failed(conn, rc);
		return;
	}
	conn_qp_params(conn, &own);
	own.handle = conn->handle;
	rc = conn_sections_accept(conn, &s, p, &own);
	if (rc == 0)
		rc = handshake_accept(conn->hs, &own, &out);
	if (rc)
		conn_give_up(conn, rc, "the server cannot accept this offer");
	else
		conn_peer_send_shake(conn->peer, conn->number.number, &out);
}

static void accept_offer(struct skein_conn *conn)
{
	const struct handshake_params *p = &conn->hs->peer;
	const char *text;
	int rc;

	if (conn->pool && p->handle.count > 1) {
		conn_give_up(conn, -EOPNOTSUPP,
			     "a pooled connection has one QP");
		return;
	}
	text = "client and server are on different kinds of device";
	rc = same_kind(conn, p);
	if (rc == 0)
		rc = conn_lanes_join(conn, p, &conn->handle, &text);
	if (rc) {
		conn_give_up(conn, rc, text);
		return;
	}
	rc = conn_qp_make(conn);
	if (rc == 0)
		rc = conn_qp_reach(conn, p);
	if (rc == 0)
		accept_connect(conn);
	else if (rc != -EINPROGRESS)
		qp_failed(conn, rc);
}

void conn_accept_decide(struct skein_conn *conn)
{
	const struct handshake_params *p = &conn->hs->peer;
	struct skein_engine *to = listener_engine(conn->listener, p->shard);

	if (conn->fail_err)
		return;
	conn->shard = p->shard;
	conn_set_name(conn, conn->peer->addr, p->pid);
	/* A pool belongs to one engine. */
	if (to == conn->eng || conn->pool)
		accept_offer(conn);
	else if (conn->peer->phase == PEER_SHAKING && conn->peer->n_conns == 1)
		conn_peer_hand_on(conn->peer, to);
	else
		conn_give_up(conn, -SKEIN_EPEER,
			     "this control link belongs to another shard");
}

/* --- both -------------------------------------------------------------- */

/* The server's ACCEPT has come. */
static void take_answer(struct skein_conn *conn)
{
	int rc = conn_qp_reach(conn, &conn->hs->peer);

	if (rc == 0)
		connect_qp(conn);
	else if (rc != -EINPROGRESS)
		qp_failed(conn, rc);
}

void conn_reached(struct skein_conn *conn)
{
	if (conn->client)
		connect_qp(conn);
	else
		accept_connect(conn);
}

static void shaken(struct skein_conn *conn)
{
	env_free(conn->ctx->env, conn->hs);
	conn->hs = NULL;
}

bool conn_begin(struct skein_conn *conn)
{
	const struct conn_module *m;
	int rc;

	rc = eng_polls_add(conn->eng, conn);
	if (rc) {
		conn_break(conn, rc, "no memory to poll it");
		return false;
	}
	conn->begun = true;
	counters_up(conn);
	conn->err = 0;
	conn->story[0] = 0;
	if (!conn->lanes)
		conn_set_state(conn, SKEIN_CONN_READY);
	for (unsigned i = 0; (m = conn_modules[i]); i++)
		if (m->ready && conn_module_state(conn, m->id))
			m->ready(conn);
	return conn->phase == CONN_P_READY;
}

void conn_tell_ready(struct skein_conn *conn)
{
	if (conn->lanes)
		conn_set_state(conn, SKEIN_CONN_READY);
	conn->announced = !conn->sole;
	if (conn->announced && conn->listener && conn->listener->on_conn)
		conn->listener->on_conn(conn->listener->arg, conn,
					SKEIN_CONN_READY);
	if (conn->on_state)
		conn->on_state(conn->on_state_arg, conn, SKEIN_CONN_READY);
}

void conn_up(struct skein_conn *conn)
{
	bool others = conn->lanes && !conn->client && !conn->lane;
	bool first = conn->peer->phase != PEER_READY;

	conn_set_name(conn, conn->peer->addr, conn->hs->peer.pid);
	conn_peer_up(conn->peer, &conn->hs->peer);
	conn->phase = CONN_P_READY;
	conn->postable = true;
	conn_sendq_open(conn);
	conn->was_ready = true;
	/* Lane 0 keeps its deadline: by then all lanes must have come. */
	if (!conn->keyless_up && !others)
		conn->deadline_ns = ENV_NEVER;
	if (!conn->keyless_up)
		shaken(conn);
	if (conn->lanes) {
		conn_lane_up(conn);
	} else if (conn_begin(conn)) {
		if (conn->dial)
			conn->dial->ever_ready = true;
		conn_tell_ready(conn);
	}
	/* Connections that come later join a link that is up. */
	if (first)
		conn_waiters_offer(conn->peer);
}

/* A message after the end of the handshake. REFUSE may cross our READY; any
 * other message breaks the connection. */
static void late_message(struct skein_conn *conn, const uint8_t *msg,
			 size_t len)
{
	struct handshake_msg m;

	if (conn->phase != CONN_P_READY)
		return;
	if (handshake_decode(msg, len, &m) || m.type != HANDSHAKE_REFUSE)
		conn_break(conn, -SKEIN_EPEER,
			   "a handshake message after the handshake");
	else
		conn_break(conn, handshake_error_errno(m.error), "%s", m.text);
}

void conn_shake_input(struct skein_conn *conn, const uint8_t *msg, size_t len)
{
	uint8_t buf[HANDSHAKE_MSG_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));
	struct handshake *hs = conn->hs;
	enum handshake_action action;

	if (!hs || conn->fail_err) {
		late_message(conn, msg, len);
		return;
	}
	action = handshake_input(hs, msg, len, &out);
	conn_peer_send_shake(conn->peer, conn->number.number, &out);
	switch (action) {
	case HANDSHAKE_WAIT:
		return;
	case HANDSHAKE_DECIDE:
		conn_accept_decide(conn);
		return;
	case HANDSHAKE_CONNECT:
		take_answer(conn);
		return;
	case HANDSHAKE_UP:
		if (conn->keyless_up)
			shaken(conn);
		else
			conn_up(conn);
		conn->keyless_up = false;
		if (!conn->lanes || conn->lane || conn->begun)
			conn->deadline_ns = ENV_NEVER;
		return;
	case HANDSHAKE_FAILED:
		if (hs->err == -SKEIN_EPEER)
			atomic_fetch_add(&conn->ctx->counts.garbage, 1);
		if (conn->was_ready)
			conn_break(conn, hs->err, "%s", hs->text);
		else
			conn_fail(conn, hs->err, hs->text, hs->retry_ns);
		return;
	}
}
