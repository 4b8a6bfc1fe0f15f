/* SPDX-License-Identifier: MIT */
/*
 * peers.h - the QPs that this process has with others under `skein run`: all
 * streams with a process share one (SKEIN_STREAM_QPS: up to 4, or one each). A
 * QP stays until the process at its other end is gone.
 *
 * Thread rule: the helper's thread. What it does to a QP that is up, or to
 * streams on it, it does under st.lock.
 */
#ifndef SKEIN_BIND_SOCKET_PEERS_H
#define SKEIN_BIND_SOCKET_PEERS_H

#include "bind/socket/meet.h"
#include "stream/stream.h"

struct peer_qp {
	struct peer_qp *next;
	struct stream_qp *q;
	uint8_t id[MEET_ID_LEN]; /* of the process at the other end */
	uint32_t peer_qpn;
	bool up;    /* both ends are connected */
	bool alone; /* for one stream */
};

struct peers {
	struct stream_host host;
	struct peer_qp *all;
	uint8_t id[MEET_ID_LEN]; /* this process */
	uint32_t qps;		 /* with each other process; 0: a stream each */
	uint64_t look_ns;	 /* when peers_tend() is due */
};

void peers_init(struct peers *p);
/* A QP with process id for one more stream, or NULL. *making: one is being made,
 * and worth waiting for. */
struct peer_qp *peers_choose(struct peers *p, const uint8_t *id, bool *making);
/* The QP that the other end means, connected by this end, or NULL. */
struct peer_qp *peers_find(struct peers *p, const uint8_t *id, uint32_t qpn,
			   uint32_t peer_qpn);
/* A new one, not connected. */
struct peer_qp *peers_make(struct peers *p, const uint8_t *id, bool alone);
int peers_connect(struct peer_qp *pq, const struct stream_qp_addr *addr);
/* One that is not up. No stream is on it, but such as were left. */
void peers_drop(struct peers *p, struct peer_qp *pq);
/* Makes and frees the memory of rings that grow. */
void peers_tend(struct peers *p);
/* Frees all, and closes the device. No socket has a stream. */
void peers_end(struct peers *p);
/* Frees what is over: streams, and QPs with processes that are gone. */
void peers_sweep(struct peers *p);

#endif
