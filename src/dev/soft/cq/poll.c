/* SPDX-License-Identifier: MIT */
/*
 * poll.c - the extended way to poll: one completion at a time, its fields read
 * by calls.
 *
 * From start_poll() to end_poll() the CQ belongs to the calling thread, among
 * threads that poll in this way, under a lock of its own. The CQ's lock is
 * taken for one completion only: the caller may post between two of them, and
 * posting completes.
 */
#include "dev/soft/cq/poll.h"

#include <errno.h>

static struct soft_cq *of(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct soft_cq, ex);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct soft_cq *c = of(ex);
	int n = ibv_poll_cq((struct ibv_cq *)(void *)ex, 1, &c->cur);

	if (n < 0)
		return -n;
	if (n == 0)
		return ENOENT;
	ex->wr_id = c->cur.wr_id;
	ex->status = c->cur.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	soft_lock(&of(ex)->poll_lock);
	err = next_poll(ex);
	if (err) /* then nobody calls end_poll() */
		soft_unlock(&of(ex)->poll_lock);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	soft_unlock(&of(ex)->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return of(ex)->cur.dlid_path_bits;
}

void soft_poll_ex_fill(struct soft_cq *c, uint64_t wc_flags, bool single)
{
	struct ibv_cq_ex *x = &c->ex;

	soft_lock_init(&c->poll_lock, single);
	x->start_poll = start_poll;
	x->next_poll = next_poll;
	x->end_poll = end_poll;
	x->read_opcode = read_opcode;
	x->read_vendor_err = read_vendor_err;
	x->read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		x->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		x->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		x->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		x->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		x->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		x->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		x->read_dlid_path_bits = read_dlid_path_bits;
}
