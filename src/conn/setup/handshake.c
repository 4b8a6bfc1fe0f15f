/* SPDX-License-Identifier: MIT */
/*
 * handshake.c - the states of the handshake, and the proofs.
 *
 * Proofs: both ends keep a chain, chain' = MAC(key, chain | message), over
 * every message in the order sent. The proof of a message is MAC(key, label |
 * chain | the message up to the proof), so it covers all messages before. Each
 * type of message has its own label, so no end can send a proof back.
 * docs/protocol/handshake.md, "Proofs".
 */
#include "conn/setup/handshake.h"

#include "base/assert.h"

#include <errno.h>
#include <skein/error.h>
#include <stdio.h>

static const char *const labels[] = {
	[HANDSHAKE_OFFER] = "",
	[HANDSHAKE_CHALLENGE] = "skein1 challenge",
	[HANDSHAKE_PROVE] = "skein1 prove",
	[HANDSHAKE_ACCEPT] = "skein1 accept",
	[HANDSHAKE_READY] = "skein1 ready",
};

static const struct {
	enum handshake_error code;
	int err;
} errors[] = {
	{HANDSHAKE_ERR_VERSION, -SKEIN_EVERSION},
	{HANDSHAKE_ERR_AUTH, -SKEIN_EAUTH},
	{HANDSHAKE_ERR_BUSY, -SKEIN_EBUSY},
	{HANDSHAKE_ERR_GARBAGE, -SKEIN_EPEER},
	{HANDSHAKE_ERR_RESOURCE, -SKEIN_ERESOURCE},
	{HANDSHAKE_ERR_DEVICE, -ENETUNREACH},
	{HANDSHAKE_ERR_CLOSING, -ESHUTDOWN},
	{HANDSHAKE_ERR_TIMEOUT, -ETIMEDOUT},
	{HANDSHAKE_ERR_OTHER, -ECONNRESET},
	/* One way only: the sender of the message lacks the resource, or the
	 * link. */
	{HANDSHAKE_ERR_RESOURCE, -ENOMEM},
	{HANDSHAKE_ERR_RESOURCE, -ENOBUFS},
	{HANDSHAKE_ERR_RESOURCE, -ENOSPC},
	{HANDSHAKE_ERR_RESOURCE, -EMFILE},
	{HANDSHAKE_ERR_RESOURCE, -ENFILE},
	{HANDSHAKE_ERR_RESOURCE, -ETOOMANYREFS},
	{HANDSHAKE_ERR_DEVICE, -EHOSTUNREACH},
};
#define N_ERRORS (sizeof(errors) / sizeof(errors[0]))

int handshake_error_errno(uint32_t code)
{
	for (size_t i = 0; i < N_ERRORS; i++)
		if (errors[i].code == code)
			return errors[i].err;
	return -ECONNABORTED;
}

enum handshake_error handshake_error_code(int err)
{
	for (size_t i = 0; i < N_ERRORS; i++)
		if (errors[i].err == err)
			return errors[i].code;
	return HANDSHAKE_ERR_OTHER;
}

static void init(struct handshake *hs, const struct handshake_conf *conf,
		 bool client)
{
	memset(hs, 0, offsetof(struct handshake, msg));
	hs->client = client;
	hs->conf = *conf;
	hs->keyed = conf->key && !conf->proven;
}

void handshake_client_init(struct handshake *hs,
			   const struct handshake_conf *conf)
{
	init(hs, conf, true);
}

void handshake_server_init(struct handshake *hs,
			   const struct handshake_conf *conf)
{
	init(hs, conf, false);
}

static void chain_add(struct handshake *hs, const uint8_t *msg, size_t len)
{
	const struct auth_part parts[] = {{hs->chain, AUTH_MAC_LEN},
					  {msg, len}};

	if (hs->keyed)
		auth_mac(hs->conf.key, hs->conf.key_len, parts, 2, hs->chain);
}

static void prove(const struct handshake *hs, uint8_t type, const uint8_t *msg,
		  size_t len, uint8_t mac[AUTH_MAC_LEN])
{
	const struct auth_part parts[] = {
		{labels[type], strlen(labels[type])},
		{hs->chain, AUTH_MAC_LEN},
		{msg, len},
	};

	auth_mac(hs->conf.key, hs->conf.key_len, parts, 3, mac);
}

/* Encodes m, with its proof where one belongs, and adds it to the chain. */
static int emit(struct handshake *hs, struct handshake_msg *m,
		struct bytes_out *out)
{
	bool proof = hs->keyed && m->type != HANDSHAKE_OFFER;
	size_t start = out->pos;
	uint8_t mac[AUTH_MAC_LEN];
	int rc;

	m->version = HANDSHAKE_VERSION;
	rc = handshake_encode(m, proof, out);
	if (rc)
		return rc;
	if (proof) {
		prove(hs, m->type, out->buf + start, out->pos - start, mac);
		bytes_put_mem(out, mac, AUTH_MAC_LEN);
	}
	if (out->failed)
		return -EMSGSIZE;
	chain_add(hs, out->buf + start, out->pos - start);
	return 0;
}

static enum handshake_action fail(struct handshake *hs, int err,
				  const char *text)
{
	hs->state = HANDSHAKE_S_FAILED;
	hs->err = err;
	snprintf(hs->text, sizeof(hs->text), "%s", text);
	return HANDSHAKE_FAILED;
}

void handshake_put_refuse(struct bytes_out *out, enum handshake_error code,
			  uint32_t retry_ms, const char *text)
{
	struct handshake_msg m = {
		.version = HANDSHAKE_VERSION,
		.type = HANDSHAKE_REFUSE,
		.error = code,
		.retry_ms = retry_ms,
	};

	snprintf(m.text, sizeof(m.text), "%s", text);
	handshake_encode(&m, false, out);
}

void handshake_refuse(struct handshake *hs, enum handshake_error code, int err,
		      const char *text, struct bytes_out *out)
{
	handshake_put_refuse(out, code, 0, text);
	fail(hs, err, text);
}

static enum handshake_action refuse(struct handshake *hs,
				    enum handshake_error code, const char *text,
				    struct bytes_out *out)
{
	handshake_refuse(hs, code, handshake_error_errno(code), text, out);
	return HANDSHAKE_FAILED;
}

int handshake_offer(struct handshake *hs, const struct handshake_params *own,
		    struct bytes_out *out)
{
	struct handshake_msg m = {.type = HANDSHAKE_OFFER,
				  .params = *own,
				  .has_id = true,
				  .has_qp = true,
				  .has_nonce = true,
				  .keyed = hs->keyed};
	int rc;

	skein_assert(hs->client && hs->state == HANDSHAKE_S_START);
	memcpy(m.nonce, hs->conf.nonce, HANDSHAKE_NONCE_LEN);
	memcpy(m.params.ctx_id, hs->conf.ctx_id, HANDSHAKE_ID_LEN);
	rc = emit(hs, &m, out);
	if (rc == 0)
		hs->state = HANDSHAKE_S_OFFERED;
	return rc;
}

int handshake_accept(struct handshake *hs, const struct handshake_params *own,
		     struct bytes_out *out)
{
	struct handshake_msg m = {.type = HANDSHAKE_ACCEPT,
				  .params = *own,
				  .has_id = true,
				  .has_qp = true};
	int rc;

	skein_assert(!hs->client && hs->state == HANDSHAKE_S_DECIDING);
	memcpy(m.params.ctx_id, hs->conf.ctx_id, HANDSHAKE_ID_LEN);
	rc = emit(hs, &m, out);
	if (rc == 0)
		hs->state = HANDSHAKE_S_ACCEPTED;
	return rc;
}

void handshake_ready(struct handshake *hs, struct bytes_out *out)
{
	struct handshake_msg m = {.type = HANDSHAKE_READY};
	int rc;

	skein_assert(hs->client && hs->state == HANDSHAKE_S_CONNECTING);
	rc = emit(hs, &m, out);
	skein_assert(rc == 0);
	hs->state = HANDSHAKE_S_DONE;
}

static enum handshake_action take_offer(struct handshake *hs,
					const struct handshake_msg *m,
					struct bytes_out *out)
{
	struct handshake_msg c = {
		.type = HANDSHAKE_CHALLENGE, .has_id = true, .has_nonce = true};

	if (hs->keyed && !m->keyed)
		return refuse(hs, HANDSHAKE_ERR_AUTH,
			      "the server has a key, the client none", out);
	if (!hs->keyed && m->keyed)
		return refuse(hs, HANDSHAKE_ERR_AUTH,
			      "the client has a key, the server none", out);
	hs->peer = m->params;
	if (!hs->keyed) {
		hs->state = HANDSHAKE_S_DECIDING;
		return HANDSHAKE_DECIDE;
	}
	memcpy(c.nonce, hs->conf.nonce, HANDSHAKE_NONCE_LEN);
	memcpy(c.params.ctx_id, hs->conf.ctx_id, HANDSHAKE_ID_LEN);
	if (emit(hs, &c, out))
		return fail(hs, -EMSGSIZE, "the challenge does not fit");
	hs->state = HANDSHAKE_S_CHALLENGED;
	return HANDSHAKE_WAIT;
}

static enum handshake_action take_challenge(struct handshake *hs,
					    struct bytes_out *out)
{
	struct handshake_msg p = {.type = HANDSHAKE_PROVE};

	if (emit(hs, &p, out))
		return fail(hs, -EMSGSIZE, "the proof does not fit");
	hs->state = HANDSHAKE_S_PROVED;
	return HANDSHAKE_WAIT;
}

static enum handshake_action take_accept(struct handshake *hs,
					 const struct handshake_msg *m)
{
	hs->peer = m->params;
	hs->state = HANDSHAKE_S_CONNECTING;
	return HANDSHAKE_CONNECT;
}

static enum handshake_action take_refuse(struct handshake *hs,
					 const struct handshake_msg *m)
{
	hs->retry_ns = (uint64_t)m->retry_ms * 1000000u;
	return fail(hs, handshake_error_errno(m->error),
		    m->text[0] ? m->text : "refused by the peer");
}

/* The message that the state waits for. */
static bool expected(const struct handshake *hs, uint8_t type)
{
	switch (hs->state) {
	case HANDSHAKE_S_START:
		return !hs->client && type == HANDSHAKE_OFFER;
	case HANDSHAKE_S_CHALLENGED:
		return type == HANDSHAKE_PROVE;
	case HANDSHAKE_S_OFFERED:
		return type ==
		       (hs->keyed ? HANDSHAKE_CHALLENGE : HANDSHAKE_ACCEPT);
	case HANDSHAKE_S_PROVED:
		return type == HANDSHAKE_ACCEPT;
	case HANDSHAKE_S_ACCEPTED:
		return type == HANDSHAKE_READY;
	default:
		return false;
	}
}

static bool proof_ok(struct handshake *hs, const struct handshake_msg *m,
		     const uint8_t *msg)
{
	uint8_t mac[AUTH_MAC_LEN];

	if (!hs->keyed || m->type == HANDSHAKE_OFFER)
		return !m->proof;
	if (!m->proof)
		return false;
	prove(hs, m->type, msg, m->proof_at, mac);
	return auth_equal(mac, m->proof, AUTH_MAC_LEN);
}

static enum handshake_action step(struct handshake *hs,
				  const struct handshake_msg *m,
				  struct bytes_out *out)
{
	switch (m->type) {
	case HANDSHAKE_OFFER:
		return take_offer(hs, m, out);
	case HANDSHAKE_CHALLENGE:
		return take_challenge(hs, out);
	case HANDSHAKE_PROVE:
		hs->state = HANDSHAKE_S_DECIDING;
		return HANDSHAKE_DECIDE;
	case HANDSHAKE_ACCEPT:
		return take_accept(hs, m);
	default:
		hs->state = HANDSHAKE_S_DONE;
		return HANDSHAKE_UP;
	}
}

/* Ends the handshake for an unexpected message, with its likely cause. */
static enum handshake_action unexpected(struct handshake *hs, uint8_t type,
					struct bytes_out *out)
{
	if (hs->state == HANDSHAKE_S_OFFERED && type == HANDSHAKE_CHALLENGE)
		return refuse(hs, HANDSHAKE_ERR_AUTH,
			      "the server has a key, the client none", out);
	if (hs->state == HANDSHAKE_S_OFFERED && type == HANDSHAKE_ACCEPT)
		return refuse(hs, HANDSHAKE_ERR_AUTH,
			      "the client has a key, the server none", out);
	return refuse(hs, HANDSHAKE_ERR_GARBAGE,
		      "a message that its state does not allow", out);
}

enum handshake_action handshake_input(struct handshake *hs, const uint8_t *msg,
				      size_t len, struct bytes_out *out)
{
	struct handshake_msg m;
	int rc;

	if (hs->state == HANDSHAKE_S_FAILED)
		return HANDSHAKE_FAILED;
	if (len > HANDSHAKE_MSG_MAX)
		return refuse(hs, HANDSHAKE_ERR_GARBAGE, "too long a message",
			      out);
	/* PROVE and READY have no params: those of hs->peer stay OFFER's. */
	rc = handshake_decode(msg, len, &m);
	if (rc == -SKEIN_EVERSION)
		return refuse(hs, HANDSHAKE_ERR_VERSION,
			      "only version 1 of the handshake is spoken here",
			      out);
	if (rc)
		return refuse(hs, HANDSHAKE_ERR_GARBAGE,
			      "bytes that are no handshake message", out);
	if (m.type == HANDSHAKE_REFUSE)
		return take_refuse(hs, &m);
	if (!expected(hs, m.type))
		return unexpected(hs, m.type, out);
	if (!proof_ok(hs, &m, msg))
		return refuse(hs, HANDSHAKE_ERR_AUTH, "the keys differ", out);
	if (m.type == HANDSHAKE_OFFER || m.type == HANDSHAKE_ACCEPT) {
		memcpy(hs->msg, msg, len);
		handshake_decode(hs->msg, len, &m);
	}
	chain_add(hs, msg, len);
	return step(hs, &m, out);
}
