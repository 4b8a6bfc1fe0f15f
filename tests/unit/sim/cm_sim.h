/* SPDX-License-Identifier: MIT */
/*
 * cm_sim.h - a world of two nodes for the tests in this folder.
 */
#ifndef SKEIN_TESTS_UNIT_SIM_CM_SIM_H
#define SKEIN_TESTS_UNIT_SIM_CM_SIM_H

#include "unit/cm.h"
#include "env/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct two {
	struct sim_world *w;
	struct sim_node *node[2];
	struct sim_proc *proc[2];
	struct skein_env *env[2];
};

static inline void two_log(void *arg, uint64_t now_ns, const char *line)
{
	printf("%10lu ns %s\n", (unsigned long)now_ns, line);
}

static inline void two_up(struct two *t, uint64_t seed, unsigned cores)
{
	struct sim_conf conf = {
		.seed = seed, .log = two_log, .log_level = ENV_LOG_WARN};

	assert_int_equal(sim_world_new(&conf, &t->w), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sim_node_new(t->w, i ? "n2" : "n1", cores,
					      &t->node[i]),
				 0);
		assert_int_equal(sim_proc_new(t->node[i], "p", &t->proc[i]), 0);
		t->env[i] = sim_proc_env(t->proc[i]);
	}
}

static inline void two_down(struct two *t)
{
	sim_world_free(t->w);
}

#endif
