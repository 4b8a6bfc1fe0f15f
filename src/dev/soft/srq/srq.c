/* SPDX-License-Identifier: MIT */
/*
 * srq.c - the owner's end of shared receive queues: they are created, asked,
 * posted to, and watched for their limit.
 *
 * A poster that finds no receive sets `waiting`, does a membarrier(2) and looks
 * again; post_srq_recv() posts, then reads it: the compiler fence is enough
 * there. Its control thread then rings the QPs that wait.
 */
#include "dev/soft/srq/srq.h"

#include "base/pow2.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <string.h>

static int check_attr(const struct ibv_srq_attr *a)
{
	return a->max_wr < 1 || a->max_wr > SOFT_SRQ_WR_MAX ||
			       a->max_sge > SOFT_SGE_MAX
		       ? -EINVAL
		       : 0;
}

static void srq_layout(struct soft_srq *r, const struct ibv_srq_attr *a,
		       uint32_t *slots)
{
	size_t stride;

	*slots = (uint32_t)doubled_to(4, a->max_wr);
	r->sges = a->max_sge;
	/* whole lines: one peer's to write at a time */
	stride = sizeof(struct shm_slot) + r->sges * sizeof(struct shm_sge);
	r->stride = (uint32_t)((stride + SHM_LINE - 1) & ~(SHM_LINE - 1ul));
	r->area_len = shm_srq_slots_off(*slots) + (size_t)*slots * r->stride;
}

/* s->lock held. */
static int srq_place(struct soft *s, struct soft_srq *r, uint32_t slots)
{
	int err;

	if (s->n_srqs == SOFT_SRQ_MAX)
		return -ENOMEM;
	err = soft_arena_alloc(s, SOFT_ARENA_SRQ, r->area_len, &r->area_off);
	if (err)
		return err;
	r->shm = (struct shm_srq *)(void *)(s->base + r->area_off);
	err = claim_init(&r->c, s->env, shm_srq_claim(r->shm), slots);
	if (err) {
		soft_arena_free(s, SOFT_ARENA_SRQ, r->area_len, r->area_off);
		return err;
	}
	atomic_store(&r->shm->limit_at, SOFT_SRQ_NO_LIMIT);
	atomic_store(&r->shm->waiting, 0);
	atomic_store(&r->shm->voided, 0);
	shm_set(r->shm->stride, r->stride);
	r->slots = (char *)r->shm + shm_srq_slots_off(slots);
	list_add_tail(&s->srqs, &r->link);
	s->n_srqs++;
	return 0;
}

int soft_create_srq(struct dev *dev, struct ibv_pd *pd,
		    struct ibv_srq_init_attr *attr, struct ibv_srq **srq)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_srq *r;
	uint32_t slots;
	int err;

	if (!soft_here(s))
		return -EPERM;
	err = check_attr(&attr->attr);
	if (err)
		return err;
	r = env_alloc_aligned(s->env, SHM_LINE, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->s = s;
	r->pd = soft_pd_of(pd);
	soft_lock_init(&r->post_lock, false);
	soft_lock_init(&r->reap_lock, false);
	srq_layout(r, &attr->attr, &slots);
	err = -ENOMEM;
	r->recv = env_alloc(s->env, slots * sizeof(*r->recv));
	if (!r->recv)
		goto err_srq;
	pthread_mutex_lock(&s->lock);
	err = srq_place(s, r, slots);
	pthread_mutex_unlock(&s->lock);
	if (err)
		goto err_ids;
	r->srq.context = &s->vctx.context;
	r->srq.srq_context = attr->srq_context;
	r->srq.pd = pd;
	soft_pd_get(pd);
	pthread_mutex_init(&r->srq.mutex, NULL);
	pthread_cond_init(&r->srq.cond, NULL);
	attr->attr.max_wr = slots;
	attr->attr.srq_limit = 0;
	*srq = &r->srq;
	return 0;

err_ids:
	env_free(s->env, r->recv);
err_srq:
	env_free(s->env, r);
	return err;
}

int soft_destroy_srq(struct dev *dev, struct ibv_srq *srq)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_srq *r = soft_srq_of(srq);

	if (!soft_here(s))
		return -EPERM;
	pthread_mutex_lock(&s->lock);
	if (r->qps) {
		pthread_mutex_unlock(&s->lock);
		return -EBUSY;
	}
	/* The next life of these cells continues at the positions behind this
	 * one. A UD sender that came late for its QP may still be giving a
	 * receive back. */
	claim_close(&r->c);
	r->given_up |= soft_srq_ud(r) && soft_ud_srq_quiesce(r);
	list_del(&r->link);
	s->n_srqs--;
	s->n_srq_uds -= soft_srq_ud(r) != NULL;
	if (!r->given_up)
		soft_arena_free(s, SOFT_ARENA_SRQ, r->area_len, r->area_off);
	pthread_mutex_unlock(&s->lock);
	soft_async_forget(s, r, &r->async_events);
	soft_pd_put(r->srq.pd);
	soft_ud_srq_free(r);
	claim_fini(&r->c, s->env);
	pthread_mutex_destroy(&srq->mutex);
	pthread_cond_destroy(&srq->cond);
	env_free(s->env, r->recv);
	env_free(s->env, r);
	return 0;
}

/* post_lock held. A claimant of position limit_at or a later one rings this
 * process. */
static void limit_move(struct soft_srq *r)
{
	uint64_t at = SOFT_SRQ_NO_LIMIT;

	if (r->limit)
		at = claim_tail(&r->c) - r->limit;
	/* relaxed: a claimant that reads an old one rings in vain */
	atomic_store_explicit(&r->shm->limit_at, at, memory_order_relaxed);
}

/* post_lock held. */
static void limit_look(struct soft_srq *r)
{
	if (!r->limit || claim_posted(&r->c) >= r->limit)
		return;
	r->limit = 0; /* one event for one modify_srq() */
	limit_move(r);
	soft_async(r->s, IBV_EVENT_SRQ_LIMIT_REACHED, r);
}

void soft_srq_limit(struct soft_srq *r)
{
	soft_lock(&r->post_lock);
	limit_look(r);
	soft_unlock(&r->post_lock);
}

int soft_modify_srq(struct dev *dev, struct ibv_srq *srq,
		    struct ibv_srq_attr *attr, int mask)
{
	struct soft_srq *r = soft_srq_of(srq);

	if (!soft_here(r->s))
		return -EPERM;
	if (mask & IBV_SRQ_MAX_WR)
		return -EOPNOTSUPP; /* no IBV_DEVICE_SRQ_RESIZE */
	if (mask & ~IBV_SRQ_LIMIT)
		return -EINVAL;
	if (!mask)
		return 0;
	if (attr->srq_limit > r->c.slots)
		return -EINVAL;
	soft_lock(&r->post_lock);
	r->limit = attr->srq_limit;
	limit_move(r);
	/* A claimant claims and then reads the limit: it sees this one, or its
	 * claim is seen below. */
	soft_barrier();
	limit_look(r);
	soft_unlock(&r->post_lock);
	return 0;
}

int soft_query_srq(struct dev *dev, struct ibv_srq *srq,
		   struct ibv_srq_attr *attr)
{
	struct soft_srq *r = soft_srq_of(srq);

	if (!soft_here(r->s))
		return -EPERM;
	soft_lock(&r->post_lock);
	attr->max_wr = r->c.slots;
	attr->max_sge = r->sges;
	attr->srq_limit = r->limit;
	soft_unlock(&r->post_lock);
	return 0;
}

static void srq_post(struct soft_srq *r, uint32_t n,
		     const struct ibv_recv_wr *wr)
{
	shm_set(soft_srq_slot(r, n)->dest, 0);
	r->recv[n].wr_id = wr->wr_id;
	r->recv[n].len = soft_slot_fill(soft_srq_slot(r, n), wr);
	atomic_store_explicit(&r->recv[n].is_out, true, memory_order_relaxed);
	claim_post(&r->c, n);
}

/* The control thread, which knows the QPs, rings each peer that waits for a
 * receive. */
static void wake(struct soft_srq *r)
{
	/* See the file head. */
	atomic_signal_fence(memory_order_seq_cst);
	if (likely(!atomic_load_explicit(&r->shm->waiting,
					 memory_order_relaxed)))
		return;
	/* acq_rel: a poster that set it before said before that it is parked;
	 * one that sets it later looks again */
	atomic_exchange(&r->shm->waiting, 0);
	atomic_store(&r->due, true);
	atomic_store(&r->s->srq_due, true);
	soft_kick(r->s);
}

int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad)
{
	struct soft_srq *r = soft_srq_of(srq);
	uint32_t slot;
	int err = 0;

	if (unlikely(!soft_here(r->s))) {
		*bad = wr;
		return EPERM;
	}
	soft_lock(&r->post_lock);
	/* Were there too few? The control thread may look only after this
	 * post. */
	limit_look(r);
	for (; wr; wr = wr->next) {
		if (unlikely((uint32_t)wr->num_sge > r->sges))
			err = EINVAL; /* negative too */
		else if (unlikely(claim_slot_get(&r->c, &slot)))
			err = ENOMEM;
		if (unlikely(err)) {
			*bad = wr;
			break;
		}
		srq_post(r, slot, wr);
	}
	if (r->limit)
		limit_move(r);
	soft_unlock(&r->post_lock);
	wake(r);
	return err;
}

void soft_srq_post_again_seen(struct soft_srq *r, uint32_t slot)
{
	if (!atomic_load(&r->recv[slot].is_out))
		return;
	/* soft_ud_srq_busy() may read it: it found the slot claimed before */
	shm_set(soft_srq_slot(r, slot)->dest, 0);
	soft_lock(&r->post_lock);
	claim_post(&r->c, slot);
	if (r->limit)
		limit_move(r);
	soft_unlock(&r->post_lock);
	wake(r);
}

bool soft_srq_give_back_seen(struct soft_srq *r, uint32_t slot)
{
	uint64_t word = claim_word(&r->c, slot);

	if (!atomic_exchange(&r->recv[slot].is_out, false))
		return false;
	/* relaxed: nobody but us looks at a slot that is ours */
	atomic_store_explicit(&r->c.shm->cell[slot].word,
			      claim_make(claim_pos(word), 0, CLAIM_FREE),
			      memory_order_relaxed);
	soft_lock(&r->reap_lock);
	claim_slot_put(&r->c, slot);
	soft_unlock(&r->reap_lock);
	return true;
}

void soft_srq_post_again(struct soft_srq *r, uint32_t slot)
{
	if (unlikely(soft_srq_ud(r)))
		soft_ud_srq_pass(soft_srq_ud(r), slot);
	soft_srq_post_again_seen(r, slot);
}

void soft_srq_give_back(struct soft_srq *r, uint32_t slot)
{
	if (unlikely(soft_srq_ud(r)))
		soft_ud_srq_pass(soft_srq_ud(r), slot);
	soft_srq_give_back_seen(r, slot);
}

void soft_srqs_service(struct soft *s)
{
	struct list_node *n;
	struct soft_srq *r;
	struct soft_qp *q;
	uint32_t i;

	if (!atomic_exchange(&s->srq_due, false))
		return;
	for (n = s->srqs.next; n != &s->srqs; n = n->next) {
		r = container_of(n, struct soft_srq, link);
		if (!atomic_exchange(&r->due, false))
			continue;
		for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
			q = s->qps[i];
			if (q && q->srq == r && q->far &&
			    atomic_load(&q->far->parked))
				soft_ring(q);
		}
	}
}
