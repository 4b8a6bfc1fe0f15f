/* SPDX-License-Identifier: MIT */
/*
 * states.h - the QP state machine and the timers as the specification has them,
 * for the devices that are ours. No state here.
 */
#ifndef SKEIN_DEV_STATES_H
#define SKEIN_DEV_STATES_H

#include <infiniband/verbs.h>
#include <stdint.h>

/* 0 when the transition and its mask are allowed, else -EINVAL. */
int dev_states_check(enum ibv_qp_type type, enum ibv_qp_state from,
		     enum ibv_qp_state to, int mask);
/* Are the values in range, for a RoCE device of one port that takes
 * rd_atomic_max READs and atomics? Else -EINVAL. */
int dev_states_check_values(const struct ibv_qp_attr *a, int mask,
			    unsigned rd_atomic_max);
void dev_states_take(struct ibv_qp_attr *to, const struct ibv_qp_attr *a,
		     int mask);

/* The opcode of a request's completion, by enum ibv_wr_opcode. */
extern const uint8_t dev_wc_opcode[IBV_WR_SEND_WITH_INV + 1];

/* min_rnr_timer as encoded, in nanoseconds. */
uint64_t dev_rnr_ns(unsigned code);

#endif
