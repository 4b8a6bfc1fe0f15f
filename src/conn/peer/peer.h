/* SPDX-License-Identifier: MIT */
/*
 * peer.h - conn_peer: a control link between this context and another one.
 *
 * Owns the link, liveness, the table of the peer's regions, and the list of the
 * connections on the link. The side that dialled opens connections on it, each
 * under a number: the first brings the link up, further ones join without a new
 * TCP handshake. Two contexts that dial each other at the same time have two
 * links, one for each direction.
 *
 * A peer belongs to one engine (docs/design/connections.md says why). When no
 * connection is left the side that dialled closes the link, and the other side
 * sees the end of the stream.
 *
 * Thread rule: the engine's owner; the region table is under the context's
 * lock.
 */
#ifndef SKEIN_CONN_PEER_PEER_H
#define SKEIN_CONN_PEER_PEER_H

#include "conn/setup/addr.h"
#include "conn/ctx.h"
#include "conn/peer/link.h"
#include "conn/peer/numbers.h"

#define PEER_ALIVE_NS (1000 * 1000 * 1000ull) /* silent so long: send ALIVE */
#define PEER_SILENCE_NS (2 * PEER_ALIVE_NS)   /* peer silent so long: probe */
#define PEER_POOL_NS (500 * 1000 * 1000ull)   /* ... on a vqp */
#define PEER_LINGER_NS (1000 * 1000 * 1000ull)
#define PEER_REGIONS_MAX 4096u
#define PEER_CONNS_MAX 4096u

enum conn_peer_phase {
	PEER_DIALLING, /* TCP is not up yet */
	PEER_SHAKING,  /* the first handshake is under way */
	PEER_READY,
	PEER_REFUSED, /* waits for the other end to close the link */
	PEER_DEAD,    /* no link any more; freed when no connection is left */
};

struct conn_remote_region {
	struct list_node link;
	uint32_t id;
	uint32_t access;
	uint64_t addr, len;
	uint32_t rkey;
	char name[CTLFRAME_NAME_MAX + 1];
};

struct conn_peer {
	struct skein_engine *eng;
	struct skein_ctx *ctx;
	struct list_node eng_link;
	struct conn_link link;
	enum conn_peer_phase phase;
	bool dialled;	/* this side opened the link */
	bool handed_on; /* goes to the engine hand_to after this input */
	struct skein_engine *hand_to;
	uint16_t next_number;
	unsigned n_conns;
	struct list_node conns; /* skein_conn.peer_link */
	struct numbers numbers; /* of the same: skein_conn.number */
	uint64_t deadline_ns;	/* of SHAKING and REFUSED */
	uint64_t rx_ns, tx_ns;	/* of the last input and output */
	bool probing;		/* a zero-byte WRITE is under way */

	/* When dialled: connections to the same target and shard join. */
	char *target; /* as in skein_conn_open() */
	unsigned shard;

	/* When accepted. */
	struct skein_listener *listener;
	bool counted; /* among the listener's handshakes */
	bool silent;  /* no offer has come yet: on the listener's list */
	struct list_node silent_link;
	struct engine_call call;

	uint8_t id[HANDSHAKE_ID_LEN];
	uint32_t pid;
	char addr[CONN_ADDR_TEXT_MAX];

	/* Regions, under ctx->lock. */
	struct list_node ctx_link;
	struct list_node regions; /* conn_remote_region.link: the peer's */
	unsigned n_regions;
	uint64_t seq_sent;  /* of our regions: announced up to here */
	uint64_t seq_acked; /* ... and acknowledged by the peer */
};

/* With a link on fd; or (fd -1) on the vqp. */
int conn_peer_new(struct skein_engine *eng, int fd, struct conn_vqp *vqp,
		  const char *addr, bool dialled, struct conn_peer **peer);
/* A live link to the same target that a further connection may join. */
struct conn_peer *conn_peer_find(struct skein_engine *eng, const char *target,
				 unsigned shard);

int conn_peer_attach(struct conn_peer *peer, struct skein_conn *conn);
/* When the last connection leaves, a dialled peer ends at once, an accepted one
 * after PEER_LINGER_NS. */
void conn_peer_detach(struct conn_peer *peer, struct skein_conn *conn);
struct skein_conn *conn_peer_conn(struct conn_peer *peer, uint16_t number);

/* Sends one whole frame or several. Failure ends the peer. */
void conn_peer_send(struct conn_peer *peer, const struct bytes_out *frames);
void conn_peer_send_shake(struct conn_peer *peer, uint16_t number,
			  const struct bytes_out *msg);
void conn_peer_send_close(struct conn_peer *peer, uint16_t number,
			  uint32_t code, bool ack);

/* The first handshake is done. */
void conn_peer_up(struct conn_peer *peer, const struct handshake_params *p);
/* The link is lost, or its peer broke the rules: closes it, and calls
 * conn_peer_lost() for each connection. Idempotent. */
void conn_peer_down(struct conn_peer *peer, int err, const char *why);
/* The peer broke the protocol: counted, then down with -SKEIN_EPEER. */
void conn_peer_garbage(struct conn_peer *peer, const char *what);
/* Sends the other end REFUSE, and waits PEER_LINGER_NS for it to close the
 * link. */
void conn_peer_refuse(struct conn_peer *peer, enum handshake_error code,
		      uint32_t retry_ms, const char *text);

/* The beat: input and output. Returns what moved. */
int conn_peer_beat(struct conn_peer *peer, uint64_t now_ns);
/* Every ENG_TICK_NS: deadline, keepalive, silence. */
void conn_peer_tick(struct conn_peer *peer, uint64_t now_ns);
/* Frees dead peers without connections. */
void conn_peer_reap(struct skein_engine *eng);

/* Hands an accepted peer to another engine, in the middle of its first
 * handshake: the engine's owner continues with conn_accept_decide(). */
void conn_peer_hand_on(struct conn_peer *peer, struct skein_engine *to);

/* regions.c: announcements, both ways */
void conn_peer_announce(struct conn_peer *peer);
int conn_peer_region_frame(struct conn_peer *peer, const struct ctlframe *f);
void conn_peer_regions_up(struct conn_peer *peer);
void conn_peer_regions_down(struct conn_peer *peer);

#endif
