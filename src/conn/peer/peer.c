/* SPDX-License-Identifier: MIT */
/*
 * peer.c - control links: input, output, silence, and their end.
 *
 * The beat takes frames in. A frame only marks a connection or a peer as ended;
 * conn_service() and conn_peer_reap() free it, so nothing that the input loop
 * uses goes away meanwhile.
 *
 * Liveness: a closed socket means that the peer's process has ended (the kernel
 * closes it in any case). A silent socket does not: a stopped process says
 * nothing. Each tick asks the device's probe(), if it has one. Else a zero-byte
 * WRITE asks after PEER_SILENCE_NS: a NIC answers it for a stopped process.
 */
#include "conn/peer/peer.h"

#include "base/assert.h"
#include "conn/state.h"
#include "conn/setup/listener.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

int conn_peer_new(struct skein_engine *eng, int fd, struct conn_vqp *vqp,
		  const char *addr, bool dialled, struct conn_peer **out)
{
	struct conn_peer *peer = env_alloc(eng->env, sizeof(*peer));
	int rc;

	if (!peer)
		return -ENOMEM;
	peer->eng = eng;
	peer->ctx = eng->ctx;
	peer->dialled = dialled;
	peer->phase = dialled ? PEER_DIALLING : PEER_SHAKING;
	peer->rx_ns = peer->tx_ns = engine_now_ns(eng->e);
	peer->deadline_ns = ENV_NEVER;
	list_init(&peer->conns);
	list_init(&peer->regions);
	snprintf(peer->addr, sizeof(peer->addr), "%s", addr);
	conn_link_init(&peer->link, eng->env, fd, vqp);
	rc = eng_link_add(eng, peer, dialled);
	if (rc) {
		env_free(eng->env, peer);
		return rc;
	}
	if (vqp)
		vqp->peer = peer;
	list_add_tail(&eng->peers, &peer->eng_link);
	*out = peer;
	return 0;
}

struct conn_peer *conn_peer_find(struct skein_engine *eng, const char *target,
				 unsigned shard)
{
	struct conn_peer *peer;
	struct list_node *n;

	list_for_each(n, &eng->peers) {
		peer = container_of(n, struct conn_peer, eng_link);
		if (peer->dialled && peer->phase <= PEER_READY &&
		    peer->n_conns && peer->n_conns < PEER_CONNS_MAX &&
		    !peer->link.vqp && peer->shard == shard && peer->target &&
		    !strcmp(peer->target, target))
			return peer;
	}
	return NULL;
}

struct skein_conn *conn_peer_conn(struct conn_peer *peer, uint16_t number)
{
	struct numbers_entry *e = numbers_find(&peer->numbers, number);

	return e ? container_of(e, struct skein_conn, number) : NULL;
}

int conn_peer_attach(struct conn_peer *peer, struct skein_conn *conn)
{
	if (peer->n_conns >= PEER_CONNS_MAX)
		return -ENOSPC;
	/* 0 is the link itself. */
	while (peer->dialled &&
	       (!peer->next_number || conn_peer_conn(peer, peer->next_number)))
		peer->next_number++;
	if (peer->dialled)
		conn->number.number = peer->next_number++;
	/* A link that lingered is in use again. */
	if (peer->phase == PEER_READY)
		peer->deadline_ns = ENV_NEVER;
	conn->peer = peer;
	list_add_tail(&peer->conns, &conn->peer_link);
	numbers_add(&peer->numbers, peer->eng->env, &conn->number);
	peer->n_conns++;
	return 0;
}

/* Its handshake has ended, or never began: the listener counts it no more. */
static void uncount(struct conn_peer *peer)
{
	if (peer->silent)
		listener_not_silent(peer);
	if (peer->counted)
		admission_shaken(&peer->listener->admission);
	peer->counted = false;
}

/* An accepted link without connections: the other end should close it. */
static void linger(struct conn_peer *peer)
{
	peer->deadline_ns = engine_now_ns(peer->eng->e) + PEER_LINGER_NS;
	/* Before a handshake has succeeded its input does not count. */
	if (peer->phase == PEER_SHAKING) {
		peer->phase = PEER_REFUSED;
		uncount(peer);
	}
}

void conn_peer_detach(struct conn_peer *peer, struct skein_conn *conn)
{
	list_del(&conn->peer_link);
	numbers_del(&peer->numbers, &conn->number);
	conn->peer = NULL;
	peer->n_conns--;
	if (peer->phase == PEER_DEAD)
		return;
	/* conn was shaking hands, and the other connections wait for that: they
	 * would fail as conn has. If this side has closed conn, that says
	 * nothing about them: -ECANCELED lets them dial anew. */
	if (peer->dialled && peer->phase < PEER_READY && peer->n_conns) {
		conn_peer_down(peer,
			       conn->closing ? -ECANCELED : conn->fail_err,
			       conn->fail_text);
		return;
	}
	if (peer->n_conns)
		return;
	if (peer->dialled)
		conn_peer_down(peer, 0, "no connection is left");
	else
		linger(peer);
}

/* --- output ------------------------------------------------------------ */

void conn_peer_send(struct conn_peer *peer, const struct bytes_out *frames)
{
	int rc;

	if (peer->phase == PEER_DEAD || peer->phase == PEER_DIALLING)
		return;
	skein_assert(!frames->failed);
	rc = conn_link_send(&peer->link, frames->buf, frames->pos);
	peer->tx_ns = engine_now_ns(peer->eng->e);
	/* Other errors of the socket are left to the input, which first reads
	 * what the peer has sent. */
	if (rc == -ENOBUFS || rc == -ENOMEM)
		conn_peer_down(peer, rc,
			       rc == -ENOMEM ? "no memory for the control link"
					     : "it reads nothing any more");
}

void conn_peer_send_shake(struct conn_peer *peer, uint16_t number,
			  const struct bytes_out *msg)
{
	uint8_t buf[CTLFRAME_HEAD + HANDSHAKE_MSG_MAX];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	if (!msg->pos)
		return;
	ctlframe_put(&out, CTLFRAME_SHAKE, number, msg->buf,
		     (uint32_t)msg->pos);
	conn_peer_send(peer, &out);
}

void conn_peer_send_close(struct conn_peer *peer, uint16_t number,
			  uint32_t code, bool ack)
{
	uint8_t buf[CTLFRAME_HEAD + 4];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	if (ack)
		ctlframe_put(&out, CTLFRAME_CLOSE_ACK, number, NULL, 0);
	else
		ctlframe_put_close(&out, number, code);
	conn_peer_send(peer, &out);
}

/* --- the end ----------------------------------------------------------- */

void conn_peer_up(struct conn_peer *peer, const struct handshake_params *p)
{
	if (peer->phase == PEER_READY)
		return;
	peer->phase = PEER_READY;
	peer->deadline_ns = ENV_NEVER;
	memcpy(peer->id, p->ctx_id, sizeof(peer->id));
	peer->pid = p->pid;
	uncount(peer);
	conn_peer_regions_up(peer);
}

void conn_peer_down(struct conn_peer *peer, int err, const char *why)
{
	struct list_node *n;

	if (peer->phase == PEER_DEAD)
		return;
	if (peer->phase == PEER_READY)
		conn_peer_regions_down(peer);
	peer->phase = PEER_DEAD;
	if (err == -SKEIN_EDEAD)
		atomic_fetch_add(&peer->ctx->counts.deaths, 1);
	uncount(peer);
	eng_link_del(peer->eng, peer);
	conn_link_fini(&peer->link);
	list_for_each(n, &peer->conns)
		conn_peer_lost(container_of(n, struct skein_conn, peer_link),
			       err, why);
	peer->eng->attention = true;
}

void conn_peer_garbage(struct conn_peer *peer, const char *what)
{
	if (peer->phase == PEER_DEAD)
		return;
	atomic_fetch_add(&peer->ctx->counts.garbage, 1);
	env_log(peer->eng->env, ENV_LOG_WARN,
		"control link with %s: it sent %s; closed", peer->addr, what);
	conn_peer_down(peer, -SKEIN_EPEER, what);
}

void conn_peer_refuse(struct conn_peer *peer, enum handshake_error code,
		      uint32_t retry_ms, const char *text)
{
	uint8_t buf[256];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	handshake_put_refuse(&out, code, retry_ms, text);
	conn_peer_send_shake(peer, 1, &out);
	if (peer->phase == PEER_DEAD)
		return;
	peer->phase = PEER_REFUSED;
	peer->deadline_ns = engine_now_ns(peer->eng->e) + PEER_LINGER_NS;
	uncount(peer);
}

void conn_peer_reap(struct skein_engine *eng)
{
	struct list_node *n, *next;
	struct conn_peer *peer;

	list_for_each_safe(n, next, &eng->peers) {
		peer = container_of(n, struct conn_peer, eng_link);
		if (peer->phase != PEER_DEAD || peer->n_conns)
			continue;
		list_del(&peer->eng_link);
		if (peer->listener)
			listener_peer_gone(peer->listener);
		numbers_fini(&peer->numbers, eng->env);
		env_free(eng->env, peer->target);
		env_free(eng->env, peer);
	}
}

/* --- input ------------------------------------------------------------- */

/* A message after OFFER, on a link that has had an offer: this side has given
 * that handshake up, and the two messages have crossed. */
static bool is_late(const struct conn_peer *peer, const struct ctlframe *f)
{
	struct handshake_msg m;

	return !peer->silent && !handshake_decode(f->body, f->len, &m) &&
	       m.type != HANDSHAKE_OFFER;
}

static void take_shake(struct conn_peer *peer, const struct ctlframe *f)
{
	struct skein_conn *conn = conn_peer_conn(peer, f->conn);

	if (conn)
		conn_shake_input(conn, f->body, f->len);
	else if (!peer->dialled && f->conn && !is_late(peer, f) &&
		 (!peer->silent || listener_offer(peer)))
		conn_shake_new(peer, f->conn, f->body, f->len);
	/* else: for an attempt that this side has given up */
}

static void take_close(struct conn_peer *peer, const struct ctlframe *f)
{
	struct skein_conn *conn = conn_peer_conn(peer, f->conn);
	uint32_t code;

	if (ctlframe_get_close(f, &code))
		return;
	if (conn)
		conn_close_frame(conn, code);
	else
		conn_peer_send_close(peer, f->conn, 0, true);
}

/* Has its first handshake failed here, before the other end knows? */
static bool giving_up(struct conn_peer *peer)
{
	struct list_node *n;

	list_for_each(n, &peer->conns)
		if (container_of(n, struct skein_conn, peer_link)->fail_err)
			return true;
	return false;
}

static void take_frame(struct conn_peer *peer, const struct ctlframe *f)
{
	struct skein_conn *conn;

	/* Before the first handshake is done no other frame may come. */
	if (peer->phase == PEER_SHAKING && f->type != CTLFRAME_SHAKE) {
		if (giving_up(peer))
			return;
		conn_peer_garbage(peer, "a frame before the handshake");
		return;
	}
	switch (f->type) {
	case CTLFRAME_SHAKE:
		take_shake(peer, f);
		break;
	case CTLFRAME_REGION_ADD:
	case CTLFRAME_REGION_DEL:
	case CTLFRAME_REGION_ACK:
		if (conn_peer_region_frame(peer, f))
			conn_peer_garbage(peer,
					  "a region nobody can understand");
		break;
	case CTLFRAME_CLOSE:
		take_close(peer, f);
		break;
	case CTLFRAME_CLOSE_ACK:
		conn = conn_peer_conn(peer, f->conn);
		if (conn)
			conn_close_acked(conn);
		break;
	default: /* ALIVE, and what may be ignored */
		break;
	}
}

static bool listens(const struct conn_peer *peer)
{
	return (peer->phase == PEER_SHAKING || peer->phase == PEER_READY) &&
	       !peer->handed_on;
}

/* Takes whole frames out of buf; returns how many bytes were used. */
static size_t take_frames(struct conn_peer *peer, const uint8_t *buf,
			  size_t len)
{
	size_t pos = 0, used;
	struct ctlframe f;
	int rc;

	while (listens(peer)) {
		rc = ctlframe_decode(buf + pos, len - pos, &f, &used);
		if (rc < 0)
			conn_peer_garbage(peer, "bytes that are no frame");
		if (rc <= 0)
			break;
		take_frame(peer, &f);
		pos += used;
	}
	return pos;
}

static void end_of_stream(struct conn_peer *peer, int rc)
{
	if (rc == 0 && !peer->n_conns)
		conn_peer_down(peer, 0, "closed");
	else if (rc == 0 || rc == -ECONNRESET || rc == -EPIPE)
		conn_peer_down(peer,
			       peer->phase == PEER_READY ? -SKEIN_EDEAD
							 : -ECONNRESET,
			       "its control link closed without a word: the "
			       "process has ended");
	else
		conn_peer_down(peer, rc, "the control link failed");
}

static int take_input(struct conn_peer *peer, uint64_t now_ns)
{
	uint8_t buf[CONN_LINK_IN_MAX];
	size_t used, len = conn_link_uncarry(&peer->link, buf);
	size_t room;
	ssize_t n;
	int moved = 0;

	/* After a hand-over the carried bytes may hold whole frames. */
	used = take_frames(peer, buf, len);
	while (listens(peer)) {
		memmove(buf, buf + used, len - used);
		len -= used;
		used = 0;
		room = sizeof(buf) - len;
		n = conn_link_recv(&peer->link, buf + len, room);
		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			end_of_stream(peer, (int)n);
			return 1;
		}
		moved = 1;
		peer->rx_ns = now_ns;
		len += (size_t)n;
		used = take_frames(peer, buf, len);
		if ((size_t)n < room && used == len)
			break;
	}
	if (peer->phase != PEER_DEAD && peer->phase != PEER_REFUSED &&
	    conn_link_carry(&peer->link, buf + used, len - used))
		conn_peer_down(peer, -ENOMEM, "no memory for its input");
	return moved;
}

/* Reads and drops what a refused peer still sends: closing a socket with unread
 * bytes resets it, and the refusal may be lost. */
static int discard_input(struct conn_peer *peer)
{
	uint8_t buf[512];
	ssize_t n;

	n = conn_link_recv(&peer->link, buf, sizeof(buf));
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		conn_peer_down(peer, 0, "refused");
	return 1;
}

static int dialled(struct conn_peer *peer, uint64_t now_ns)
{
	int rc = conn_link_error(&peer->link);
	struct list_node *n, *next;

	if (rc == -EINPROGRESS)
		return 0;
	if (rc) {
		conn_peer_down(peer, rc, "no control link");
		return 1;
	}
	peer->phase = PEER_SHAKING;
	peer->rx_ns = peer->tx_ns = now_ns;
	rc = conn_link_flush(&peer->link);
	if (rc)
		conn_peer_down(peer, rc, "no control link");
	/* The first connection brings the link up; the others wait for that. */
	list_for_each_safe(n, next, &peer->conns) {
		conn_offer(container_of(n, struct skein_conn, peer_link));
		break;
	}
	return 1;
}

/* --- to another engine ------------------------------------------------- */

static void arrive(struct engine_call *call)
{
	struct conn_peer *peer = container_of(call, struct conn_peer, call);
	struct skein_conn *conn;
	int rc;

	peer->handed_on = false;
	list_add_tail(&peer->eng->peers, &peer->eng_link);
	conn = container_of(peer->conns.next, struct skein_conn, peer_link);
	eng_pend(peer->eng, conn);
	rc = eng_link_add(peer->eng, peer, false);
	if (rc) {
		conn_peer_down(peer, rc, "its socket cannot be watched");
		return;
	}
	conn_accept_decide(conn);
	/* Frames behind the offer are carried bytes, not in the socket. */
	conn_peer_beat(peer, engine_now_ns(peer->eng->e));
}

static void hand_on(struct conn_peer *peer)
{
	struct skein_engine *to = peer->hand_to;
	struct skein_conn *conn;

	if (peer->phase == PEER_DEAD) {
		peer->handed_on = false;
		return;
	}
	conn = container_of(peer->conns.next, struct skein_conn, peer_link);
	list_del(&conn->pending_link);
	list_del(&peer->eng_link);
	eng_link_del(peer->eng, peer);
	atomic_fetch_add(&to->n_conns, 1);
	atomic_fetch_sub(&conn->eng->n_conns, 1);
	conn->eng = to;
	conn->post_stats = &to->stats; /* no QP, so no send queue, yet */
	peer->eng = to;
	peer->call.fn = arrive;
	engine_post(to->e, &peer->call);
}

void conn_peer_hand_on(struct conn_peer *peer, struct skein_engine *to)
{
	skein_assert(!peer->dialled && peer->n_conns == 1);
	peer->handed_on = true;
	peer->hand_to = to;
}

/* --- the beat ---------------------------------------------------------- */

int conn_peer_beat(struct conn_peer *peer, uint64_t now_ns)
{
	int rc;

	if (peer->phase == PEER_DEAD || peer->handed_on)
		return 0;
	if (peer->phase == PEER_DIALLING)
		return dialled(peer, now_ns);
	if (peer->link.out_len) {
		rc = conn_link_flush(&peer->link);
		if (rc && rc != -EPIPE && rc != -ECONNRESET)
			conn_peer_down(peer, rc, "the control link failed");
	}
	if (peer->phase == PEER_REFUSED)
		return discard_input(peer);
	if (peer->phase == PEER_DEAD)
		return 1;
	rc = take_input(peer, now_ns);
	/* Last: the other engine's owner may use the peer at once. */
	if (peer->handed_on)
		hand_on(peer);
	return rc;
}

/* --- silence ----------------------------------------------------------- */

static void probe(struct conn_peer *peer, uint64_t now_ns)
{
	uint64_t silence = peer->link.vqp ? PEER_POOL_NS : PEER_SILENCE_NS;
	struct skein_conn *conn;
	struct list_node *n;
	int rc;

	list_for_each(n, &peer->conns) {
		conn = container_of(n, struct skein_conn, peer_link);
		if (conn->phase != CONN_P_READY)
			continue;
		rc = conn_qp_probe(conn);
		if (rc == -ENOTCONN) {
			conn_peer_down(peer, -SKEIN_EDEAD,
				       "its process has ended");
			return;
		}
		if (rc == 0)
			return;
		if (now_ns - peer->rx_ns >= silence && !peer->probing)
			conn_probe(conn);
		return;
	}
}

void conn_peer_tick(struct conn_peer *peer, uint64_t now_ns)
{
	uint8_t buf[CTLFRAME_HEAD];
	struct bytes_out out = bytes_out(buf, sizeof(buf));

	/* A handshake that has begun is its connection's, which says more. */
	if (peer->phase != PEER_DEAD &&
	    !(peer->phase < PEER_READY && peer->n_conns) &&
	    eng_is_late(peer->eng, peer->deadline_ns, now_ns)) {
		if (peer->phase == PEER_SHAKING)
			atomic_fetch_add(&peer->ctx->counts.timeouts, 1);
		conn_peer_down(peer, -ETIMEDOUT, "it said nothing in time");
	}
	if (peer->phase != PEER_READY)
		return;
	/* A vqp has probes alone: they take nothing that a stopped peer would
	 * have to give back. */
	if (!peer->link.vqp && now_ns - peer->tx_ns >= PEER_ALIVE_NS) {
		ctlframe_put(&out, CTLFRAME_ALIVE, 0, NULL, 0);
		conn_peer_send(peer, &out);
	}
	probe(peer, now_ns);
}
