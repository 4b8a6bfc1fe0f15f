/* SPDX-License-Identifier: MIT */
/*
 * ext.c - the extended verbs that libibverbs reaches through verbs_context:
 * ibv_create_qp_ex(), ibv_create_cq_ex(), ibv_query_device_ex(). They return
 * positive errnos, or set errno, as their callers expect. What this device does
 * not have is EOPNOTSUPP.
 */
#include "dev/soft/ext.h"

#include "dev/soft/cq/poll.h"
#include "dev/soft/pd.h"
#include "dev/soft/qp/wr.h"

#include <errno.h>
#include <string.h>

static int query_device_ex(struct ibv_context *ctx,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	struct dev *dev = &soft_of(ctx)->dev;
	struct ibv_device_attr_ex full;
	int err;

	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(full.orig_attr))
		return EINVAL;
	/* No time stamps, paging, segmentation, hashing or tag matching. */
	memset(&full, 0, sizeof(full));
	err = dev->ops->query_device(dev, &full.orig_attr);
	if (err)
		return -err;
	full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
	full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port,
		      struct ibv_port_attr *attr, size_t size)
{
	struct dev *dev = &soft_of(ctx)->dev;
	struct ibv_port_attr full;
	int err = dev->ops->query_port(dev, port, &full);

	if (err)
		return -err;
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

#define QP_MASK                                                \
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | \
	 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

static int create_qp(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a,
		     struct ibv_qp **qp)
{
	struct dev *dev = &soft_of(ctx)->dev;
	struct ibv_qp_init_attr plain;
	uint64_t ops = 0;
	int err;

	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD))
		return -EINVAL;
	if (a->comp_mask & ~(uint32_t)QP_MASK)
		return -EOPNOTSUPP;
	if (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags)
		return -EOPNOTSUPP;
	/* The two begin alike, by libibverbs' own contract. */
	memcpy(&plain, a, sizeof(plain));
	if (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		ops = a->send_ops_flags;
		err = soft_wrs_check(a->qp_type, ops);
		if (err)
			return err;
	}
	err = dev->ops->create_qp(dev, a->pd, &plain, 0, qp);
	if (err)
		return err;
	a->cap = plain.cap;
	if (!(a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return 0;
	err = soft_wrs_new(soft_qp_of(*qp), ops);
	if (err)
		dev->ops->destroy_qp(dev, *qp);
	return err;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *ctx,
				   struct ibv_qp_init_attr_ex *a)
{
	struct ibv_qp *qp = NULL;
	int err = create_qp(ctx, a, &qp);

	if (!err)
		return qp;
	errno = -err;
	return NULL;
}

static int create_cq(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a,
		     struct ibv_cq **cq)
{
	struct dev *dev = &soft_of(ctx)->dev;
	uint32_t flags = 0;
	int err;

	if (a->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS)
		return -EOPNOTSUPP; /* no parent domains */
	if (a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS)
		flags = a->flags;
	/* No overrun is ignored, no completion has a time, VLAN or tag. */
	if (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED ||
	    a->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS)
		return -EOPNOTSUPP;
	if (a->comp_vector >= (uint32_t)ctx->num_comp_vectors ||
	    a->cqe > SOFT_CQE_MAX)
		return -EINVAL;
	err = dev->ops->create_cq(dev, (int)a->cqe, a->cq_context, a->channel,
				  cq);
	if (!err)
		soft_poll_ex_fill(soft_cq_of(*cq), a->wc_flags,
				  flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	return err;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx,
				      struct ibv_cq_init_attr_ex *a)
{
	struct ibv_cq *cq = NULL;
	int err = create_cq(ctx, a, &cq);

	if (!err)
		return &soft_cq_of(cq)->ex;
	errno = -err;
	return NULL;
}

void soft_ext_fill(struct verbs_context *v)
{
	v->query_device_ex = query_device_ex;
	v->query_port = query_port;
	v->create_qp_ex = create_qp_ex;
	v->create_cq_ex = create_cq_ex;
	v->alloc_td = soft_alloc_td;
	v->dealloc_td = soft_dealloc_td;
	v->alloc_parent_domain = soft_alloc_parent;
}
