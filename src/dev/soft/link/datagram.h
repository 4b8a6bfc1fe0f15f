/* SPDX-License-Identifier: MIT */
/*
 * datagram.h - messages of UD QPs to and from other hosts: one packet each.
 *
 * A sender needs no more than an address handle. What comes in claims a receive
 * as a process of this host would (claim.h), under soft.lock: regions stay.
 * The thread that shuts the QP's gate sees the claim, or the second look sees the
 * gate shut.
 */
#ifndef SKEIN_DEV_SOFT_LINK_DATAGRAM_H
#define SKEIN_DEV_SOFT_LINK_DATAGRAM_H

#include "dev/soft/link/link.h"
#include "dev/soft/ud/ud.h"

struct packet;
struct icrc_flow;

/* Where an address handle leads; freed by env_free(). */
struct soft_link_ah;

/* NULL in *link: not over the link. -EHOSTUNREACH: far away, and no link; or why
 * there is none, with a line in the log. s->lock held. */
int soft_link_ah_new(struct soft *s, const struct ibv_ah_attr *a, bool far,
		     struct soft_link_ah **link);
/* Sends, or drops what the route does not carry. q->lock held. */
void soft_link_datagram(struct soft_qp *q, struct soft_link_ah *w, uint32_t qpn,
			const struct ud_msg *m);
/* From here on q is found by other hosts, if the program has said that it wants
 * that. No lock held; a line in the log where it fails. */
int soft_link_serve(struct soft_qp *q);
/* What came for q, and passed its check. False: dropped. s->lock held. */
bool soft_link_take_datagram(struct soft_qp *q, const struct icrc_flow *f,
			     const struct packet *p);

#endif
