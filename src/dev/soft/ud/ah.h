/* SPDX-License-Identifier: MIT */
/*
 * ah.h - address handles.
 *
 * An address handle belongs to its PD and is read-only once made: any number of
 * QPs and threads use it. docs/soft.md, "Claimed slots".
 */
#ifndef SKEIN_DEV_SOFT_AH_H
#define SKEIN_DEV_SOFT_AH_H

#include "dev/grh.h"
#include "dev/soft/soft.h"

struct soft_ah {
	struct ibv_ah ah;
	struct soft_pd *pd;
	struct dev_grh grh;
	union ibv_gid
		group; /* the destination, if it is one; else the bit is 0 */
	uint64_t group_bit;
	bool far;		   /* the destination is no GID of ours */
	struct soft_link_ah *link; /* over the link, or NULL */
};

static inline struct soft_ah *soft_ah_of(struct ibv_ah *ah)
{
	return container_of(ah, struct soft_ah, ah);
}

/* -EINVAL: a port, a source GID or a mixture of address families that there is
 * not, or no GRH, which RoCE cannot do without;
 * -EHOSTUNREACH: a GID of another host, and no link. */
int soft_create_ah(struct dev *dev, struct ibv_pd *pd, struct ibv_ah_attr *attr,
		   struct ibv_ah **ah);
int soft_destroy_ah(struct dev *dev, struct ibv_ah *ah);

#endif
