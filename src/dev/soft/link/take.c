/* SPDX-License-Identifier: MIT */
/*
 * take.c - see take.h.
 */
#include "dev/soft/link/take.h"

#include "dev/soft/exec/copy.h"
#include "dev/soft/link/dma.h"
#include "dev/soft/srq/srq.h"

bool link_take(struct soft_qp *q, struct link_take *t)
{
	struct soft_srq *r = q->srq;
	struct shm_claim *c = r->c.shm;
	int err;

	/* Another claim is in the way: then that one has moved on. */
	do {
		t->pos = claim_head(c);
		err = claim_look(c, r->c.slots, t->pos, &t->slot);
		if (err == -ENOENT)
			return false;
	} while (err || !claim_take(c, t->pos, t->slot, q->srq_id));
	/* relaxed: after the claim, a full fence, as in srq/take.c */
	if (t->pos >=
	    atomic_load_explicit(&r->shm->limit_at, memory_order_relaxed))
		soft_ask_service(q->s, q->idx);
	return true;
}

struct shm_slot *link_take_slot(struct soft_qp *q, const struct link_take *t)
{
	return soft_srq_slot(q->srq, t->slot);
}

int link_take_put(struct soft_qp *q, const struct shm_slot *slot, uint64_t at,
		  const uint8_t *src, size_t len)
{
	const struct soft_srq *r = q->srq;
	uint32_t most = r ? r->sges : q->rq_sges, i;
	uint32_t n = shm_once(slot->num_sge);
	uint64_t to;
	struct shm_sge g;
	size_t part;

	for (i = 0; len && i < n && i < most; i++) {
		g = shm_sge_once(&slot->sge[i]);
		if (at >= g.len) {
			at -= g.len;
			continue;
		}
		part = g.len - at < len ? g.len - at : len;
		to = soft_mr_here(q->s, g.lkey, g.addr + at);
		if (!soft_mr_local(q->s, r ? r->pd : q->pd, g.lkey, to, part,
				   IBV_ACCESS_LOCAL_WRITE))
			return IBV_WC_LOC_PROT_ERR;
		dma_begin();
		soft_copy_body(soft_ptr(to), src, part);
		dma_end();
		src += part;
		len -= part;
		at = 0;
	}
	return len ? IBV_WC_LOC_LEN_ERR : 0;
}

void link_take_done(struct soft_qp *q, const struct link_take *t, uint32_t n)
{
	_Atomic uint32_t *ring = (_Atomic uint32_t *)(void *)q->self->slots;
	uint32_t slots = q->srq->c.slots;

	claim_done(q->srq->c.shm, t->pos, t->slot, q->srq_id);
	/* release: whoever sees the entry sees DONE; pairs with order.c */
	atomic_store_explicit(&ring[n & (slots - 1)],
			      shm_srq_entry(n, slots, t->slot),
			      memory_order_release);
}
