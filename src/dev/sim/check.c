/* SPDX-License-Identifier: MIT */
/*
 * check.c - buffers that are the NIC's, watched in worlds that check.
 *
 * The bytes of a send must not change between the post and the moment when the
 * responder carries the request out. After that they may change, though the
 * completion comes later: docs/protocol/rpc.md, section 1, relies on it. A
 * request that is sent again is not carried out again. A receive's buffer is
 * poisoned when it is posted: code that reads it too early reads nonsense, and
 * a write to it is seen when a message comes.
 *
 * This file does not look at addresses that the NIC will refuse.
 */
#include "dev/sim/sim_dev.h"

#include <string.h>
/* For a state on the stack. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#define POISON 0xa6

static bool ours(const struct sim_dev *d, const struct ibv_sge *sge)
{
	const struct sim_nic *nic = d->nic;
	uint32_t i = sge->lkey >> 8;
	const struct sim_mr *m = i < nic->mrs_cap ? nic->mrs[i] : NULL;
	uint64_t off;

	if (!m || m->mr.lkey != sge->lkey || m->d != d)
		return false;
	off = sge->addr - (uintptr_t)m->mr.addr;
	return off <= m->mr.length && sge->length <= m->mr.length - off;
}

void sim_check_posted(struct sim_qp *q, struct sim_wqe *e)
{
	XXH3_state_t state;

	e->sum = 0;
	if (!sim_checking(q->d->w) || e->flags & IBV_SEND_INLINE || !e->len ||
	    e->opcode == IBV_WR_RDMA_READ ||
	    e->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    e->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return;
	XXH3_64bits_reset(&state);
	for (int i = 0; i < e->num_sge; i++) {
		if (!ours(q->d, &e->sge[i]))
			return;
		XXH3_64bits_update(&state, sim_ptr(e->sge[i].addr),
				   e->sge[i].length);
	}
	e->sum = XXH3_64bits_digest(&state);
}

void sim_check_carried(const struct sim_qp *q, const struct sim_msg *m)
{
	const unsigned char *p = m->data + (m->kind == SIM_UD ? DEV_GRH : 0);

	if (m->sum && XXH3_64bits(p, m->len) != m->sum)
		sim_blame(
			q->d->w,
			"a send buffer of %u bytes was modified before it was "
			"sent: QP 0x%06x of NIC %u, opcode %u, request %u",
			m->len, m->src_qpn, m->from->id, m->opcode, m->num);
}

void sim_check_recv_posted(const struct sim_dev *d, const struct sim_rqe *e)
{
	if (!sim_checking(d->w))
		return;
	for (int i = 0; i < e->num_sge; i++)
		if (e->sge[i].length && ours(d, &e->sge[i]))
			memset(sim_ptr(e->sge[i].addr), POISON,
			       e->sge[i].length);
}

void sim_check_recv_taken(const struct sim_dev *d, const struct sim_rqe *e)
{
	const unsigned char *p;

	for (int i = 0; sim_checking(d->w) && i < e->num_sge; i++) {
		if (!e->sge[i].length || !ours(d, &e->sge[i]))
			continue;
		p = sim_ptr(e->sge[i].addr);
		/* Are all bytes poison? The first one is, and each byte equals
		 * the next. */
		if (p[0] == POISON && !memcmp(p, p + 1, e->sge[i].length - 1))
			continue;
		sim_blame(d->w,
			  "a posted receive buffer of %u bytes was written to: "
			  "NIC %u, wr_id 0x%lx",
			  e->sge[i].length, d->nic->id,
			  (unsigned long)e->wr_id);
	}
}
