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

/* wc.sl of a datagram tells the kind of its packet, as mlx5 has it: bit 3, with a
 * UDP header; below it 1, IPv6, or 2, IPv4. UCX 1.13 trusts it on any device. */
#define DEV_GRH_WC_SL_V6 (1 << 3 | 1)
#define DEV_GRH_WC_SL_V4 (1 << 3 | 2)

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
