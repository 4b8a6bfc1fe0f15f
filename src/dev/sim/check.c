/* SPDX-License-Identifier: MIT */
/*
 * check.c - buffers that are the NIC's, watched in worlds that check.
 *
 * The bytes of a send must not change between the post and the moment when the
 * responder carries the request out. After that they may change, though the
 * completion comes later: docs/protocol/rpc.md, section 1, relies on it. A
 * request that is sent again is not carried out again. The buffers of receives
 * and READs are poisoned when they are posted: code that reads one too early
 * reads nonsense, and a write to it is seen when the bytes come.
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

static void poison(const struct sim_dev *d, const struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++)
		if (sge[i].length && ours(d, &sge[i]))
			memset(sim_ptr(sge[i].addr), POISON, sge[i].length);
}

static bool is_poison(const struct sim_dev *d, const struct ibv_sge *sge, int n)
{
	const unsigned char *p;

	for (int i = 0; i < n; i++) {
		if (!sge[i].length || !ours(d, &sge[i]))
			continue;
		/* The first byte is, and each byte equals the next. */
		p = sim_ptr(sge[i].addr);
		if (p[0] != POISON || memcmp(p, p + 1, sge[i].length - 1))
			return false;
	}
	return true;
}

/* Are the bytes of READs of that length watched? */
static bool watches_read(const struct sim_qp *q, uint32_t len)
{
	uint32_t hollow_from = q->d->nic->net->hollow_from;

	return sim_checking(q->d->w) && (!hollow_from || len < hollow_from);
}

void sim_check_posted(struct sim_qp *q, struct sim_wqe *e)
{
	XXH3_state_t state;

	e->sum = 0;
	if (e->opcode == IBV_WR_RDMA_READ && watches_read(q, e->len))
		poison(q->d, e->sge, e->num_sge);
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

void sim_check_read_lands(const struct sim_qp *q, const struct sim_wqe *e)
{
	if (e->opcode == IBV_WR_RDMA_READ && watches_read(q, e->len) &&
	    !is_poison(q->d, e->sge, e->num_sge))
		sim_blame(
			q->d->w,
			"the buffer of a READ of %u bytes was written to while "
			"it was under way: QP 0x%06x of NIC %u, wr_id 0x%lx",
			e->len, q->ex.qp_base.qp_num, q->d->nic->id,
			(unsigned long)e->wr_id);
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
	if (sim_checking(d->w))
		poison(d, e->sge, e->num_sge);
}

void sim_check_recv_taken(const struct sim_dev *d, const struct sim_rqe *e)
{
	if (sim_checking(d->w) && !is_poison(d, e->sge, e->num_sge))
		sim_blame(d->w,
			  "a posted receive buffer of %u bytes was written to: "
			  "NIC %u, wr_id 0x%lx",
			  e->len, d->nic->id, (unsigned long)e->wr_id);
}
