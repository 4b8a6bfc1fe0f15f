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

#define END_DC_KEY 0x5ce1u

/* From a to b: a QP in RTS that takes `depth` requests. all: each has a
 * completion. */
int end_rc(struct end *a, struct end *b, unsigned depth, uint32_t inline_max,
	   bool all, struct ibv_qp **qp);
/* What DCIs reach under END_DC_KEY: no receive is ever taken. */
int end_dct(struct end *e, struct ibv_qp **dct);
int end_dci(struct end *e, unsigned depth, bool all, struct ibv_qp **dci);
/* How a reaches b's target. */
int end_ah(struct end *a, struct end *b, struct ibv_qp *dct,
	   struct ibv_ah **ah);

#endif
