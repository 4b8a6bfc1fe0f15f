/* SPDX-License-Identifier: MIT */
/*
 * check.h - the checks of a request before anything is done with it. Pure.
 */
#ifndef SKEIN_VQP_CHECK_H
#define SKEIN_VQP_CHECK_H

#include "vqp/engine.h"

static inline bool is_message(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
}

static inline bool is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline uint64_t wr_len(const struct ibv_send_wr *wr)
{
	uint64_t n = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		n += wr->sg_list[i].length;
	return n;
}

/* False: post_send() refuses it. */
bool vqp_wr_valid(const struct ibv_send_wr *wr);
/* The status with which the request completes in its turn, without being
 * posted; or 0. */
uint8_t vqp_memory_check(struct vqp_engine *e, const struct ibv_send_wr *wr);

#endif
