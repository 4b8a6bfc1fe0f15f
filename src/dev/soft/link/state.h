/* SPDX-License-Identifier: MIT */
/*
 * state.h - what link.c, ops.c and carrier.c have in common: the link of a
 * device, and that of a QP.
 */
#ifndef SKEIN_DEV_SOFT_LINK_STATE_H
#define SKEIN_DEV_SOFT_LINK_STATE_H

#include "dev/soft/link/counts.h"
#include "dev/soft/link/framing.h"
#include "dev/soft/link/link.h"
#include "dev/soft/link/rc.h"
#include "dev/soft/link/take.h"
#include "dev/soft/link/tcp.h"
#include "dev/soft/link/udp.h"

struct link_wqe {
	struct rc_wqe e;
	uint32_t pos;
	struct ibv_send_wr wr;
	struct ibv_sge sge[]; /* then inline bytes */
};

struct soft_link_qp {
	struct list_node node; /* soft_link.qps; soft.lock */
	struct soft_qp *q;
	struct soft_link *link;
	struct udp_path path;
	uint64_t moved; /* add it to what the last op_check() was asked about */
	uint32_t dest_qpn; /* q->attr's, which needs q->lock */
	uint64_t deadline;
	/* its carrier: a connection, or NULL: datagrams, or none yet; q->lock */
	struct tcp_conn *conn;
	/* the second one, for long messages; NULL: none is needed yet */
	struct tcp_conn *bulk;
	bool out_bulk;	  /* our requests go by it now */
	bool back_bulk;	  /* our answers do: the peer's last request came so */
	uint64_t bulk_ns; /* when it was asked for */
	struct tcp_conn *tx; /* of the packet that begin() had room for */
	bool tcp_only;
	bool waits;	  /* for room on the connection, or for one */
	bool dialling;	  /* until it has a connection, or needs none */
	uint64_t dial_ns; /* when to try again */
	uint32_t dials;	  /* in vain */
	/* Since when the peer's host has refused all of them; ENV_NEVER */
	uint64_t refused_ns;
	bool touched; /* by the batch that is taken in now */
	bool started;
	bool held; /* it is in soft_link.held, until held_ns */
	uint64_t held_ns;
	struct counts_row *peer;	/* what its engine has counted ... */
	uint64_t counted[COUNTS_OF_QP]; /* ... and is in that row; q->lock */
	/* the receive queue: as a same-host peer's */
	uint32_t rq_head, ready;
	struct link_take take; /* of a shared one */
	struct rc rc;	       /* with what follows it */
};

#define LINK_REFUSED 16u
#define LINK_HELD 64u
/* The control thread looks again at a QP that a thread posts to: that thread
 * may have lost its core to the control thread, which must not wait for it
 * under soft.lock, for then all other pollers wait for both. */
#define LINK_BUSY_NS 50000u
#define LINK_PATIENT 18u	   /* the timeout of a QP: 1 s, or more */
#define LINK_BULK (64u << 10)	   /* messages above it */
#define LINK_BULK_NS 1000000000ull /* a second connection is asked for again */

struct soft_link {
	struct soft *s;
	struct udp *udp;
	struct tcp *tcp;	 /* or NULL: datagrams alone */
	struct framing *framing; /* of tcp */
	pthread_cond_t dialled;	 /* with soft.lock: dialling has ended */
	struct list_node qps;
	/* No engine has anything to do before it. Posters lower it. */
	_Atomic uint64_t due;
	struct soft_qp *touched[2 * UDP_BATCH];
	uint32_t n_touched;
	/* QPs with an ACK that waits for their program's answer, and when the
	 * first of them has waited for long enough. */
	struct soft_qp *held[LINK_HELD];
	uint32_t n_held;
	uint64_t held_ns;
	bool polled; /* what comes in now is for a program that polls */
	struct {
		uint8_t gid[16];
		uint64_t until_ns;
	} refused[LINK_REFUSED]; /* nobody listened there */
	uint32_t refused_next;
	uint64_t packets; /* that came in */
	struct counts_page *counts;
	int counts_fd;
};

static inline struct link_wqe *link_wqe_of(const struct rc_wqe *w)
{
	return (struct link_wqe *)(void *)(uintptr_t)w;
}

static inline bool link_is_inline(const struct link_wqe *w)
{
	return w->wr.send_flags & IBV_SEND_INLINE;
}

/* ops.c */
extern const struct rc_ops soft_link_ops;

/* What it has sent and taken, for the log. s->lock held; q is held. */
void link_log_counts(const struct soft_link_qp *l);

/* It retries, and nothing has ever come from that host: one line for each host,
 * long before a patient QP gives up. q is held. */
void link_log_first_silence(const struct soft_link_qp *l);

/* link.c. All that a QP's engine has to do. s->lock held, so that regions
 * stay; q is held. */
void link_turn(struct soft_qp *q, uint64_t now);
/* When to look at it, at the latest; q is held. */
void link_due(struct soft_link *k, uint64_t at, bool kick);
/* A packet of len bytes by a connection; c NULL: a datagram, its check value
 * behind it. */
void link_packet(struct soft_link *k, const struct icrc_flow *f,
		 const uint8_t *buf, size_t len, const struct tcp_conn *c);
/* The end of a batch: answers, and what may go now. */
void link_batch_end(struct soft_link *k);

/* carrier.c: what a QP's packets go by. s->lock held, but for the first two:
 * around what a QP sends, q->lock held. */
void carrier_lock(struct soft_link_qp *l);
void carrier_unlock(struct soft_link_qp *l);
int carrier_open(struct soft_link *k, const char **what);
/* Dials where there is no connection, and waits for a moment, s->lock free. */
void carrier_join(struct soft_link_qp *l);
void carrier_leave(struct soft_link_qp *l);
/* It was time to dial again. */
void carrier_dial(struct soft_link_qp *l);
/* rc_ops.may_begin: chooses the connection of requests. q->lock held. */
bool carrier_may_begin(void *owner, const struct rc_wqe *w, bool idle);

#endif
