/* SPDX-License-Identifier: MIT */
/*
 * dct.c - the target: a receiving QP on an SRQ, and the table in which senders
 * say that they are inside the memory of this device.
 *
 * The table is one for all targets of a device, made with the first of them.
 * A sender that dies inside leaves an odd word under its claimant's id; the end
 * of its control connection sweeps it.
 */
#include "dev/soft/dc/dc.h"
#include "dev/soft/ud/ud.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define QUIESCE_PATIENCE_NS 1000000000ull

/* s->lock held. */
static int table_make(struct soft *s)
{
	uint64_t off;
	int err;

	if (s->inside)
		return 0;
	err = soft_arena_alloc(s, SOFT_ARENA_INSIDE,
			       DC_INSIDE_MAX * sizeof(struct dc_inside), &off);
	if (err)
		return err;
	s->inside = (struct dc_inside *)(void *)(s->base + off);
	s->inside_off = off;
	return 0;
}

int soft_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		    struct ibv_srq *srq, uint64_t dc_key, int access,
		    const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr a = {.send_cq = cq,
				     .recv_cq = cq,
				     .srq = srq,
				     .qp_type = IBV_QPT_DRIVER};
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct soft *s = soft_of_dev(dev);
	struct soft_qp *q;
	int err;

	if (!soft_here(s))
		return -EPERM;
	if (!cq || !srq || soft_pd_of(srq->pd) != soft_pd_of(pd))
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	err = table_make(s);
	pthread_mutex_unlock(&s->lock);
	if (!err)
		err = soft_qp_make(s, pd, &a, 0, &q);
	if (err)
		return err;
	q->attr.qp_access_flags = (unsigned)access;
	q->attr.min_rnr_timer = o.min_rnr_timer;
	shm_set(q->self->dc_key, dc_key);
	shm_set(q->self->inside_off, (uint32_t)(s->inside_off / SHM_PAGE));
	soft_qp_begin(q, IBV_QPS_RTR);
	*qp = &q->ex.qp_base;
	return 0;
}

/* acquire: pairs with soft_hazard_off(): the copy is done */
static uint32_t hazard_of(const struct dc_inside *w)
{
	return atomic_load_explicit(&w->hazard, memory_order_acquire);
}

static int wait_out(struct soft *s, const struct dc_inside *w, bool locked)
{
	struct timespec nap = {.tv_nsec = 50000};
	uint64_t start = 0, now;
	uint32_t was = hazard_of(w);
	unsigned round;

	if (!(was & 1))
		return 0;
	for (round = 0; hazard_of(w) == was; round++) {
		if (round < 100) {
			sched_yield();
			continue;
		}
		/* The control thread sweeps dead senders, unless it waits for
		 * the lock that our caller holds. */
		if (locked)
			soft_conns_look(s);
		now = env_now_ns(s->env);
		start = start ? start : now;
		if (now - start > QUIESCE_PATIENCE_NS)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
	return 0;
}

int soft_dc_quiesce(struct soft *s, bool locked)
{
	uint32_t i;
	int err = 0;

	for (i = 0; s->inside && i < DC_INSIDE_MAX && !err; i++)
		err = wait_out(s, &s->inside[i], locked);
	return err;
}

bool soft_dc_quiet(struct soft *s)
{
	uint32_t i;

	for (i = 0; s->inside && i < DC_INSIDE_MAX; i++)
		if (hazard_of(&s->inside[i]) & 1)
			return false;
	return true;
}

void soft_dc_swept(struct soft *s, uint32_t claimant)
{
	uint32_t i;

	for (i = 0; s->inside && i < DC_INSIDE_MAX; i++) {
		if (atomic_load(&s->inside[i].by) != claimant)
			continue;
		atomic_store(&s->inside[i].hazard, 0);
		atomic_store(&s->inside[i].by, 0);
	}
}
