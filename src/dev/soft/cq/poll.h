/* SPDX-License-Identifier: MIT */
/*
 * poll.h - taking completions from a CQ, one call at a time: start_poll(),
 * next_poll(), end_poll() and the readers of struct ibv_cq_ex.
 */
#ifndef SKEIN_DEV_SOFT_POLL_H
#define SKEIN_DEV_SOFT_POLL_H

#include "dev/soft/cq/cq.h"

/* Fills in what ibv_create_cq_ex() asked for by wc_flags, standard ones. */
void soft_poll_ex_fill(struct soft_cq *c, uint64_t wc_flags, bool single);

#endif
