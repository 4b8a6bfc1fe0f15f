/* SPDX-License-Identifier: MIT */
/*
 * mcast_ops.h - what `skein cp` uses of skein/mcast.h, as a table: tests put a
 * multicast of their own in its place, which fails and corrupts when told.
 */
#ifndef CP_MCAST_OPS_H
#define CP_MCAST_OPS_H

#include <skein/mcast.h>

/* Of a group's attributes: no looking for blocks beyond what the engine does by
 * itself. A block waits for a disk and a thread anyway, and where members share
 * a host one that looks takes the core from one that copies. */
#define CP_POLL_NS 1

struct cp_mcast_ops {
	int (*open)(struct skein_ctx *ctx, const struct skein_mcast_attr *attr,
		    struct skein_mcast **group);
	int (*send_stream)(struct skein_mcast *group, uint64_t size, void *tag);
	int (*block_done)(struct skein_mcast *group, uint64_t seq,
			  uint32_t index, int status);
	void (*finish)(struct skein_mcast *group);
	int (*stats)(struct skein_mcast *group,
		     struct skein_mcast_stats *stats);
	int (*close)(struct skein_mcast *group, uint64_t timeout_ns);
	void (*abort)(struct skein_mcast *group, int err);
};

/* skein_mcast_open() and so on; in mcast_real.c. */
extern const struct cp_mcast_ops cp_mcast_real;

#endif
