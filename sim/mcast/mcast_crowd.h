/* SPDX-License-Identifier: MIT */
/*
 * mcast_crowd.h - the common part of the scenarios that run one group of many
 * processes, one on each node, and kill some of them.
 */
#ifndef SKEIN_SIM_MCAST_MCAST_CROWD_H
#define SKEIN_SIM_MCAST_MCAST_CROWD_H

#include "base/prng.h"
#include "env/sim/sim.h"
#include "sim/scenario.h"

#include <skein/skein.h>

/* The port of every member. */
#define CROWD_PORT ":7000"

/* A world as conf has it, with its NICs. */
int crowd_world(const struct scenario_conf *conf, struct sim_world **w);
/* A context of the process, with a listener. 0 or a negative errno: then there
 * is none. */
int crowd_ctx(struct sim_proc *proc, struct skein_ctx **ctx);
/* The pipeline in half of all cases. */
enum skein_mcast_algorithm crowd_algorithm(struct prng *prng);
/* Checks a member that was not killed: it has ended, and left no memory and no
 * descriptor. */
void crowd_judge_end(struct report *rep, uint32_t i, struct sim_proc *proc,
		     bool ended);
/* A READY comes before each block, and a credit before each immediate. */
void crowd_judge_nic(struct report *rep, uint32_t i, struct sim_node *node);

#endif
