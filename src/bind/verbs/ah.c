/* SPDX-License-Identifier: MIT */
/*
 * ah.c - address handles, made of attributes or of what a datagram came with,
 * and multicast, which the device does not have.
 */
#include "bind/verbs/link.h"
#include "bind/verbs/state.h"
#include "dev/dev.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

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

/* Where the datagram came from and where it went, as GIDs. An IPv4 header
 * lies in the last 20 of the 40 bytes (IBA annex A17.4.5.2). */
static void grh_gids(const struct ibv_grh *grh, union ibv_gid *from,
		     union ibv_gid *to)
{
	const unsigned char *v4 = (const unsigned char *)grh + 20;

	if (ntohl(grh->version_tclass_flow) >> 28 == 6 || *v4 >> 4 != 4) {
		*from = grh->sgid;
		*to = grh->dgid;
		return;
	}
	memset(from, 0, sizeof(*from));
	memset(to, 0, sizeof(*to));
	from->raw[10] = from->raw[11] = to->raw[10] = to->raw[11] = 0xff;
	memcpy(&from->raw[12], v4 + 12, 4);
	memcpy(&to->raw[12], v4 + 16, 4);
}

static int gid_index(struct dev *dev, uint8_t port, const union ibv_gid *gid)
{
	struct dev_gid g;
	int i;

	for (i = 0; !dev->ops->query_gid(dev, port, i, &g); i++)
		if (!memcmp(&g.gid, gid, sizeof(*gid)))
			return i;
	return -ENOENT;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port,
			       struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	union ibv_gid to;
	int index;

	if (!vb_ours(ctx))
		return VB_REAL(ibv_init_ah_from_wc)(ctx, port, wc, grh, attr);
	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH)) {
		errno = EINVAL; /* on Ethernet every datagram has one */
		return -1;
	}
	attr->is_global = 1;
	grh_gids(grh, &attr->grh.dgid, &to);
	index = gid_index(vb_dev(ctx), port, &to);
	if (index < 0) {
		errno = -index;
		return -1;
	}
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.hop_limit = 0xff;
	return 0;
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
	if (!vb_ours(qp->context))
		return VB_REAL(ibv_attach_mcast)(qp, gid, lid);
	return vb_errno(-EOPNOTSUPP);
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	if (!vb_ours(qp->context))
		return VB_REAL(ibv_detach_mcast)(qp, gid, lid);
	return vb_errno(-EOPNOTSUPP);
}

/* For providers that put Ethernet headers together; ours has no wire. */
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
