/* SPDX-License-Identifier: MIT */
/*
 * listener.h - a listening socket, admission, and the connections it owns.
 *
 * Admission is two counters with limits: handshakes under way and live
 * connections. Who comes beyond them gets REFUSE(busy) with a hint when to
 * come again, never silence.
 *
 * Thread rule: the socket belongs to the first engine's owner; the counters
 * are atomic, as the connections may live on several engines.
 */
#ifndef SKEIN_CONN_LISTENER_H
#define SKEIN_CONN_LISTENER_H

#include "conn/admission.h"
#include "conn/handle.h"

#define LISTENER_ACCEPTS_A_BEAT 64
#define LISTENER_PAUSE_NS (100 * 1000 * 1000ull) /* when fds are short */

struct skein_listener {
	struct skein_ctx *ctx;
	struct skein_engine *eng; /* accepts */
	struct list_node eng_link, ctx_link;
	int fd;
	bool watched;
	uint64_t paused_until_ns; /* 0: accepts */
	/* Nobody sleeps in it: its descriptors are a reserve, NULL when it is
	 * used up. */
	struct env_waiter *spare;
	struct skein_engine **engines;
	unsigned n_engines;
	struct admission admission;
	uint64_t handshake_ns;
	void (*on_conn)(void *arg, struct skein_conn *conn,
			enum skein_conn_state state);
	void *arg;
	char addr[CONN_ADDR_TEXT_MAX];

	atomic_bool closing;
	atomic_uint peers; /* links that it owns, on all engines */
	atomic_uint lanes; /* some wait for others when they have no link */
	atomic_uint refs;  /* closures under way */
	struct engine_call open_call, close_call;
	atomic_bool opened, closed;
};

int listener_beat(struct skein_listener *l, uint64_t now_ns);
uint64_t listener_next_deadline(const struct skein_listener *l);
/* The engine that serves a shard. */
struct skein_engine *listener_engine(struct skein_listener *l, uint32_t shard);
/* A lane of a handle is gone. */
void listener_lane_gone(struct skein_listener *l);
/* A link of the listener's is gone. */
void listener_peer_gone(struct skein_listener *l);

#endif
