/* SPDX-License-Identifier: MIT */
/*
 * link.h - QPs of the software device with a peer on another host: the engine
 * (rc.h) on one side, the sockets (udp.h) on the other. docs/link.md.
 *
 * A QP's link is under the QP's lock. Packets come in, and timers fire, in the
 * control thread, under soft.lock and the QP's hold; posters send by
 * themselves. So dereg_mr(), destroy_qp() and moves to ERR and RESET, which
 * take soft.lock, come after the last copy.
 */
#ifndef SKEIN_DEV_SOFT_LINK_LINK_H
#define SKEIN_DEV_SOFT_LINK_LINK_H

#include "dev/soft/qp/qp.h"

struct soft_link;    /* of a device; there from the first QP that needs it */
struct soft_link_qp; /* of a QP, from RTR until RESET */

enum soft_link_mode {
	SOFT_LINK_AUTO,	  /* to other hosts */
	SOFT_LINK_SERVES, /* and UD QPs hear them: it was asked for */
	SOFT_LINK_UDP,	  /* to this one as well, by datagrams */
	SOFT_LINK_TCP,	  /* to this one as well, over connections */
	SOFT_LINK_OFF,
};

/* A QP's timeout by default: 4.3 s, eight times before it gives up. A cable may be
 * out for 15 s: TCP tries again when an outage has lasted for up to twice as
 * long. */
#define SOFT_LINK_TIMEOUT 20u

/* In soft.asking_qps, which a poll in vain looks at: there is a link. */
#define SOFT_LINK_ASKS (1u << 20)

/* From SKEIN_LINK and SKEIN_LINK_PORT. -EINVAL: they say something else; why. */
int soft_link_settings(struct soft *s, char *why, size_t len);
/* The largest path MTU with packets that fit into so many bytes of IP. */
enum ibv_mtu soft_link_mtu(uint32_t route);
/* SKEIN_LINK=udp: what the interface of the chosen GID carries. */
enum ibv_mtu soft_link_port_mtu(const struct soft *s);
/* Which way others are reached, for people. */
void soft_link_words(const struct soft *s, char *buf, size_t len);
/* Opens the port, for the QPNs of a block. s->lock held. -errno, with *what is
 * missing. */
int soft_link_open(struct soft *s, uint32_t block, const char **what);
struct udp *soft_link_udp(const struct soft *s);
/* From our GID of that index to another; s->lock held, and the port is open. */
struct udp_path;
int soft_link_path(struct soft *s, const struct ibv_ah_attr *a,
		   struct udp_path *p, const char **what);
/* Does an RC QP with this peer use the link? s->lock held. */
bool soft_link_wants(struct soft *s, const struct soft_qp *q,
		     const union ibv_gid *dgid);
/* INIT to RTR: no lock held. One line in the log where it fails. */
int soft_link_connect(struct soft_qp *q, const struct ibv_qp_attr *a,
		      struct soft_link_qp **link);
/* Its state has changed; q->lock held. */
void soft_link_state(struct soft_qp *q);
/* Takes wr, which is good, at position pos. q->lock held. ENOMEM. */
int soft_link_post(struct soft_qp *q, const struct ibv_send_wr *wr,
		   uint32_t pos);
/* Before it leaves RTS by its program's wish: an ACK that was kept goes. q->lock
 * held. */
void soft_link_ack(struct soft_qp *q);
/* All that waits completes as flushed; or is forgotten. q->lock held. */
void soft_link_flush(struct soft_qp *q);
void soft_link_drop(struct soft_qp *q);
bool soft_link_busy(const struct soft_qp *q);
/* Back to a QP without a link. s->lock and q->lock held. */
void soft_link_leave(struct soft_qp *q);

/* After a poll in vain: takes in packets, if nobody else does. No lock
 * held. */
void soft_link_poll(struct soft *s);
/* The calling thread has armed a completion queue and may sleep now: it polls no
 * more. No lock held. */
void soft_link_sleeps(struct soft *s);
/* The control thread; s->lock held. */
void soft_link_event(struct soft *s);
uint64_t soft_link_timers(struct soft *s, uint64_t now);
void soft_link_close(struct soft *s);

#endif
