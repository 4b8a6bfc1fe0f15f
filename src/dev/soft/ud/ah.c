/* SPDX-License-Identifier: MIT */
/*
 * ah.c - address handles: the destination of a UD message, and the header that
 * it brings along (dev/grh.h).
 */
#include "dev/soft/ud/ah.h"

#include "dev/soft/link/datagram.h"
#include "dev/soft/ud/mcast.h"
#include "dev/soft/mr.h"

#include <errno.h>
#include <string.h>

static bool is_v4(const union ibv_gid *gid)
{
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(gid->raw, mapped, 12);
}

/* s->lock held: the table is read. */
static int ah_check(struct soft *s, const struct ibv_ah_attr *attr,
		    struct soft_ah *a)
{
	struct ibv_global_route g = attr->grh;
	int err;

	if (attr->port_num != 1 || !attr->is_global ||
	    g.sgid_index >= s->n_gids)
		return -EINVAL;
	/* As in the header that a RoCE NIC puts in front: of an IPv4 source,
	 * the last 4 bytes of a group's GID are the address. */
	if (g.dgid.raw[0] == 0xff && is_v4(&s->gids[g.sgid_index].gid))
		memcpy(g.dgid.raw, s->gids[g.sgid_index].gid.raw, 12);
	err = dev_grh_init(&a->grh, &s->gids[g.sgid_index].gid, &g);
	if (err || soft_gid_group(&attr->grh.dgid))
		return err;
	a->far = !soft_gid_local(s, &g.dgid);
	return soft_link_ah_new(s, attr, a->far, &a->link);
}

int soft_create_ah(struct dev *dev, struct ibv_pd *pd, struct ibv_ah_attr *attr,
		   struct ibv_ah **ah)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_ah *a;
	int err;

	if (!soft_here(s))
		return -EPERM;
	a = env_alloc(s->env, sizeof(*a));
	if (!a)
		return -ENOMEM;
	pthread_mutex_lock(&s->lock);
	err = ah_check(s, attr, a);
	pthread_mutex_unlock(&s->lock);
	if (err) {
		env_free(s->env, a);
		return err;
	}
	a->ah.context = &s->vctx.context;
	a->ah.pd = pd;
	a->pd = soft_pd_of(pd);
	if (soft_gid_group(&attr->grh.dgid)) {
		a->group = attr->grh.dgid;
		a->group_bit = soft_group_bit(&a->group);
	}
	soft_pd_get(pd);
	*ah = &a->ah;
	return 0;
}

int soft_destroy_ah(struct dev *dev, struct ibv_ah *ah)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_ah *a = soft_ah_of(ah);

	if (!soft_here(s))
		return -EPERM;
	soft_pd_put(a->ah.pd);
	env_free(s->env, a->link);
	env_free(s->env, a);
	return 0;
}
