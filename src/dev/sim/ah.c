/* SPDX-License-Identifier: MIT */
/*
 * ah.c - address handles of the simulated device.
 */
#include "dev/sim/sim_dev.h"

#include <errno.h>

/* -EHOSTUNREACH: there is no such node. A real NIC asks for the neighbour's
 * address and gets no answer. */
int sim_create_ah(struct dev *dev, struct ibv_pd *pd, struct ibv_ah_attr *attr,
		  struct ibv_ah **ah)
{
	struct sim_dev *d = sim_dev_of(dev);
	union ibv_gid own;
	struct sim_ah *a;
	int rc;

	if (attr->port_num != 1 || !attr->is_global || attr->grh.sgid_index)
		return -EINVAL;
	if (attr->grh.dgid.raw[0] == 0xff)
		return -EOPNOTSUPP; /* multicast */
	a = env_alloc(dev->env, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->to = sim_nic_by_gid(d->nic->net, &attr->grh.dgid);
	sim_nic_gid(d->nic, &own);
	rc = dev_grh_init(&a->grh, &own, &attr->grh);
	if (!rc && !a->to)
		rc = -EHOSTUNREACH;
	if (rc) {
		env_free(dev->env, a);
		return rc;
	}
	a->ah.context = dev->verbs;
	a->ah.pd = pd;
	d->refs++;
	sim_control(d, d->nic->net->model.create_ah_cpu_ns, 0);
	*ah = &a->ah;
	return 0;
}

int sim_destroy_ah(struct dev *dev, struct ibv_ah *ah)
{
	sim_dev_of(dev)->refs--;
	env_free(dev->env, sim_ah_of(ah));
	return 0;
}
