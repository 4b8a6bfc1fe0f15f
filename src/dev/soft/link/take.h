/* SPDX-License-Identifier: MIT */
/*
 * take.h - receives of a shared receive queue for a QP whose peer is on another
 * host: claimed and completed as that peer's process would do on this host
 * (srq/take.c), by the owner itself. A claim of a QP that breaks is swept with
 * the QP. The QP is held.
 */
#ifndef SKEIN_DEV_SOFT_LINK_TAKE_H
#define SKEIN_DEV_SOFT_LINK_TAKE_H

#include "dev/soft/qp/qp.h"

struct link_take {
	uint64_t pos;
	uint32_t slot;
};

/* The oldest receive is this QP's. False: there is none. */
bool link_take(struct soft_qp *q, struct link_take *t);
struct shm_slot *link_take_slot(struct soft_qp *q, const struct link_take *t);
/* len bytes of the message, from its at-th on, into a receive of the QP's, shared
 * or its own: 0 or a status. */
int link_take_put(struct soft_qp *q, const struct shm_slot *slot, uint64_t at,
		  const uint8_t *src, size_t len);
/* It is the n-th that the QP completes. */
void link_take_done(struct soft_qp *q, const struct link_take *t, uint32_t n);

#endif
