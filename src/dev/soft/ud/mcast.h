/* SPDX-License-Identifier: MIT */
/*
 * mcast.h - multicast groups of UD QPs (IBA 10.5). Each attached QP and group
 * has an abstract socket with their name. The kernel lists these names and
 * forgets them when the process ends, so there is no directory to keep or
 * sweep.
 */
#ifndef SKEIN_DEV_SOFT_MCAST_H
#define SKEIN_DEV_SOFT_MCAST_H

#include "dev/soft/soft.h"

/* A QP of this network namespace that is attached. */
struct soft_member {
	union ibv_gid gid;
	uint32_t qpn;
};

/* ff00::/8, or 224.0.0.0/4 as an IPv4-mapped address. */
bool soft_gid_group(const union ibv_gid *gid);
/* What senders look for in shm_qp.groups: one bit. */
uint64_t soft_group_bit(const union ibv_gid *gid);

/* -EINVAL: no UD QP, no group; detaching: not attached. Attaching twice is once.
 * -EOPNOTSUPP: /proc cannot be read here, so nobody would find it. */
int soft_attach_mcast(struct dev *dev, struct ibv_qp *qp,
		      const union ibv_gid *gid, uint16_t lid);
int soft_detach_mcast(struct dev *dev, struct ibv_qp *qp,
		      const union ibv_gid *gid, uint16_t lid);

/* All members of all groups as of now, each once; the caller env_frees them. */
int soft_members(struct soft *s, struct soft_member **members, uint32_t *n);

#endif
