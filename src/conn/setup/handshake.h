/* SPDX-License-Identifier: MIT */
/*
 * handshake.h - offer, accept, ready. docs/protocol/handshake.md.
 *
 * An engine without I/O, clock or memory of its own: messages in, actions
 * out. Its carrier (TCP, a Unix socket, rdma_cm private data, a meta
 * server, a simulator) delivers whole messages in order.
 *
 *	client				server
 *	handshake_offer()  -- OFFER ->	  input: DECIDE
 *					  handshake_accept()
 *	input: CONNECT	  <- ACCEPT --
 *	handshake_ready()  -- READY ->	  input: UP
 *
 * With a key, on a carrier that is not proven yet, the server answers OFFER by
 * CHALLENGE, which proves that it knows the key, and the client answers by
 * PROVE; only then comes DECIDE. Either side may end it by REFUSE.
 *
 * Invariants: the client posts nothing on the QP before it has carried out
 * CONNECT, the server nothing before UP. A message is taken in whole or refused
 * whole. Thread rule: one owner.
 */
#ifndef SKEIN_CONN_SETUP_HANDSHAKE_H
#define SKEIN_CONN_SETUP_HANDSHAKE_H

#include "base/bytes.h"
#include "conn/setup/auth.h"
#include "dev/dev.h"

#define HANDSHAKE_VERSION 1
#define HANDSHAKE_MSG_MAX 4096u
#define HANDSHAKE_HEAD 8u
#define HANDSHAKE_ID_LEN 16u
#define HANDSHAKE_NONCE_LEN 32u
#define HANDSHAKE_SECTIONS_MAX 8u
#define HANDSHAKE_TEXT_MAX 120u
#define HANDSHAKE_DEVICE_MAX 15u
#define HANDSHAKE_LANES_MAX 1024u

enum handshake_type {
	HANDSHAKE_OFFER = 1,
	HANDSHAKE_CHALLENGE = 2,
	HANDSHAKE_PROVE = 3,
	HANDSHAKE_ACCEPT = 4,
	HANDSHAKE_READY = 5,
	HANDSHAKE_REFUSE = 6,
};

/* Causes on the wire, in REFUSE and in the control link's CLOSE. */
enum handshake_error {
	HANDSHAKE_ERR_NONE = 0,
	HANDSHAKE_ERR_VERSION = 1,
	HANDSHAKE_ERR_AUTH = 2,
	HANDSHAKE_ERR_BUSY = 3,
	HANDSHAKE_ERR_GARBAGE = 4,
	HANDSHAKE_ERR_RESOURCE = 5, /* out of memory, QPs, fds */
	HANDSHAKE_ERR_DEVICE = 6,   /* the devices cannot reach each other */
	HANDSHAKE_ERR_CLOSING = 7,  /* shutting down */
	HANDSHAKE_ERR_TIMEOUT = 8,
	HANDSHAKE_ERR_OTHER = 9, /* the sender broke it; its log says why */
};

struct handshake_section {
	uint8_t id; /* enum conn_module_id */
	bool must_understand;
	const uint8_t *buf;
	uint16_t len;
};

/* Which connections are lanes of one handle (docs/handles.md). */
struct handshake_handle {
	uint64_t id;	       /* drawn by the client */
	uint16_t index, count; /* count 0: the connection is no lane */
	uint32_t engines;      /* server only: how many engines take lanes */
};

/* What one end says of itself. Sections point into memory of the code that
 * fills them; the peer's point into struct handshake. */
struct handshake_params {
	uint8_t ctx_id[HANDSHAKE_ID_LEN];
	uint32_t pid;
	uint32_t shard; /* client only */
	uint16_t recvs;
	char device[HANDSHAKE_DEVICE_MAX + 1]; /* kind: "soft", "verbs" */
	struct dev_qp_addr qp;
	struct handshake_handle handle;
	struct handshake_section sections[HANDSHAKE_SECTIONS_MAX];
	unsigned n_sections;
};

enum handshake_action {
	HANDSHAKE_WAIT,	   /* for the next message */
	HANDSHAKE_DECIDE,  /* server: ->peer offers; accept or refuse */
	HANDSHAKE_CONNECT, /* client: ->peer accepted; connect, then ready */
	HANDSHAKE_UP,	   /* server: the client is ready */
	HANDSHAKE_FAILED,  /* ->err, ->text, ->retry_ns */
};

enum handshake_state {
	HANDSHAKE_S_START,	/* client: nothing sent; server: no offer */
	HANDSHAKE_S_CHALLENGED, /* server: waits for PROVE */
	HANDSHAKE_S_DECIDING,	/* server: the caller decides */
	HANDSHAKE_S_OFFERED,	/* client: waits for CHALLENGE or ACCEPT */
	HANDSHAKE_S_PROVED,	/* client: waits for ACCEPT */
	HANDSHAKE_S_CONNECTING, /* client: the caller connects its QP */
	HANDSHAKE_S_ACCEPTED,	/* server: waits for READY */
	HANDSHAKE_S_DONE,
	HANDSHAKE_S_FAILED,
};

struct handshake_conf {
	const void *key; /* NULL: none; outlives the handshake */
	size_t key_len;
	bool proven; /* the carrier was authenticated before */
	uint8_t nonce[HANDSHAKE_NONCE_LEN]; /* fresh randomness */
	uint8_t ctx_id[HANDSHAKE_ID_LEN];
};

struct handshake {
	bool client;
	bool keyed; /* this handshake carries proofs */
	enum handshake_state state;
	struct handshake_conf conf;
	struct handshake_params peer;

	/* when FAILED */
	int err; /* negative, as the API returns it */
	uint64_t retry_ns;
	char text[HANDSHAKE_TEXT_MAX + 1]; /* the peer's words, or ours */

	uint8_t chain[AUTH_MAC_LEN];	/* MAC over all messages so far */
	uint8_t msg[HANDSHAKE_MSG_MAX]; /* the peer's last message */
};

void handshake_client_init(struct handshake *hs,
			   const struct handshake_conf *conf);
void handshake_server_init(struct handshake *hs,
			   const struct handshake_conf *conf);

/* Write OFFER, ACCEPT, READY; assert a state that allows it. -EMSGSIZE when own
 * does not fit into a message. */
int handshake_offer(struct handshake *hs, const struct handshake_params *own,
		    struct bytes_out *out);
int handshake_accept(struct handshake *hs, const struct handshake_params *own,
		     struct bytes_out *out);
void handshake_ready(struct handshake *hs, struct bytes_out *out);
/* Ends the handshake from this side by REFUSE; hs->err is err. */
void handshake_refuse(struct handshake *hs, enum handshake_error code, int err,
		      const char *text, struct bytes_out *out);
/* Writes REFUSE without a handshake, as for a listener that is too busy. */
void handshake_put_refuse(struct bytes_out *out, enum handshake_error code,
			  uint32_t retry_ms, const char *text);

/* Takes a message in, and writes an answer that must leave at once to out (room
 * for HANDSHAKE_MSG_MAX). */
enum handshake_action handshake_input(struct handshake *hs, const uint8_t *msg,
				      size_t len, struct bytes_out *out);

/* Translate causes on the wire to errors of the API, and back. */
int handshake_error_errno(uint32_t code);
enum handshake_error handshake_error_code(int err);

/* The codec below the engine; tests use it too. handshake_wire.c */
struct handshake_msg {
	uint8_t type;
	uint8_t version;
	struct handshake_params params;
	bool has_qp, has_nonce, has_id, keyed;
	uint8_t nonce[HANDSHAKE_NONCE_LEN];
	const uint8_t *proof; /* in place, or NULL */
	size_t proof_at;      /* bytes of the message before it */
	uint32_t error, retry_ms;
	char text[HANDSHAKE_TEXT_MAX + 1];
};

/* 0, -SKEIN_EVERSION, or -EPROTO. */
int handshake_decode(const uint8_t *buf, size_t len, struct handshake_msg *m);
/* Writes everything except the proof. proof: leaves room for one at the end,
 * and counts it in the length. */
int handshake_encode(const struct handshake_msg *m, bool proof,
		     struct bytes_out *out);

#endif
