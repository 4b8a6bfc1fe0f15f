/* SPDX-License-Identifier: MIT */
/*
 * listener.h - a listening socket, admission, and the connections it owns.
 *
 * Admission has two limits: on handshakes under way and on live connections. A
 * client beyond them gets REFUSE(busy) with a hint when to try again, never
 * silence. A link counts from its first whole offer on. A link without an offer
 * is silent: LISTENER_SILENT_MAX of these are kept, and a new one drops the
 * oldest, so that silent sockets take no place of clients.
 *
 * Thread rule: the socket belongs to the first engine's owner; the counters
 * are atomic, as the connections may live on several engines.
 */
#ifndef SKEIN_CONN_SETUP_LISTENER_H
#define SKEIN_CONN_SETUP_LISTENER_H

#include "conn/setup/admission.h"
#include "conn/state.h"

#define LISTENER_ACCEPTS_A_BEAT 64
#define LISTENER_SILENT_MAX 256u
#define LISTENER_PAUSE_NS (100 * 1000 * 1000ull) /* when fds are short */

struct skein_listener {
	struct skein_ctx *ctx;
	struct skein_engine *eng; /* accepts */
	struct list_node eng_link, ctx_link;
	struct conn_pool *pool; /* NULL: it is not pooled */
	int fd;
	bool watched;
	uint64_t paused_until_ns; /* 0: accepts */
	/* No thread sleeps on it: its file descriptors are a reserve. NULL: the
	 * reserve is in use. */
	struct env_waiter *spare;
	struct skein_engine **engines;
	unsigned n_engines;
	struct admission admission;
	struct list_node silent; /* conn_peer.silent_link, the oldest first */
	unsigned n_silent;
	uint64_t handshake_ns;
	void (*on_conn)(void *arg, struct skein_conn *conn,
			enum skein_conn_state state);
	void *arg;
	char addr[CONN_ADDR_TEXT_MAX];
	uint16_t port;

	atomic_bool closing;
	atomic_uint peers; /* links that it owns, on all engines */
	atomic_uint lanes; /* lanes of handles: some outlive their link */
	atomic_uint refs;  /* close calls under way */
	struct engine_call open_call, close_call;
	atomic_bool opened, closed;
};

int listener_beat(struct skein_listener *l, uint64_t now_ns);
uint64_t listener_next_deadline(const struct skein_listener *l);
/* The first message of a vqp has come: makes a peer of it, or not. */
void listener_admit_vqp(struct skein_listener *l, struct conn_vqp *vqp,
			uint64_t now_ns);
/* The first offer of an accepted link has come: true when it may go on, false
 * when it was refused. */
bool listener_offer(struct conn_peer *peer);
/* A silent link has sent an offer, or ends. */
void listener_not_silent(struct conn_peer *peer);
/* The engine that serves a shard. */
struct skein_engine *listener_engine(struct skein_listener *l, uint32_t shard);
/* A lane of a handle is gone: one of listener.lanes less. */
void listener_lane_gone(struct skein_listener *l);
/* A link of the listener is gone. */
void listener_peer_gone(struct skein_listener *l);

#endif
