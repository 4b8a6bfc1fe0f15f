/* SPDX-License-Identifier: MIT */
/*
 * end.h - a simulated process with a device and memory that others may reach.
 * Test beds consist of such ends. An end goes with its world.
 */
#ifndef SKEIN_SIM_END_H
#define SKEIN_SIM_END_H

#include "dev/dev.h"
#include "env/sim/sim.h"

struct end {
	struct sim_node *node;
	struct sim_proc *proc;
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	void *mem;
};

/* Makes an end on `node`, with len bytes of memory and a CQ of cqe entries.
 * Called outside of all threads, it takes no virtual time. 0 or a negative
 * errno. */
int end_up(struct end *e, struct sim_node *node, size_t len, unsigned cqe);

#endif
