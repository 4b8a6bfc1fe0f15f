/* SPDX-License-Identifier: MIT */
/*
 * grh.h - the 40 bytes in front of a datagram that a UD QP has received: the IP
 * header of the RoCEv2 packet that a NIC would have sent (annex A17.4.5). An
 * IPv6 header; or 20 bytes of zero and an IPv4 header. For the devices that are
 * ours; dev_ah_from_wc() reads it.
 */
#ifndef SKEIN_DEV_GRH_H
#define SKEIN_DEV_GRH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define DEV_GRH 40u

struct dev_grh {
	bool v4;
	/* all but the lengths and the sum over it */
	unsigned char bytes[DEV_GRH];
};

/* 0, or -EINVAL: addresses of two families. */
int dev_grh_init(struct dev_grh *h, const union ibv_gid *sgid,
		 const struct ibv_global_route *g);
/* As it stands in front of a message of len bytes. */
void dev_grh_fill(const struct dev_grh *h, uint32_t len, bool imm,
		  unsigned char grh[DEV_GRH]);

#endif
