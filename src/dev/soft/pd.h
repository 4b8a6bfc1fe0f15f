/* SPDX-License-Identifier: MIT */
/*
 * pd.h - protection domains, thread domains and parent domains. A parent domain
 * is a protection domain under another name: what is made with it belongs to the
 * domain that it is of, and keeps both in use.
 */
#ifndef SKEIN_DEV_SOFT_PD_H
#define SKEIN_DEV_SOFT_PD_H

#include "base/list.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdint.h>

struct dev;

struct soft_td {
	struct ibv_td td;
	_Atomic uint32_t refs;
};

struct soft_pd {
	struct ibv_pd pd;
	uint32_t id;
	_Atomic uint32_t refs;
	/* of a parent domain: both are in use by it; td may be NULL */
	struct soft_pd *of;
	struct soft_td *td;
};

static inline struct soft_pd *soft_pd_self(struct ibv_pd *pd)
{
	return container_of(pd, struct soft_pd, pd);
}

/* What objects that are made with pd belong to. */
static inline struct soft_pd *soft_pd_of(struct ibv_pd *pd)
{
	struct soft_pd *p = soft_pd_self(pd);

	return p->of ? p->of : p;
}

/* An object is made with pd; it is gone. */
static inline void soft_pd_get(struct ibv_pd *pd)
{
	atomic_fetch_add(&soft_pd_self(pd)->refs, 1);
}

static inline void soft_pd_put(struct ibv_pd *pd)
{
	atomic_fetch_sub(&soft_pd_self(pd)->refs, 1);
}

int soft_alloc_pd(struct dev *dev, struct ibv_pd **pd);
/* Of both kinds. */
int soft_dealloc_pd(struct dev *dev, struct ibv_pd *pd);

/* For verbs_context: they set errno, or return one. A thread domain promises
 * that one thread uses what is made with it; nothing here is the faster for it.
 */
struct ibv_td *soft_alloc_td(struct ibv_context *ctx,
			     struct ibv_td_init_attr *attr);
int soft_dealloc_td(struct ibv_td *td);
struct ibv_pd *soft_alloc_parent(struct ibv_context *ctx,
				 struct ibv_parent_domain_init_attr *attr);

#endif
