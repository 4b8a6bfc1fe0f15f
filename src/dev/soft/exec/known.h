/* SPDX-License-Identifier: MIT */
/*
 * known.h - the request that is by far the most: a WRITE of one piece to a
 * mapped region, both of them known already. Nothing but checks of what
 * exec.c's long way has found out before, and the copy.
 *
 * Held together by the same hazard as everything else: see exec.c.
 */
#ifndef SKEIN_DEV_SOFT_KNOWN_H
#define SKEIN_DEV_SOFT_KNOWN_H

#include "dev/soft/exec/copy.h"
#include "dev/soft/qp/qp.h"

static inline bool soft_in_range(const struct soft_xlat *x, uint64_t addr,
				 uint64_t len)
{
	return addr >= x->start && len <= x->len &&
	       addr - x->start <= x->len - len;
}

/* Is it of that form at all? */
static inline bool soft_is_write_1(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_RDMA_WRITE && wr->num_sge == 1;
}

/* For a request of that form. False: nothing was done, the long way decides.
 * The same checks as in exec.c, dispatch() and do_write(); the caller has raised
 * the hazard. */
static inline bool soft_write_known(struct soft_qp *q,
				    const struct ibv_send_wr *wr)
{
	const struct soft_xlat *x =
		&q->xlat[(wr->wr.rdma.rkey >> 16) % SOFT_XLATS];
	const struct ibv_sge *g = wr->sg_list;
	uint64_t addr = wr->wr.rdma.remote_addr;
	uint32_t gate = q->gate_ok;

	if (unlikely((gate & (SHM_GATE_WRITE | SHM_GATE_FIRST)) !=
		     SHM_GATE_WRITE))
		return false;
	/* acquire: the area's fields belong to the gate that was read; as for
	 * the order against the owner, see soft_hazard_on() */
	if (unlikely(atomic_load_explicit(&q->far->gate,
					  memory_order_acquire) != gate))
		return false;
	if (unlikely(g->length == 0 || x->key != wr->wr.rdma.rkey || !x->live ||
		     !x->ptr ||
		     atomic_load_explicit(x->live, memory_order_relaxed) !=
			     x->life ||
		     !(x->access & IBV_ACCESS_REMOTE_WRITE) ||
		     !soft_in_range(x, addr, g->length)))
		return false;
	if (!(wr->send_flags & IBV_SEND_INLINE) &&
	    !soft_mr_local(q->s, q->pd, g->lkey, g->addr, g->length, 0))
		return false;
	soft_copy(x->ptr + (addr - x->start), soft_ptr(g->addr), g->length);
	return true;
}

#endif
