/* SPDX-License-Identifier: MIT */
/*
 * bed.h - a test bed for verbs: issuers on some nodes send requests to targets
 * on others; the result is the rate in a stretch of virtual time.
 *
 * Each issuer is a thread in a process of its own, with a CQ and QPs, each to
 * one target; the targets are passive processes, one a node. All goes through
 * the device seam (dev.h). QPs are made and connected before time starts.
 */
#ifndef SKEIN_SIM_BED_H
#define SKEIN_SIM_BED_H

#include "base/hist.h"
#include "dev/sim/link.h"
#include "dev/sim/model.h"

#include <infiniband/verbs.h>

struct bed_conf {
	uint64_t seed;
	const struct nic_model *nic;
	unsigned issuer_nodes, issuers; /* issuers: on each of the nodes */
	unsigned targets;		/* nodes */
	unsigned qps; /* of an issuer; the i-th of all goes to target i */
	unsigned cores;
	enum ibv_wr_opcode opcode;
	uint32_t len;
	bool inlined;
	bool dc; /* each issuer has DCIs, and a target for each QP it would have */
	unsigned dcis; /* of an issuer; 0: one */
	/* Requests outstanding, at most: of a QP. */
	unsigned depth;
	/* Not 0: the issuer posts so many requests (at most depth) on QPs drawn
	 * at random, waits for all completions, and repeats that. */
	unsigned window;
	/* Of the requests, as many are posted at once. */
	unsigned batch;
	uint32_t entry_ns; /* of each post, besides what the device takes */
	struct hist *hist; /* of all requests; may be NULL */
	uint64_t warm_ns, run_ns;
};

struct bed_result {
	double mops;
	double lat_ns;	 /* mean, from the call that posts to the completion */
	double burst_ns; /* the same of a window */
	uint64_t ops;
	struct sim_nic_counts issuer, target; /* the first node's, in run_ns */
	uint64_t hash, virtual_ns, events;
};

/* 0, or a negative errno if the test bed could not run; -EIO: a completion with
 * an error. */
int bed_run(const struct bed_conf *conf, struct bed_result *res);

#endif
