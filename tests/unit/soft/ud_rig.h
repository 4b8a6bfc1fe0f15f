/* SPDX-License-Identifier: MIT */
/*
 * ud_rig.h - UD ends on the software device, for its tests: a rig_end whose QP
 * is a UD QP in RTS, and an address handle that reaches every other one.
 */
#ifndef SKEIN_TESTS_SOFT_UD_RIG_H
#define SKEIN_TESTS_SOFT_UD_RIG_H

#include "rig.h"

#define UD_QKEY 0x1234

struct ud_end {
	struct rig_end r;
	struct ibv_ah *ah;
	struct ibv_srq *srq; /* of its QPs, or NULL */
	struct ibv_pd *pd2;  /* a test's own */
};

void ud_open(struct ud_end *e, const struct rig_opts *o);
/* Its QPs, ud_qp()'s too, take the receives of an SRQ of RIG_WR. */
void ud_open_srq(struct ud_end *e, const struct rig_opts *o);
void ud_close(struct ud_end *e);
/* One more QP, in RESET; then to RTS. */
struct ibv_qp *ud_qp(struct ud_end *e);
void ud_ready(struct ud_end *e, struct ibv_qp *qp);
void ud_state(struct ud_end *e, enum ibv_qp_state st);
enum ibv_qp_state ud_query(struct ud_end *e);
void ud_ah_attr(struct ud_end *e, struct ibv_ah_attr *a);

/* A signalled SEND to a QP. */
void ud_wr_to(struct ud_end *e, uint32_t qpn, struct ibv_send_wr *wr,
	      struct ibv_sge *sge);
void ud_wr(struct ud_end *e, struct ud_end *to, struct ibv_send_wr *wr,
	   struct ibv_sge *sge);
void ud_send_to(struct ud_end *e, uint32_t qpn, uint64_t id, void *src,
		uint32_t len, unsigned flags);
void ud_send(struct ud_end *e, struct ud_end *to, uint64_t id, void *src,
	     uint32_t len, unsigned flags);
/* Room for len bytes from off on in its memory. */
void ud_recv(struct ud_end *e, uint64_t id, size_t off, uint32_t len);

#endif
