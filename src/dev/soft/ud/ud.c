/* SPDX-License-Identifier: MIT */
/*
 * ud.c - what of a UD QP comes and goes with the QP: its claims in the NIC
 * file, and the wait for senders that are inside one.
 */
#include "dev/soft/ud/ud.h"

#include "base/assert.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#define QUIESCE_PATIENCE_NS 1000000000ull

int soft_ud_new(struct soft_qp *q)
{
	struct skein_env *env = q->s->env;
	struct soft_ud *u = env_alloc(env, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	list_init(&u->age);
	list_init(&u->groups);
	u->cast_end = &u->cast;
	list_init(&u->busy);
	q->ud = u;
	if (q->srq) {
		err = 0; /* made in soft_ud_place() */
	} else {
		err = claim_alloc(&u->claim, env, q->rq_slots);
		if (!err)
			err = outs_init(&u->outs, env, &u->claim, false);
	}
	if (err)
		soft_ud_free(q);
	return err;
}

void soft_ud_free(struct soft_qp *q)
{
	struct skein_env *env = q->s->env;

	if (!q->ud)
		return;
	claim_fini(&q->ud->claim, env);
	outs_fini(&q->ud->outs, env);
	env_free(env, q->ud);
	q->ud = NULL;
}

int soft_ud_place(struct soft *s, struct soft_qp *q)
{
	struct soft_ud *u = q->ud;
	int err;

	if (q->srq) {
		err = soft_ud_srq_new(q->srq);
		if (!err)
			soft_ud_srq_join(q);
		return err;
	}
	err = soft_arena_alloc(s, SOFT_ARENA_CLAIM, claim_bytes(q->rq_slots),
			       &u->claim_off);
	if (err)
		return err;
	u->claim.shm = (struct shm_claim *)(void *)(s->base + u->claim_off);
	shm_set(q->self->claim_off, (uint32_t)(u->claim_off / SHM_PAGE));
	soft_ud_reset_recv(q);
	return 0;
}

void soft_ud_unplace(struct soft *s, struct soft_qp *q, bool keep_area)
{
	if (q->srq)
		soft_ud_srq_leave(q);
	else if (!keep_area)
		soft_arena_free(s, SOFT_ARENA_CLAIM, claim_bytes(q->rq_slots),
				q->ud->claim_off);
}

void soft_ud_shut(struct soft_qp *q)
{
	if (q->srq) /* the gate is all */
		return;
	soft_lock_revoke(&q->rq_lock);
	claim_close(&q->ud->claim);
	soft_lock_return(&q->rq_lock);
}

/* Senders that claimed before position since. dest 0: for any QP of the SRQ. */
struct inside {
	struct soft_qp *q;  /* of its own queue, or */
	struct soft_srq *r; /* of an SRQ */
	uint32_t dest;
	uint64_t since;
};

static bool is_inside(const struct inside *in)
{
	return in->r ? soft_ud_srq_busy(in->r, in->dest, in->since)
		     : claim_busy(&in->q->ud->claim, in->since);
}

bool soft_ud_quiet(struct soft_qp *q)
{
	struct inside in = {q, q->srq, q->ud->dest, UINT64_MAX};

	return !is_inside(&in);
}

bool soft_ud_fault(struct soft_qp *q)
{
	if (q->srq)
		return soft_ud_srq_fault(q);
	/* acquire: pairs with say_fault() */
	return atomic_load_explicit(&q->ud->claim.shm->fault,
				    memory_order_acquire) != 0;
}

static int wait_out(struct soft *s, const struct inside *in, bool locked)
{
	uint64_t start = env_now_ns(s->env);
	struct timespec nap = {.tv_nsec = 50000};
	unsigned round;

	for (round = 0; is_inside(in); round++) {
		if (round < 100) {
			sched_yield();
			continue;
		}
		/* The control thread sweeps dead senders, unless it waits for
		 * the lock that our caller holds. */
		if (locked)
			soft_conns_look(s);
		if (env_now_ns(s->env) - start > QUIESCE_PATIENCE_NS)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
	return 0;
}

int soft_ud_quiesce(struct soft_qp *q, bool locked)
{
	struct inside in = {q, q->srq, q->ud->dest,
			    claim_tail(q->srq ? &q->srq->c : &q->ud->claim)};

	return wait_out(q->s, &in, locked);
}

int soft_ud_srq_quiesce(struct soft_srq *r)
{
	struct inside in = {NULL, r, 0, claim_tail(&r->c)};

	return soft_srq_ud(r) ? wait_out(r->s, &in, true) : 0;
}

void soft_ud_swept(struct soft *s, uint32_t claimant)
{
	struct list_node *n;
	struct soft_qp *q;
	uint32_t i;

	/* First: the QPs are told to look below. */
	for (n = s->srqs.next; n != &s->srqs; n = n->next)
		soft_ud_srq_swept(container_of(n, struct soft_srq, link),
				  claimant);
	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || !q->ud)
			continue;
		/* It may have died before the event of a datagram, or between
		 * the event and its count. */
		if (soft_ud_sweep_recv(q, claimant))
			soft_cq_fire(soft_cq_of(q->ex.qp_base.recv_cq));
		soft_bells_ask_cq(soft_cq_of(q->ex.qp_base.recv_cq));
	}
}
