/* SPDX-License-Identifier: MIT */
/*
 * qp.c - queue pairs and shared receive queues.
 */
#include "bind/verbs/link.h"
#include "bind/verbs/state.h"
#include "dev/dev.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = NULL;
	struct dev *dev;

	if (!vb_ours(pd->context))
		return VB_REAL(ibv_create_qp)(pd, attr);
	dev = vb_dev(pd->context);
	vb_errno(dev->ops->create_qp(dev, pd, attr, 0, &qp));
	return qp;
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	struct dev *dev;

	if (!vb_ours(qp->context))
		return VB_REAL(ibv_query_qp)(qp, attr, mask, init);
	dev = vb_dev(qp->context);
	return vb_errno(dev->ops->query_qp(dev, qp, attr, mask, init));
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr own;
	struct dev *dev;

	if (!vb_ours(qp->context))
		return VB_REAL(ibv_modify_qp)(qp, attr, mask);
	dev = vb_dev(qp->context);
	if (mask & IBV_QP_AV) {
		own = *attr;
		link_path(dev, &own.ah_attr);
		attr = &own;
	}
	return vb_errno(dev->ops->modify_qp(dev, qp, attr, mask));
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct dev *dev;

	if (!vb_ours(qp->context))
		return VB_REAL(ibv_destroy_qp)(qp);
	dev = vb_dev(qp->context);
	return vb_errno(dev->ops->destroy_qp(dev, qp));
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex;

	if (!vb_ours(qp->context))
		return VB_REAL(ibv_qp_to_qp_ex)(qp);
	/* Each of our QPs is an ibv_qp_ex, but only a QP made by
	 * ibv_create_qp_ex() has its functions. */
	ex = (struct ibv_qp_ex *)(void *)qp;
	return ex->wr_start ? ex : NULL;
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!vb_ours(qp->context))
		return VB_REAL(ibv_query_ece)(qp, ece);
	return vb_errno(-EOPNOTSUPP);
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!vb_ours(qp->context))
		return VB_REAL(ibv_set_ece)(qp, ece);
	return vb_errno(-EOPNOTSUPP);
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
				      uint32_t flags)
{
	if (!vb_ours(qp->context))
		return VB_REAL(ibv_query_qp_data_in_order)(qp, op, flags);
	return vb_dev(qp->context)->caps.ordered_write;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
				      struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq = NULL;
	struct dev *dev;

	if (!vb_ours(pd->context))
		return VB_REAL(ibv_create_srq)(pd, attr);
	dev = vb_dev(pd->context);
	if (!dev->ops->create_srq)
		vb_errno(-EOPNOTSUPP);
	else
		vb_errno(dev->ops->create_srq(dev, pd, attr, &srq));
	return srq;
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
			  int mask)
{
	struct dev *dev;

	if (!vb_ours(srq->context))
		return VB_REAL(ibv_modify_srq)(srq, attr, mask);
	dev = vb_dev(srq->context);
	return vb_errno(dev->ops->modify_srq(dev, srq, attr, mask));
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct dev *dev;

	if (!vb_ours(srq->context))
		return VB_REAL(ibv_query_srq)(srq, attr);
	dev = vb_dev(srq->context);
	return vb_errno(dev->ops->query_srq(dev, srq, attr));
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct dev *dev;

	if (!vb_ours(srq->context))
		return VB_REAL(ibv_destroy_srq)(srq);
	dev = vb_dev(srq->context);
	return vb_errno(dev->ops->destroy_srq(dev, srq));
}
