/* SPDX-License-Identifier: MIT */
/*
 * check.c - checks of the user's requests. A request that makes no sense is
 * refused; a request that names memory that is not there ends in error, without
 * touching a shared queue pair.
 */
#include "vqp/check.h"

#define FLAGS                                                      \
	(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | \
	 IBV_SEND_INLINE)

bool vqp_wr_valid(const struct ibv_send_wr *wr)
{
	uint64_t len;

	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		break;
	default:
		return false;
	}
	if (wr->send_flags & ~(unsigned)FLAGS || wr->num_sge < 0 ||
	    wr->num_sge > (int)VQP_SGES || (wr->num_sge && !wr->sg_list))
		return false;
	len = wr_len(wr);
	if (wr->send_flags & IBV_SEND_INLINE &&
	    (len > VQP_INLINE || wr->opcode == IBV_WR_RDMA_READ ||
	     is_atomic(wr)))
		return false;
	if (is_atomic(wr))
		return len == 8;
	return len <= MSG_MAX;
}

uint8_t vqp_memory_check(struct vqp_engine *e, const struct ibv_send_wr *wr)
{
	bool write = wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr);
	const struct ibv_sge *g = wr->sg_list;
	int i;

	for (i = 0; i < wr->num_sge; i++, g++) {
		if (wr->send_flags & IBV_SEND_INLINE || !g->length)
			continue;
		if (!e->conf.port->local_ok(e->conf.arg, g->lkey, g->addr,
					    g->length, write))
			return IBV_WC_LOC_PROT_ERR;
	}
	if (is_atomic(wr) && wr->wr.atomic.remote_addr & 7)
		return IBV_WC_REM_INV_REQ_ERR;
	return 0;
}
