/* SPDX-License-Identifier: MIT */
/*
 * figure.h - what the scenarios of a paper's figures have in common: the test
 * bed's setting, the report, and the paper's number beside ours.
 */
#ifndef SKEIN_SIM_FIGURE_H
#define SKEIN_SIM_FIGURE_H

#include "sim/rpc_bed.h"
#include "sim/scenario.h"

struct figure {
	const struct scenario_conf *sc;
	struct report *rep;
	struct nic_model nic;
	struct rpc_bed_conf conf; /* of the next point */
};

/* Sets all but conf. The NIC is the user's choice, else `nic`. */
int figure_begin(struct figure *f, const struct scenario_conf *sc,
		 struct report *rep, const char *nic);
/* Runs conf, and adds the world's figures to the report. */
int figure_point(struct figure *f, struct rpc_bed_result *r);
/* Adds a row with a / b, and one with the paper's figure, unless that is 0.
 * Then also by how many per cent ours is above it. Adds nothing if a point was
 * left out. */
void figure_claim(struct figure *f, const char *name, double a, double b,
		  const char *paper_name, const char *error_name, double paper);
#define FIGURE_CLAIM(f, name, a, b, paper) \
	figure_claim(f, name, a, b, name "_paper", name "_error_%", paper)

#endif
