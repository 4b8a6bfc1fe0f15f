/* SPDX-License-Identifier: MIT */
/*
 * handshake.h - offer, accept, ready. docs/protocol/handshake.md.
 *
 * An engine without I/O, clock or memory of its own: messages and times in,
 * actions out. Its carrier (TCP, a Unix socket, rdma_cm private data, a meta
 * server, a simulator) delivers whole messages in order.
 *
 *	client				server
 *	handshake_offer()  -- OFFER ->	  input: DECIDE
 *					  handshake_accept()
 *	input: CONNECT	  <- ACCEPT --
 *	handshake_ready()  -- READY ->	  input: UP
 *
 * With a key, and unless the carrier is already proven: the server answers the
 * OFFER by a CHALLENGE, which proves the key, and the client by PROVE; only
 * then comes DECIDE. Either side may end it by REFUSE.
 *
 * Invariants: nothing is posted on the QP by the client before CONNECT has
 * been carried out, nor by the server before UP. A message is taken in whole
 * or refused whole. Thread rule: one owner.
 */
#ifndef SKEIN_CONN_HANDSHAKE_H
#define SKEIN_CONN_HANDSHAKE_H

#include "base/bytes.h"
#include "conn/auth.h"
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
	HANDSHAKE_ERR_OTHER = 9, /* it broke there, for a reason of its own */
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
	uint16_t index, count; /* count 0: not one of several */
	uint32_t engines;      /* server only: that lanes are spread over */
};

/* What one end says of itself. Sections point into memory of whoever fills
 * it: of the peer's, into struct handshake. */
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
	HANDSHAKE_S_DECIDING,	/* server: the caller thinks */
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
	uint64_t deadline_ns;
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
	char text[HANDSHAKE_TEXT_MAX + 1]; /* a word of the peer's, or ours */

	uint8_t chain[AUTH_MAC_LEN];	/* over all messages so far */
	uint8_t msg[HANDSHAKE_MSG_MAX]; /* the last one from the peer */
};

void handshake_client_init(struct handshake *hs,
			   const struct handshake_conf *conf);
void handshake_server_init(struct handshake *hs,
			   const struct handshake_conf *conf);

/* Writes OFFER, ACCEPT, READY, in the states that allow it (else an assert).
 * -EMSGSIZE when own does not fit into a message. */
int handshake_offer(struct handshake *hs, const struct handshake_params *own,
		    struct bytes_out *out);
int handshake_accept(struct handshake *hs, const struct handshake_params *own,
		     struct bytes_out *out);
void handshake_ready(struct handshake *hs, struct bytes_out *out);
/* Ends it from this side; own error err is kept in hs. */
void handshake_refuse(struct handshake *hs, enum handshake_error code, int err,
		      const char *text, struct bytes_out *out);
/* The same without a handshake: what a listener says that is too busy. */
void handshake_put_refuse(struct bytes_out *out, enum handshake_error code,
			  uint32_t retry_ms, const char *text);

/* Takes a message in; what must be answered at once is written to out (room
 * for HANDSHAKE_MSG_MAX). */
enum handshake_action handshake_input(struct handshake *hs, const uint8_t *msg,
				      size_t len, uint64_t now_ns,
				      struct bytes_out *out);
/* FAILED when the deadline has passed, else WAIT. */
enum handshake_action handshake_tick(struct handshake *hs, uint64_t now_ns,
				     struct bytes_out *out);

/* Between causes on the wire and errors of the API. */
int handshake_error_errno(uint32_t code);
enum handshake_error handshake_error_code(int err);

/* The codec below the engine, and what tests use of it. handshake_wire.c */
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
/* Everything but the proof, whose room is left (and counted) when proof. */
int handshake_encode(const struct handshake_msg *m, bool proof,
		     struct bytes_out *out);

#endif
