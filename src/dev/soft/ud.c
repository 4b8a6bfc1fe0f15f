/* SPDX-License-Identifier: MIT */
/*
 * ud.c - what of a UD QP comes and goes with the QP: its claims in the NIC
 * file, and the wait for those who are inside one.
 */
#include "dev/soft/ud.h"

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

	if (!u)
		return -ENOMEM;
	list_init(&u->busy);
	u->out = env_alloc(env, (q->rq_slots + 1) * sizeof(*u->out));
	if (!u->out || claim_alloc(&u->claim, env, q->rq_slots)) {
		env_free(env, u->out);
		env_free(env, u);
		return -ENOMEM;
	}
	q->ud = u;
	return 0;
}

void soft_ud_free(struct soft_qp *q)
{
	struct skein_env *env = q->s->env;

	if (!q->ud)
		return;
	claim_fini(&q->ud->claim, env);
	env_free(env, q->ud->out);
	env_free(env, q->ud);
	q->ud = NULL;
}

int soft_ud_place(struct soft *s, struct soft_qp *q)
{
	struct soft_ud *u = q->ud;
	int err;

	err = soft_arena_alloc(s, SOFT_ARENA_CLAIM, claim_bytes(q->rq_slots),
			       &u->claim_off);
	if (err)
		return err;
	u->claim.shm = (struct shm_claim *)(void *)(s->base + u->claim_off);
	q->self->claim_off = (uint32_t)(u->claim_off / SHM_PAGE);
	soft_ud_reset_recv(q);
	return 0;
}

void soft_ud_unplace(struct soft *s, struct soft_qp *q, bool keep_area)
{
	if (!keep_area)
		soft_arena_free(s, SOFT_ARENA_CLAIM, claim_bytes(q->rq_slots),
				q->ud->claim_off);
}

void soft_ud_shut(struct soft_qp *q)
{
	soft_lock_revoke(&q->rq_lock);
	claim_close(&q->ud->claim);
	soft_lock_return(&q->rq_lock);
}

bool soft_ud_quiet(struct soft_qp *q)
{
	return !claim_busy(&q->ud->claim, UINT64_MAX);
}

bool soft_ud_fault(struct soft_qp *q)
{
	/* acquire: pairs with say_fault() */
	return atomic_load_explicit(&q->ud->claim.shm->fault,
				    memory_order_acquire) != 0;
}

int soft_ud_quiesce(struct soft_qp *q, bool locked)
{
	uint64_t since = claim_tail(&q->ud->claim);
	uint64_t start = env_now_ns(q->s->env);
	struct timespec nap = {.tv_nsec = 50000};
	unsigned round;

	for (round = 0; claim_busy(&q->ud->claim, since); round++) {
		if (round < 100) {
			sched_yield();
			continue;
		}
		/* The control thread sweeps the dead, unless it waits for
		 * the lock that our caller holds. */
		if (locked)
			soft_conns_look(q->s);
		if (env_now_ns(q->s->env) - start > QUIESCE_PATIENCE_NS)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
	return 0;
}

void soft_ud_swept(struct soft *s, uint32_t claimant)
{
	struct soft_qp *q;
	uint32_t i;

	for (i = 0; i < s->n_blocks * SHM_BLOCK_QPS; i++) {
		q = s->qps[i];
		if (!q || !q->ud)
			continue;
		soft_ud_sweep_recv(q, claimant);
		/* or between FIRED and the count of the channel */
		if (q->ex.qp_base.recv_cq->channel)
			soft_ring_again(q->ex.qp_base.recv_cq->channel);
	}
}
