/* SPDX-License-Identifier: MIT */
/*
 * sim_fuzz.h - `skein sim fuzz`: scenarios under many seeds, in as many
 * processes as there are cores, up to the first failure. A process that dies
 * is one too: what it ran is known.
 */
#ifndef SKEIN_TOOLS_SIM_FUZZ_H
#define SKEIN_TOOLS_SIM_FUZZ_H

#include "sim/scenario.h"

struct sim_fuzz {
	const char *seeds;	  /* "A..B" */
	const char *const *names; /* of scenarios */
	unsigned n_names;	  /* 0: all that take faults */
	bool json;
	const char *options; /* for the command that shows a failure again */
	/* Did it go well? In a process of its own. */
	bool (*run)(void *arg, const struct scenario *s, uint32_t seed);
	void *arg;
};

/* Prints the outcome: an exit status of cmd.h. */
int sim_fuzz(const struct sim_fuzz *f);

#endif
