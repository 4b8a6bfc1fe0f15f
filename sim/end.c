/* SPDX-License-Identifier: MIT */
/* end.c - see end.h. */
#include "sim/end.h"

#include "env/env.h"

#include <errno.h>

int end_up(struct end *e, struct sim_node *node, size_t len, unsigned cqe)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ;
	const struct dev_ops *ops;
	char err[160];
	int rc;

	e->node = node;
	rc = sim_proc_new(node, "p", &e->proc);
	if (rc)
		return rc;
	e->env = sim_proc_env(e->proc);
	rc = dev_open(e->env, "sim", -1, err, sizeof(err), &e->dev);
	if (rc)
		return rc;
	ops = e->dev->ops;
	e->mem = env_alloc(e->env, len);
	if (!e->mem)
		return -ENOMEM;
	rc = ops->alloc_pd(e->dev, &e->pd);
	if (!rc)
		rc = ops->reg_mr(e->dev, e->pd, e->mem, len, access, -1, 0,
				 &e->mr);
	if (!rc)
		rc = ops->create_cq(e->dev, (int)cqe, NULL, NULL, &e->cq);
	return rc;
}

static int qp_new(struct end *e, unsigned depth, uint32_t inline_max, bool all,
		  struct ibv_qp **qp)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = all,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_max},
	};
	int rc = e->dev->ops->create_qp(e->dev, e->pd, &attr, 0, qp);

	return rc ? rc
		  : dev_qp_init(e->dev, *qp,
				IBV_ACCESS_REMOTE_WRITE |
					IBV_ACCESS_REMOTE_READ);
}

int end_rc(struct end *a, struct end *b, unsigned depth, uint32_t inline_max,
	   bool all, struct ibv_qp **qp)
{
	struct dev_qp_addr at_a, at_b;
	struct ibv_qp *far;
	int rc;

	rc = qp_new(a, depth, inline_max, all, qp);
	if (!rc)
		rc = qp_new(b, 1, 0, true, &far);
	if (rc)
		return rc;
	dev_qp_addr(a->dev, *qp, 0, &at_a);
	dev_qp_addr(b->dev, far, 0, &at_b);
	rc = dev_qp_rtr(a->dev, *qp, &at_b, NULL);
	if (!rc)
		rc = dev_qp_rtr(b->dev, far, &at_a, NULL);
	if (!rc)
		rc = dev_qp_rts(a->dev, *qp, 0, &at_b, NULL);
	return rc ? rc : dev_qp_rts(b->dev, far, 0, &at_a, NULL);
}

int end_dct(struct end *e, struct ibv_qp **dct)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
	const struct dev_ops *ops = e->dev->ops;
	struct ibv_srq *srq;
	int rc = ops->create_srq(e->dev, e->pd, &attr, &srq);

	return rc ? rc
		  : ops->create_dct(e->dev, e->pd, e->cq, srq, END_DC_KEY,
				    IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_READ,
				    NULL, dct);
}

int end_dci(struct end *e, unsigned depth, bool all, struct ibv_qp **dci)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.sq_sig_all = all,
		.cap = {.max_send_wr = depth, .max_send_sge = 1},
	};

	return e->dev->ops->create_dci(e->dev, e->pd, &attr, NULL, dci);
}

int end_ah(struct end *a, struct end *b, struct ibv_qp *dct, struct ibv_ah **ah)
{
	struct ibv_ah_attr attr;
	struct dev_qp_addr at;
	int rc;

	dev_qp_addr(b->dev, dct, 0, &at);
	rc = dev_ah_attr(a->dev, &at, NULL, &attr);
	return rc ? rc : a->dev->ops->create_ah(a->dev, a->pd, &attr, ah);
}
