/* SPDX-License-Identifier: MIT */
/*
 * take.c - see take.h.
 */
#include "dev/soft/link/take.h"

#include "dev/soft/srq/srq.h"

bool link_take(struct soft_qp *q, struct link_take *t)
{
	struct soft_srq *r = q->srq;
	struct shm_claim *c = r->c.shm;
	int err;

	/* Whoever is in the way gets on: each round is somebody's claim. */
	do {
		t->pos = claim_head(c);
		err = claim_look(c, r->c.slots, t->pos, &t->slot);
		if (err == -ENOENT)
			return false;
	} while (err || !claim_take(c, t->pos, t->slot, q->srq_id));
	/* relaxed: after the claim, a full fence, as in srq/take.c */
	if (t->pos >=
	    atomic_load_explicit(&r->shm->limit_at, memory_order_relaxed))
		soft_attend(q->s, q->idx);
	return true;
}

struct shm_slot *link_take_slot(struct soft_qp *q, const struct link_take *t)
{
	return soft_srq_slot(q->srq, t->slot);
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
