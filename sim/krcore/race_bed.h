/* SPDX-License-Identifier: MIT */
/*
 * race_bed.h - clients that GET from a RACE table: the lists of requests that
 * apps/race posts, over RC or DC QPs of a simulated device.
 *
 * The table is made and read once by apps/race itself, in plain memory, and
 * each GET's lists are kept. A client has some GETs under way at a time, and
 * posts the next list of each when the one before has completed; what it READs
 * is compared with the table.
 */
#ifndef SKEIN_SIM_KRCORE_RACE_BED_H
#define SKEIN_SIM_KRCORE_RACE_BED_H

#include "base/hist.h"
#include "dev/sim/model.h"

#include <stdbool.h>
#include <stdint.h>

struct race_bed_conf {
	uint64_t seed;
	const struct nic_model *nic;
	unsigned nodes, clients; /* clients: on each of the nodes */
	unsigned storages;	 /* nodes: each has a table */
	bool dc; /* a client has a DC QP for each storage node */
	/* As apps/race, which looks at the marks of the buckets once more. False:
	 * as the paper on RACE, which does not. */
	bool marks;
	bool one_by_one; /* each READ is a post, and waits for the one before */
	unsigned gets;	 /* under way, of a client */
	uint32_t entry_ns; /* of each post */
	uint64_t warm_ns, run_ns;
};

struct race_bed_result {
	double mops;  /* GETs */
	double reads; /* of a GET */
	struct hist hist;
	uint64_t hash, virtual_ns, events;
};

/* 0 or a negative errno; -EIO: a READ has failed; -EBADMSG: it has brought
 * something else. */
int race_bed_run(const struct race_bed_conf *conf, struct race_bed_result *res);

#endif
