/* SPDX-License-Identifier: MIT */
/* pd.c - see pd.h. */
#include "dev/soft/pd.h"

#include "dev/soft/soft.h"

#include <errno.h>

int soft_alloc_pd(struct dev *dev, struct ibv_pd **pd)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_pd *p;

	if (!soft_here(s))
		return -EPERM;
	p = env_alloc(s->env, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pd.context = &s->vctx.context;
	pthread_mutex_lock(&s->lock);
	p->id = ++s->pd_next;
	pthread_mutex_unlock(&s->lock);
	p->pd.handle = p->id;
	*pd = &p->pd;
	return 0;
}

int soft_dealloc_pd(struct dev *dev, struct ibv_pd *pd)
{
	struct soft *s = soft_of_dev(dev);
	struct soft_pd *p = soft_pd_self(pd);

	if (!soft_here(s))
		return -EPERM;
	if (atomic_load(&p->refs))
		return -EBUSY;
	if (p->of)
		soft_pd_put(&p->of->pd);
	if (p->td)
		atomic_fetch_sub(&p->td->refs, 1);
	env_free(s->env, p);
	return 0;
}

struct ibv_td *soft_alloc_td(struct ibv_context *ctx,
			     struct ibv_td_init_attr *attr)
{
	struct soft *s = soft_of(ctx);
	struct soft_td *t = NULL;

	if (!soft_here(s)) {
		errno = EPERM;
	} else if (attr->comp_mask) {
		errno = EOPNOTSUPP;
	} else {
		t = env_alloc(s->env, sizeof(*t));
		if (!t)
			errno = ENOMEM;
	}
	if (!t)
		return NULL;
	t->td.context = ctx;
	return &t->td;
}

int soft_dealloc_td(struct ibv_td *td)
{
	struct soft_td *t = container_of(td, struct soft_td, td);
	struct soft *s = soft_of(td->context);

	if (!soft_here(s))
		return EPERM;
	if (atomic_load(&t->refs))
		return EBUSY;
	env_free(s->env, t);
	return 0;
}

/* Allocators of the caller's, for one, are for providers that use memory. */
static int parent_check(struct soft *s,
			const struct ibv_parent_domain_init_attr *attr)
{
	if (!soft_here(s))
		return EPERM;
	if (attr->comp_mask)
		return EOPNOTSUPP;
	return attr->pd ? 0 : EINVAL;
}

struct ibv_pd *soft_alloc_parent(struct ibv_context *ctx,
				 struct ibv_parent_domain_init_attr *attr)
{
	struct soft *s = soft_of(ctx);
	int err = parent_check(s, attr);
	struct soft_pd *p = NULL;

	if (!err) {
		p = env_alloc(s->env, sizeof(*p));
		err = p ? 0 : ENOMEM;
	}
	if (err) {
		errno = err;
		return NULL;
	}
	p->of = soft_pd_of(attr->pd);
	p->pd.context = ctx;
	p->pd.handle = p->id = p->of->id;
	soft_pd_get(&p->of->pd);
	if (attr->td) {
		p->td = container_of(attr->td, struct soft_td, td);
		atomic_fetch_add(&p->td->refs, 1);
	}
	return &p->pd;
}
