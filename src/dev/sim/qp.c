/* SPDX-License-Identifier: MIT */
/*
 * qp.c - queue pairs of the simulated device: life and state machine.
 *
 * RC, UC, UD; DCIs and DCTs begin here too (dc.c). A QPN is index + 1 in the
 * NIC's table, used again as late as the table allows.
 */
#include "dev/sim/sim_dev.h"

#include "base/pow2.h"
#include "base/assert.h"
#include "dev/states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QPS_MAX (1u << 22)
#define TAG_TX 18u
#define TAG_TIMER 19u

static int qpn_take(struct sim_nic *nic, struct sim_qp *q)
{
	uint32_t cap = nic->qps_cap ? 2 * nic->qps_cap : 64;
	struct sim_qp **qps;

	/* Half of the table stays empty, so that numbers rest. */
	if (2 * nic->n_qps >= nic->qps_cap) {
		if (cap > QPS_MAX)
			return -ENOMEM;
		qps = realloc(nic->qps, cap * sizeof(struct sim_qp *));
		if (!qps)
			return -ENOMEM;
		memset(qps + nic->qps_cap, 0,
		       (cap - nic->qps_cap) * sizeof(struct sim_qp *));
		nic->qps = qps;
		nic->qp_next = nic->qps_cap;
		nic->qps_cap = cap;
	}
	do
		nic->qp_next = (nic->qp_next + 1) % nic->qps_cap;
	while (nic->qps[nic->qp_next]);
	nic->qps[nic->qp_next] = q;
	nic->n_qps++;
	q->ex.qp_base.qp_num = nic->qp_next + 1;
	return 0;
}

struct sim_qp *sim_qp_find(struct sim_nic *nic, uint32_t qpn)
{
	return qpn && qpn <= nic->qps_cap ? nic->qps[qpn - 1] : NULL;
}

static void queues_free(struct sim_qp *q)
{
	struct skein_env *env = q->d->dev.env;

	env_free(env, q->sq);
	env_free(env, q->sq_sge);
	env_free(env, q->sq_data);
	env_free(env, q->sq_dest);
	sim_recvq_fini(&q->rq, env);
}

static int queues_new(struct sim_qp *q)
{
	struct skein_env *env = q->d->dev.env;
	const struct ibv_qp_cap *cap = &q->init.cap;
	bool dest = q->kind == SIM_UD || q->kind == SIM_DCI;
	uint32_t i;

	q->sq_cap = pow2_at_least(cap->max_send_wr);
	q->sq = env_alloc(env, q->sq_cap * sizeof(*q->sq));
	q->sq_sge = env_alloc(env, (size_t)q->sq_cap * cap->max_send_sge *
					   sizeof(struct ibv_sge));
	q->sq_data = env_alloc(env, (size_t)q->sq_cap * cap->max_inline_data);
	q->sq_dest =
		env_alloc(env, (dest ? q->sq_cap : 0) * sizeof(*q->sq_dest));
	if (!q->sq || !q->sq_sge || !q->sq_data || !q->sq_dest ||
	    sim_recvq_init(&q->rq, env, q->srq ? 0 : cap->max_recv_wr,
			   q->srq ? 0 : cap->max_recv_sge))
		return -ENOMEM;
	for (i = 0; i < q->sq_cap; i++) {
		q->sq[i].sge = &q->sq_sge[(size_t)i * cap->max_send_sge];
		q->sq[i].data = &q->sq_data[(size_t)i * cap->max_inline_data];
		q->sq[i].dest = dest ? &q->sq_dest[i] : NULL;
	}
	return 0;
}

static int kind_of(enum ibv_qp_type type, enum sim_kind *kind)
{
	switch (type) {
	case IBV_QPT_RC:
		*kind = SIM_RC;
		return 0;
	case IBV_QPT_UC:
		*kind = SIM_UC;
		return 0;
	case IBV_QPT_UD:
		*kind = SIM_UD;
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

static int check_init(const struct ibv_pd *pd, const struct ibv_qp_init_attr *a)
{
	const struct sim_dev *d = sim_dev_of_ctx(pd->context);

	if (!a->send_cq || !a->recv_cq ||
	    a->cap.max_send_wr > d->nic->net->send_wr_max ||
	    a->cap.max_recv_wr > SIM_WR_MAX ||
	    a->cap.max_send_sge > SIM_SGE_MAX ||
	    a->cap.max_recv_sge > SIM_SGE_MAX ||
	    a->cap.max_inline_data > SIM_INLINE_MAX)
		return -EINVAL;
	return a->srq && a->srq->pd != pd ? -EINVAL : 0;
}

static void base_init(struct sim_qp *q, struct ibv_pd *pd,
		      const struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = &q->ex.qp_base;

	qp->context = q->d->dev.verbs;
	qp->pd = pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_context = attr->qp_context;
	qp->qp_type = attr->qp_type;
	qp->state = IBV_QPS_RESET;
	q->tx_ev.fn = sim_qp_tx;
	q->tx_ev.tag = TAG_TX;
	q->timer.fn = sim_qp_timer;
	q->timer.tag = TAG_TIMER;
}

int sim_qp_new(struct sim_dev *d, struct ibv_pd *pd,
	       struct ibv_qp_init_attr *attr, enum sim_kind kind,
	       struct sim_qp **qp)
{
	struct skein_env *env = d->dev.env;
	struct sim_qp *q;
	int rc = check_init(pd, attr);

	if (rc)
		return rc;
	q = env_alloc(env, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->d = d;
	q->kind = kind;
	q->epoch = ++d->nic->epochs;
	q->srq = attr->srq ? sim_srq_of(attr->srq) : NULL;
	if (q->srq)
		attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
	q->init = *attr;
	rc = queues_new(q);
	if (!rc)
		rc = qpn_take(d->nic, q);
	if (rc) {
		queues_free(q);
		env_free(env, q);
		return rc;
	}
	base_init(q, pd, attr);
	sim_cq_of(attr->send_cq)->refs++;
	sim_cq_of(attr->recv_cq)->refs++;
	if (q->srq)
		q->srq->refs++;
	list_add_tail(&d->qps, &q->link);
	*qp = q;
	return 0;
}

int sim_create_qp(struct dev *dev, struct ibv_pd *pd,
		  struct ibv_qp_init_attr *attr, unsigned flags,
		  struct ibv_qp **qp)
{
	struct sim_dev *d = sim_dev_of(dev);
	const struct nic_model *model = &d->nic->net->model;
	enum sim_kind kind;
	struct sim_qp *q;
	int rc = kind_of(attr->qp_type, &kind);

	(void)flags;
	if (!rc)
		rc = sim_qp_new(d, pd, attr, kind, &q);
	if (rc)
		return rc;
	sim_control(d, model->create_qp_cpu_ns, model->create_qp_nic_ns);
	*qp = &q->ex.qp_base;
	return 0;
}

static void stop(struct sim_qp *q)
{
	sim_cancel(q->d->w, &q->tx_ev);
	sim_cancel(q->d->w, &q->timer);
	q->rnr_wait = false;
}

void sim_qp_to_err(struct sim_qp *q)
{
	if (q->ex.qp_base.state == IBV_QPS_ERR)
		return;
	q->ex.qp_base.state = IBV_QPS_ERR;
	stop(q);
	sim_flush_send(q);
	if (q->srq)
		sim_async(q->d, IBV_EVENT_QP_LAST_WQE_REACHED, &q->ex.qp_base);
	else
		sim_flush_recv(q);
}

static void to_reset(struct sim_qp *q)
{
	stop(q);
	sim_cq_purge(sim_cq_of(q->init.send_cq), q->ex.qp_base.qp_num);
	sim_cq_purge(sim_cq_of(q->init.recv_cq), q->ex.qp_base.qp_num);
	q->epoch = ++q->d->nic->epochs;
	q->held[0] = q->held[1] = 0;
	q->sq_freed = q->sq_head = q->sq_next = q->sq_tail = 0;
	q->rq.head = q->rq.tail = q->rq.freed = 0;
	q->reads = 0;
	memset(&q->flow, 0, sizeof(q->flow));
	q->met = q->sqd_notify = false;
	q->far = NULL;
	memset(&q->attr, 0, sizeof(q->attr));
	q->ex.qp_base.state = IBV_QPS_RESET;
}

static int to_rtr(struct sim_qp *q, const struct ibv_qp_attr *a)
{
	struct sim_nic *far;

	if (q->kind == SIM_UD)
		return 0;
	far = sim_nic_by_gid(q->d->nic->net, &a->ah_attr.grh.dgid);
	/* As a route that does not exist. */
	if (!far)
		return -EHOSTUNREACH;
	q->far = far;
	return 0;
}

static void entered(struct sim_qp *q, enum ibv_qp_state to,
		    const struct ibv_qp_attr *a, int mask)
{
	q->ex.qp_base.state = to;
	q->attr.qp_state = to;
	if (to == IBV_QPS_RTS) {
		q->retries = q->attr.retry_cnt;
		q->rnr_retries = q->attr.rnr_retry;
		if (q->sq_next != q->sq_tail && !q->rnr_wait)
			sim_at(q->d->w, &q->tx_ev, sim_thread_now(q->d->w));
	} else if (to == IBV_QPS_SQD) {
		q->sqd_notify = mask & IBV_QP_EN_SQD_ASYNC_NOTIFY &&
				a->en_sqd_async_notify;
		q->sq_stop = q->sq_next;
		sim_sqd_look(q);
	}
}

static void modify_cost(struct sim_qp *q, enum ibv_qp_state from,
			enum ibv_qp_state to)
{
	const struct nic_model *model = &q->d->nic->net->model;
	uint64_t nic = model->modify_nic_ns;

	if (to == IBV_QPS_INIT && from == IBV_QPS_RESET)
		nic = model->modify_init_nic_ns;
	else if (to == IBV_QPS_RTR)
		nic = model->modify_rtr_nic_ns;
	else if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
		nic = model->modify_rts_nic_ns;
	sim_control(q->d, model->modify_cpu_ns, nic);
}

int sim_modify_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		  int mask)
{
	struct sim_qp *q = sim_qp_of(qp);
	enum ibv_qp_state from = qp->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rc;

	(void)dev;
	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)
		return -EINVAL;
	rc = dev_states_check(qp->qp_type, from, to, mask);
	if (!rc)
		rc = dev_states_check_values(attr, mask, SIM_RD_ATOMIC);
	if (rc)
		return rc;
	if (to == IBV_QPS_RTR)
		rc = to_rtr(q, attr);
	if (rc)
		return rc;
	/* The NIC stops the QP first. Messages that it has sent still arrive,
	 * before the call returns unless the network is slow. */
	q->halted = to == IBV_QPS_ERR || to == IBV_QPS_RESET;
	modify_cost(q, from, to);
	q->halted = false;
	/* An error may have moved the QP meanwhile; from ERR this transition
	 * may not be allowed. */
	if (qp->state != from) {
		from = qp->state;
		if (!(mask & IBV_QP_STATE))
			to = from;
		rc = dev_states_check(qp->qp_type, from, to, mask);
		if (rc)
			return rc;
	}
	dev_states_take(&q->attr, attr, mask);
	if (to == IBV_QPS_ERR)
		sim_qp_to_err(q);
	else if (to == IBV_QPS_RESET)
		to_reset(q);
	else if (to != from)
		entered(q, to, attr, mask);
	return 0;
}

int sim_query_qp(struct dev *dev, struct ibv_qp *qp, struct ibv_qp_attr *attr,
		 int mask, struct ibv_qp_init_attr *init)
{
	struct sim_qp *q = sim_qp_of(qp);

	(void)dev;
	(void)mask;
	*attr = q->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = q->init.cap;
	attr->sq_draining =
		qp->state == IBV_QPS_SQD && q->sq_head != q->sq_stop;
	if (init)
		*init = q->init;
	return 0;
}

void sim_qp_free(struct sim_qp *q)
{
	stop(q);
	q->d->nic->qps[q->ex.qp_base.qp_num - 1] = NULL;
	q->d->nic->n_qps--;
	list_del(&q->link);
	sim_dct_fini(q);
	queues_free(q);
	env_free(q->d->dev.env, q);
}

int sim_destroy_qp(struct dev *dev, struct ibv_qp *qp)
{
	struct sim_qp *q = sim_qp_of(qp);

	sim_cq_purge(sim_cq_of(qp->send_cq), qp->qp_num);
	sim_cq_purge(sim_cq_of(qp->recv_cq), qp->qp_num);
	sim_cq_of(qp->send_cq)->refs--;
	sim_cq_of(qp->recv_cq)->refs--;
	if (q->srq)
		q->srq->refs--;
	sim_async_drop(q->d, qp);
	sim_qp_free(q);
	sim_control_destroy(sim_dev_of(dev));
	return 0;
}
