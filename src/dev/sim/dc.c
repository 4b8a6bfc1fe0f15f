/* SPDX-License-Identifier: MIT */
/*
 * dc.c - dynamically connected transport of the simulated device (KRCore,
 * section 3): a DCI has one connection at a time, to the target of its last
 * request, and makes another one by itself.
 *
 * A new connection begins when all answers on the old one have come. It takes
 * model.dc_connect_ns, during which the DCI does nothing else. The target keeps
 * a struct sim_flow for each DCI, until the DCI comes with another connection.
 * (epoch, base) names a connection; both only rise. Messages of an old
 * connection are dropped.
 */
#include "dev/sim/sim_dev.h"

#include <errno.h>

/* --- making ------------------------------------------------------------ */

int sim_create_dci(struct dev *dev, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr,
		   const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	struct ibv_qp_init_attr a = *attr;
	struct sim_qp *q;
	int rc;

	a.qp_type = IBV_QPT_DRIVER;
	a.srq = NULL;
	a.cap.max_recv_wr = a.cap.max_recv_sge = 0;
	if (!a.recv_cq)
		a.recv_cq = a.send_cq;
	rc = sim_qp_new(d, pd, &a, SIM_DCI, &q);
	if (rc)
		return rc;
	q->attr.timeout = o.timeout;
	q->attr.retry_cnt = q->retries = o.retry_cnt;
	q->attr.rnr_retry = q->rnr_retries = o.rnr_retry;
	q->attr.max_rd_atomic = dev_rd_atomic(dev);
	q->ex.qp_base.state = IBV_QPS_RTS;
	sim_control(
		d, model->create_qp_cpu_ns + 3ull * model->modify_cpu_ns,
		(uint64_t)model->create_qp_nic_ns + model->modify_init_nic_ns +
			model->modify_rtr_nic_ns + model->modify_rts_nic_ns);
	attr->cap = a.cap;
	*qp = &q->ex.qp_base;
	return 0;
}

int sim_create_dct(struct dev *dev, struct ibv_pd *pd, struct ibv_cq *cq,
		   struct ibv_srq *srq, uint64_t dc_key, int access,
		   const struct dev_qp_opts *opts, struct ibv_qp **qp)
{
	struct dev_qp_opts o = dev_qp_opts_full(opts);
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	struct ibv_qp_init_attr a = {.send_cq = cq,
				     .recv_cq = cq,
				     .srq = srq,
				     .qp_type = IBV_QPT_DRIVER};
	struct sim_qp *q;
	int rc;

	if (!srq)
		return -EINVAL;
	rc = sim_qp_new(d, pd, &a, SIM_DCT, &q);
	if (rc)
		return rc;
	q->dc_key = dc_key;
	q->attr.qp_access_flags = (unsigned)access;
	q->attr.min_rnr_timer = o.min_rnr_timer;
	q->ex.qp_base.state = IBV_QPS_RTR;
	sim_control(d, model->create_qp_cpu_ns + 2ull * model->modify_cpu_ns,
		    (uint64_t)model->create_qp_nic_ns +
			    model->modify_init_nic_ns +
			    model->modify_rtr_nic_ns);
	*qp = &q->ex.qp_base;
	return 0;
}

/* --- the DCI ----------------------------------------------------------- */

int sim_post_dc(struct dev *dev, struct ibv_qp *qp, struct ibv_send_wr *wr,
		struct ibv_ah *ah, uint32_t dctn, uint64_t dc_key)
{
	struct sim_qp *q = sim_qp_of(qp);
	struct sim_dest dest = {.to = sim_ah_of(ah)->to,
				.qpn = dctn & 0xffffff,
				.dc_key = dc_key};

	(void)dev;
	if (q->kind != SIM_DCI)
		return -EINVAL;
	return -sim_post_all(q, wr, &dest);
}

static bool same_target(const struct sim_dest *a, const struct sim_dest *b)
{
	return a->to == b->to && a->qpn == b->qpn && a->dc_key == b->dc_key;
}

bool sim_dci_ready(struct sim_qp *q, const struct sim_dest *to)
{
	struct sim_nic *nic = q->d->nic;

	if (q->dc_met && same_target(&q->dc, to))
		return true;
	if (q->sq_head != q->sq_next)
		return false;
	q->dc = *to;
	q->dc_met = true;
	q->dc_base = q->sq_next;
	nic->dc_connects++;
	sim_at(q->d->w, &q->tx_ev,
	       sim_now(q->d->w) + nic->net->model.dc_connect_ns);
	return false;
}

/* --- the target -------------------------------------------------------- */

static uint64_t hash(uint64_t key)
{
	return prng_mix(key);
}

static struct sim_flow **place(struct sim_flow **flows, uint32_t cap,
			       uint64_t key)
{
	uint64_t i = hash(key);

	while (flows[i & (cap - 1)] && flows[i & (cap - 1)]->key != key)
		i++;
	return &flows[i & (cap - 1)];
}

static bool grow(struct sim_qp *q)
{
	struct skein_env *env = q->d->dev.env;
	uint32_t cap = q->flows_cap ? 2 * q->flows_cap : 16;
	struct sim_flow **flows =
		env_alloc(env, cap * sizeof(struct sim_flow *));

	if (!flows)
		return false;
	for (uint32_t i = 0; i < q->flows_cap; i++)
		if (q->flows[i])
			*place(flows, cap, q->flows[i]->key) = q->flows[i];
	env_free(env, q->flows);
	q->flows = flows;
	q->flows_cap = cap;
	return true;
}

static struct sim_flow *flow_of(struct sim_qp *q, uint64_t key)
{
	struct sim_flow *f;

	if (q->flows_cap) {
		f = *place(q->flows, q->flows_cap, key);
		if (f)
			return f;
	}
	if (2 * q->n_flows >= q->flows_cap && !grow(q))
		return NULL;
	f = env_alloc(q->d->dev.env, sizeof(*f));
	if (!f)
		return NULL;
	f->key = key;
	*place(q->flows, q->flows_cap, key) = f;
	q->n_flows++;
	return f;
}

struct sim_flow *sim_dct_flow(struct sim_qp *q, const struct sim_msg *m)
{
	struct sim_flow *f =
		flow_of(q, (uint64_t)m->from->id << 32 | m->src_qpn);
	int32_t newer;

	if (!f)
		return NULL;
	newer = (int32_t)(m->src_epoch - f->epoch);
	if (!newer)
		newer = (int32_t)(m->base - f->base);
	if (newer < 0)
		return NULL;
	if (newer > 0) {
		f->epoch = m->src_epoch;
		f->base = f->expect = m->base;
		f->n_results = 0;
		f->broken = false;
	}
	return f;
}

void sim_dct_fini(struct sim_qp *q)
{
	struct skein_env *env = q->d->dev.env;

	for (uint32_t i = 0; i < q->flows_cap; i++)
		env_free(env, q->flows[i]);
	env_free(env, q->flows);
	q->flows = NULL;
	q->flows_cap = q->n_flows = 0;
}
