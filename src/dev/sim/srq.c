/* SPDX-License-Identifier: MIT */
/*
 * srq.c - shared receive queues of the simulated device. An SRQ is a context in
 * its NIC's cache, as a QP is.
 */
#include "dev/sim/sim_dev.h"

#include <errno.h>

static int check(const struct ibv_srq_attr *a)
{
	return a->max_wr < 1 || a->max_wr > SIM_SRQ_WR_MAX ||
			       a->max_sge > SIM_SGE_MAX
		       ? -EINVAL
		       : 0;
}

int sim_create_srq(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_srq_init_attr *attr, struct ibv_srq **srq)
{
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	struct sim_srq *r;
	int rc = check(&attr->attr);

	if (rc)
		return rc;
	r = env_alloc(dev->env, sizeof(*r));
	if (!r)
		return -ENOMEM;
	rc = sim_recvq_init(&r->rq, dev->env, attr->attr.max_wr,
			    attr->attr.max_sge);
	if (rc) {
		env_free(dev->env, r);
		return rc;
	}
	r->srq.context = dev->verbs;
	r->srq.srq_context = attr->srq_context;
	r->srq.pd = pd;
	r->d = d;
	r->num = ++d->nic->srqs;
	attr->attr.srq_limit = 0;
	list_add_tail(&d->srqs, &r->link);
	sim_control(d, model->create_srq_cpu_ns, model->create_srq_nic_ns);
	*srq = &r->srq;
	return 0;
}

void sim_srq_free(struct sim_srq *r)
{
	struct skein_env *env = r->d->dev.env;

	list_del(&r->link);
	sim_recvq_fini(&r->rq, env);
	env_free(env, r);
}

int sim_destroy_srq(struct dev *dev, struct ibv_srq *srq)
{
	struct sim_srq *r = sim_srq_of(srq);

	if (r->refs)
		return -EBUSY;
	sim_async_drop(r->d, srq);
	sim_srq_free(r);
	sim_control_destroy(sim_dev_of(dev));
	return 0;
}

/* One event for each modify_srq(). */
static void limit_look(struct sim_srq *r)
{
	if (!r->limit || r->rq.tail - r->rq.head >= r->limit)
		return;
	r->limit = 0;
	sim_async(r->d, IBV_EVENT_SRQ_LIMIT_REACHED, &r->srq);
}

void sim_srq_taken(struct sim_srq *r)
{
	limit_look(r);
}

/* Changes the size; the receives in it stay, in their order. */
static int resize(struct sim_srq *r, uint32_t max_wr)
{
	struct skein_env *env = r->d->dev.env;
	uint32_t n = r->rq.tail - r->rq.head, i;
	uint32_t used = r->rq.tail - r->rq.freed;
	struct sim_recvq to;
	int rc;

	if (max_wr < 1 || max_wr > SIM_SRQ_WR_MAX || max_wr < used)
		return -EINVAL;
	rc = sim_recvq_init(&to, env, max_wr, r->rq.max_sge);
	if (rc)
		return rc;
	for (i = 0; i < n; i++) {
		const struct sim_rqe *e =
			&r->rq.e[(r->rq.head + i) & (r->rq.cap - 1)];
		struct ibv_sge *sge = to.e[i].sge;

		to.e[i] = *e;
		to.e[i].sge = sge;
		for (int k = 0; k < e->num_sge; k++)
			sge[k] = e->sge[k];
	}
	to.tail = n;
	to.freed = n - used;
	sim_recvq_fini(&r->rq, env);
	r->rq = to;
	return 0;
}

int sim_modify_srq(struct dev *dev, struct ibv_srq *srq,
		   struct ibv_srq_attr *attr, int mask)
{
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	struct sim_srq *r = sim_srq_of(srq);
	int rc;

	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return -EINVAL;
	if (mask & IBV_SRQ_LIMIT &&
	    attr->srq_limit >
		    (mask & IBV_SRQ_MAX_WR ? attr->max_wr : r->rq.max_wr))
		return -EINVAL;
	sim_control(d, model->modify_cpu_ns, model->modify_nic_ns);
	rc = mask & IBV_SRQ_MAX_WR ? resize(r, attr->max_wr) : 0;
	if (rc)
		return rc;
	if (mask & IBV_SRQ_LIMIT)
		r->limit = attr->srq_limit;
	limit_look(r);
	return 0;
}

int sim_query_srq(struct dev *dev, struct ibv_srq *srq,
		  struct ibv_srq_attr *attr)
{
	struct sim_srq *r = sim_srq_of(srq);

	(void)dev;
	attr->max_wr = r->rq.max_wr;
	attr->max_sge = r->rq.max_sge;
	attr->srq_limit = r->limit;
	return 0;
}

int sim_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad)
{
	struct sim_srq *r = sim_srq_of(srq);

	return sim_recvq_post(&r->rq, r->d, wr, bad);
}
