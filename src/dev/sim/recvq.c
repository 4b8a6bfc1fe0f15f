/* SPDX-License-Identifier: MIT */
/*
 * recvq.c - receives in the order of posting: a QP's own, or an SRQ's.
 */
#include "dev/sim/sim_dev.h"

#include "base/pow2.h"

#include <errno.h>

int sim_recvq_init(struct sim_recvq *r, struct skein_env *env, uint32_t max_wr,
		   uint32_t max_sge)
{
	r->cap = pow2_at_least(max_wr);
	r->max_wr = max_wr;
	r->max_sge = max_sge;
	r->head = r->tail = r->freed = 0;
	r->e = env_alloc(env, r->cap * sizeof(*r->e));
	r->sge = env_alloc(env, (size_t)r->cap * max_sge * sizeof(*r->sge));
	if (!r->e || !r->sge) {
		sim_recvq_fini(r, env);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < r->cap; i++)
		r->e[i].sge = &r->sge[(size_t)i * max_sge];
	return 0;
}

void sim_recvq_fini(struct sim_recvq *r, struct skein_env *env)
{
	env_free(env, r->e);
	env_free(env, r->sge);
	r->e = NULL;
	r->sge = NULL;
}

static int post_one(struct sim_recvq *r, const struct sim_dev *d,
		    const struct ibv_recv_wr *wr)
{
	struct sim_rqe *e;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > r->max_sge)
		return EINVAL;
	if (r->tail - r->freed >= r->max_wr)
		return ENOMEM;
	e = &r->e[r->tail++ & (r->cap - 1)];
	e->wr_id = wr->wr_id;
	e->num_sge = wr->num_sge;
	e->len = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		e->sge[i] = wr->sg_list[i];
		e->len += wr->sg_list[i].length;
	}
	sim_check_recv_posted(d, e);
	return 0;
}

int sim_recvq_post(struct sim_recvq *r, struct sim_dev *d,
		   struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	const struct nic_model *model = &d->nic->net->model;
	uint64_t ns = model->cpu_post;
	int rc = 0;

	for (; wr && !rc; wr = wr->next) {
		rc = post_one(r, d, wr);
		if (rc)
			*bad = wr;
		ns += model->cpu_wr;
	}
	sim_charge(d->w, ns);
	return rc;
}
