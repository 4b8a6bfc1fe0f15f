/* SPDX-License-Identifier: MIT */
/*
 * scenario.h - what a simulation is: a world built from a seed, run, judged.
 *
 * A scenario builds its nodes and processes, lets them run, and checks what
 * must hold. It draws everything from its seed: the same seed is the same run.
 */
#ifndef SKEIN_SIM_SCENARIO_H
#define SKEIN_SIM_SCENARIO_H

#include "env/sim/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct scenario_conf {
	uint64_t seed;
	bool faults;
	/* how large, where a scenario asks; 0: as it likes */
	uint32_t nodes, threads;
	uint64_t ops;
	/* log lines of the simulated processes; NULL: silence */
	void (*log)(void *arg, uint64_t now_ns, const char *line);
	void *log_arg;
};

#define REPORT_ROWS 24

/* A figure of the run, with its name and unit in words. */
struct report_row {
	const char *name;
	double value;
};

struct report {
	bool ok;
	char why[320]; /* the first thing that did not hold */
	uint64_t hash, virtual_ns, events;
	struct report_row rows[REPORT_ROWS];
	unsigned n_rows;
};

struct scenario {
	const char *name;
	const char *what; /* one line */
	bool fuzz;	  /* it takes faults, and is worth many seeds */
	/* 0 when it ran, whatever it found; negative: it could not. */
	int (*run)(const struct scenario_conf *conf, struct report *rep);
};

/* The i-th scenario, or NULL; by name, or NULL. */
const struct scenario *scenario_at(unsigned i);
const struct scenario *scenario_find(const char *name);

void report_row(struct report *rep, const char *name, double value);
/* Something does not hold. The first one is kept. */
void report_fail(struct report *rep, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The world's part; before it is freed. */
void report_world(struct report *rep, struct sim_world *w);

extern const struct scenario scenario_rpc_basic;
extern const struct scenario scenario_verbs_rate;

#endif
