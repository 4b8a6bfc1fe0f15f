/* SPDX-License-Identifier: MIT */
/*
 * qpsched.h - the receiver's QP scheduler (FLOCK, section 3.4.1): how many QPs
 * of each sender are active, by equation 3.1. Pure: numbers in, numbers out.
 *
 * A sender's utilisation U is the sum of the combining degrees that it reported
 * with its questions for credits since the last distribution. Dormant senders
 * (U = 0) keep one QP. The others share the rest in proportion to U, each at
 * least one and at most as many as it has. Shares are rounded down, and the QPs
 * left over go one by one to the largest remainders (the first of equals). So
 * the sum is the smaller of MAX_AQP and the number of all QPs; it is more than
 * MAX_AQP only when there are more senders than that.
 */
#ifndef SKEIN_RPC_SCHED_QPSCHED_H
#define SKEIN_RPC_SCHED_QPSCHED_H

#include <stdint.h>

/* FLOCK's number, which avoids thrashing of the NIC's cache. It is used where
 * the device does not say how many QPs it serves at full speed
 * (dev_caps.qp_fast). */
#define QPSCHED_MAX_AQP 256u

struct qpsched_sender {
	uint64_t util;
	uint32_t qps; /* QPs of the sender, at least 1 */
	uint32_t aqp; /* result: active ones */
	/* the distribution's own */
	uint32_t rest;
	uint32_t settled;
};

void qpsched_share(struct qpsched_sender *s, unsigned n, unsigned max_aqp);

/* U of a newcomer until it has reported: the mean of the functioning senders,
 * so that it gets their average number of QPs; 1 when there are none. */
uint64_t qpsched_newcomer_util(const struct qpsched_sender *s, unsigned n);

#endif
