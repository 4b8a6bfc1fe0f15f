/* SPDX-License-Identifier: MIT */
/*
 * ah.c - address handles, made of attributes or of what a datagram came with,
 * and multicast groups.
 */
#include "bind/verbs/link.h"
#include "bind/verbs/state.h"
#include "dev/dev.h"

#include <errno.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah_attr own = *attr;
	struct ibv_ah *ah = NULL;
	struct dev *dev;

	if (!vb_ours(pd->context))
		return VB_REAL(ibv_create_ah)(pd, attr);
	dev = vb_dev(pd->context);
	link_path(dev, &own);
	if (!dev->ops->create_ah)
		vb_errno(-EOPNOTSUPP);
	else
		vb_errno(dev->ops->create_ah(dev, pd, &own, &ah));
	return ah;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	struct dev *dev;

	if (!vb_ours(ah->context))
		return VB_REAL(ibv_destroy_ah)(ah);
	dev = vb_dev(ah->context);
	return vb_errno(dev->ops->destroy_ah(dev, ah));
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port,
			       struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	struct dev *dev;
	int err;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_init_ah_from_wc)(ctx, port, wc, grh, attr);
	dev = vb_dev(ctx);
	err = port == dev->port ? dev_ah_from_wc(dev, wc, grh, attr) : -EINVAL;
	/* the manual page wants -1 */
	return vb_errno(err) ? -1 : 0;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd,
					    struct ibv_wc *wc,
					    struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (!vb_ours(pd->context))
		return VB_REAL(ibv_create_ah_from_wc)(pd, wc, grh, port);
	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	struct dev *dev;

	if (!vb_ours(qp->context))
		return VB_REAL(ibv_attach_mcast)(qp, gid, lid);
	dev = vb_dev(qp->context);
	return vb_errno(dev->ops->attach_mcast
				? dev->ops->attach_mcast(dev, qp, gid, lid)
				: -EOPNOTSUPP);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	struct dev *dev;

	if (!vb_ours(qp->context))
		return VB_REAL(ibv_detach_mcast)(qp, gid, lid);
	dev = vb_dev(qp->context);
	return vb_errno(dev->ops->detach_mcast
				? dev->ops->detach_mcast(dev, qp, gid, lid)
				: -EOPNOTSUPP);
}

/* For providers that build Ethernet headers; our device sends no Ethernet
 * frames. */
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *ctx,
				       struct ibv_ah_attr *attr, uint8_t mac[6],
				       uint16_t *vid)
{
	if (!vb_ours(ctx))
		return VB_REAL(ibv_resolve_eth_l2_from_gid)(ctx, attr, mac,
							    vid);
	errno = EOPNOTSUPP;
	return -EOPNOTSUPP;
}
