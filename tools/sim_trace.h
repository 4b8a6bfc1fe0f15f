/* SPDX-License-Identifier: MIT */
/*
 * sim_trace.h - what a simulation did, as Chrome-trace JSON: for
 * chrome://tracing, ui.perfetto.dev and the like. Processes are nodes; threads
 * are simulated threads and the stations of the NIC.
 */
#ifndef SKEIN_TOOLS_SIM_TRACE_H
#define SKEIN_TOOLS_SIM_TRACE_H

#include "env/sim/sim.h"

#include <stdio.h>

struct sim_trace_file {
	struct sim_tracer tracer;
	FILE *f;
	bool begun;
	int err; /* of the first write that failed: a negative errno */
};

/* A negative errno. */
int sim_trace_open(struct sim_trace_file *t, const char *path);
/* A negative errno when something could not be written. */
int sim_trace_close(struct sim_trace_file *t);

#endif
