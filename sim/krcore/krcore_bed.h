/* SPDX-License-Identifier: MIT */
/*
 * krcore_bed.h - clients of vqp pools: how fast they connect, READ and WRITE.
 *
 * Pools, meta server and targets are production objects (src/vqp) on the
 * simulated device. What stands for the way from a client into its pool is
 * entry_ns, line_ns and serve_ns alone. A pool and its clients are one thread:
 * with one client it is an application that calls its pool, with several a
 * node service and its clients, which have cores of their own.
 */
#ifndef SKEIN_SIM_KRCORE_KRCORE_BED_H
#define SKEIN_SIM_KRCORE_KRCORE_BED_H

#include "base/hist.h"
#include "dev/sim/link.h"
#include "dev/sim/model.h"
#include "sim/krcore/memory.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* Longer than to make two DCIs, shorter than to give a request up. */
#define KRCORE_STALL_NS 5000000u

enum krcore_op {
	KRCORE_CONNECT,	       /* the node is not in the pool's cache */
	KRCORE_CONNECT_CACHED, /* it is */
	KRCORE_READ,
	KRCORE_WRITE,
};

enum krcore_death {
	KRCORE_NO_DEATH,
	KRCORE_TARGET_DIES, /* the victim's node, and its process */
	KRCORE_META_DIES,   /* the same of the first meta server's */
};

struct krcore_bed_conf {
	uint64_t seed;
	const struct nic_model *nic;
	unsigned nodes;	  /* of clients */
	unsigned pools;	  /* of a node */
	unsigned clients; /* of a pool */
	unsigned targets; /* nodes */
	unsigned dcis;	  /* of a pool; 0: the default */
	unsigned rcs;	  /* the same */
	unsigned metas;	  /* meta servers; 0: one */
	unsigned peers;	  /* in the first pool's cache, besides the targets */
	enum krcore_op op;
	uint32_t len;	   /* of a READ or WRITE */
	unsigned batch;	   /* requests of one post */
	unsigned depth;	   /* requests outstanding, of a client */
	unsigned region;   /* not 0: each READ comes first to its region */
	uint32_t entry_ns; /* of each call, of the pool's thread */
	uint32_t line_ns;  /* from a client to its service, and back */
	uint32_t serve_ns; /* of each request, of the service */
	uint64_t rest_ns;  /* of a client, between two operations */
	uint64_t warm_ns, run_ns;
	/* At the end of warm_ns. Clients of the target end with their first
	 * error. */
	enum krcore_death death;
	unsigned victim; /* a target */
};

struct krcore_bed_result {
	double mops;	  /* operations: connections, READs, WRITEs */
	struct hist hist; /* of an operation, as its client sees it */
	uint64_t ops;
	/* READs of records, in the same time */
	uint64_t lookups;
	/* A target has died: errors of its clients and of others; of the others,
	 * clients that waited for an operation longer than KRCORE_STALL_NS; the
	 * longest operation of these, and of the rest */
	uint64_t errors, errors_elsewhere, others, stalled;
	uint64_t longest_ns, rest_longest_ns;
	struct sim_nic_counts target, meta, client; /* the first node's */
	struct krcore_mem mem; /* of the first pool and its context, at the end */
	uint64_t hash, virtual_ns, events;
};

/* 0 or a negative errno; -EIO: an operation has failed. */
int krcore_bed_run(const struct krcore_bed_conf *conf,
		   struct krcore_bed_result *res);

#endif
