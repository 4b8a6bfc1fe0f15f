/* SPDX-License-Identifier: MIT */
/*
 * wr.h - the ibv_wr_* table of a QP, where ibv_create_qp_ex() asked for one.
 */
#ifndef SKEIN_DEV_SOFT_WR_H
#define SKEIN_DEV_SOFT_WR_H

#include "dev/soft/qp/qp.h"

/* -EOPNOTSUPP: an operation in ops (IBV_QP_EX_WITH_*) that the transport or
 * this device does not have. */
int soft_wrs_check(enum ibv_qp_type type, uint64_t ops);
int soft_wrs_new(struct soft_qp *q, uint64_t ops);
void soft_wrs_free(struct soft_qp *q);

/* send.c: the n requests from wr on, all or none: 0 or an errno */
int soft_post_all(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t n);

#endif
