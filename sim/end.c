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
