/* SPDX-License-Identifier: MIT */
/*
 * mcast_bed.h - a test bed for the schedules of src/mcast: one process a node,
 * groups of all nodes, one object each, over RC verbs of the simulated NICs.
 *
 * The relay does only what RDMC, section 4.2, asks for. A member sends its
 * blocks in the schedule's order, each as soon as the block is here and the
 * receiver has said by a WRITE that it is ready. It posts a few receives, in
 * the schedule's order. It handles no failure. QPs are made and connected, and
 * the first receives announced, before time starts.
 */
#ifndef SKEIN_SIM_MCAST_MCAST_BED_H
#define SKEIN_SIM_MCAST_MCAST_BED_H

#include "dev/sim/model.h"
#include "mcast/schedule/schedule.h"

#define MCAST_BED_GROUPS 64u

struct mcast_bed_conf {
	uint64_t seed;
	const struct nic_model *nic;
	uint32_t nodes;
	/* Number of groups, each of all nodes; the roots are spread evenly over
	 * the nodes. 0: 1 */
	uint32_t groups;
	enum mcast_algorithm algorithm;
	uint64_t object; /* bytes, of each group */
	uint32_t block;
	uint32_t posted; /* receives of a member at a time; 0: 2 */
	uint32_t window; /* sends of a member at a time; 0: 2 */
	uint32_t rack;	 /* nodes of a rack; 0: one switch */
	uint32_t oversub_pct;
	bool cold;	/* no message goes ahead; the engine's bed */
	bool scattered; /* members stand in racks at random, not in turn */
	/* The path between two members of group 0 is so many times slower than
	 * the others. */
	uint32_t slow_from, slow_to, slow;
	/* The bytes travel and are compared: only for objects of which one copy
	 * for each member fits into memory. */
	bool carry;
	const struct sim_tracer *tracer; /* may be NULL; the engine's bed */
};

struct mcast_bed_result {
	uint64_t ns;	   /* from the send to the last receiver's last block */
	uint64_t first_ns; /* to the first one's */
	uint64_t steps;	   /* of the plan */
	uint64_t blocks;
	uint64_t bytes_out; /* of all NICs */
	uint64_t rnr_naks;  /* ... */
	uint32_t peers_max; /* of a member */
	uint64_t hash, virtual_ns, events;
};

/*
 * 0 or a negative errno. -EIO: a completion with an error; -EBADMSG: a wrong
 * block; -ETIME: the run did not end.
 */
int mcast_bed_run(const struct mcast_bed_conf *conf,
		  struct mcast_bed_result *res);

/* Which node a member of a group is on. place is an index below conf->nodes. */
struct sim_world;
void mcast_bed_place(struct sim_world *w, const struct mcast_bed_conf *conf,
		     uint32_t *place);
uint32_t mcast_bed_node(const struct mcast_bed_conf *conf,
			const uint32_t *place, uint32_t group, uint32_t rank);

#endif
