/* SPDX-License-Identifier: MIT */
/*
 * link.c - a port with a LID, and paths by LID.
 */
#include "bind/verbs/link.h"

#include "bind/verbs/state.h"
#include "dev/dev.h"

#include <string.h>

#define LID 1

void link_port(struct ibv_port_attr *attr)
{
	if (!vb.infiniband)
		return;
	attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
	attr->lid = attr->sm_lid = LID;
}

static int query_port(struct ibv_context *ctx, uint8_t port,
		      struct ibv_port_attr *attr, size_t size)
{
	struct dev *dev = vb_dev(ctx);
	struct ibv_port_attr full;
	int rc = dev->ops->query_port(dev, port, &full);

	if (rc)
		return vb_errno(rc);
	link_port(&full);
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

void link_open(struct ibv_context *ctx)
{
	if (vb.infiniband)
		verbs_get_ctx(ctx)->query_port = query_port;
}

void link_path(const struct dev *dev, struct ibv_ah_attr *attr)
{
	if (!vb.infiniband || attr->is_global || attr->dlid != LID)
		return;
	attr->is_global = 1;
	attr->grh.dgid = dev->gid.gid;
	attr->grh.sgid_index = (uint8_t)dev->gid.index;
	attr->grh.hop_limit = 1;
}
