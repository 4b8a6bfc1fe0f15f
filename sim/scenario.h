/* SPDX-License-Identifier: MIT */
/*
 * scenario.h - what a simulation is: a world built from a seed, run, judged.
 *
 * A scenario builds its nodes and processes, lets them run, and checks what
 * must hold. It draws everything from its seed: the same seed is the same run.
 */
#ifndef SKEIN_SIM_SCENARIO_H
#define SKEIN_SIM_SCENARIO_H

#include "dev/sim/model.h"
#include "env/sim/sim.h"

#include <stdbool.h>
#include <stdint.h>

struct fault_script;

struct scenario_conf {
	uint64_t seed;
	bool faults;
	/* how large, where a scenario asks; 0: as it likes */
	uint32_t nodes, threads;
	uint64_t ops;
	/* log lines of the simulated processes; NULL: silence */
	void (*log)(void *arg, uint64_t now_ns, const char *line);
	void *log_arg;
	const struct fault_script *script; /* NULL: faults by chance */
	const struct sim_tracer *tracer;   /* may be NULL */
	/* The NIC of all nodes; NULL: the scenario's own choice. */
	const struct nic_model *nic;
	struct sim_costs costs; /* for scenarios that take them */
};

#define REPORT_ROWS 48
#define TABLE_COLS 8
#define TABLE_LINES 64

/* A figure of the run, with its name and unit in words. */
struct report_row {
	const char *name;
	double value;
};

/* Lines of figures, for those scenarios that measure a curve. */
struct report_table {
	const char *cols[TABLE_COLS];
	unsigned n_cols, n_lines;
	char labels[TABLE_LINES][64]; /* the lines' names, or empty */
	double cells[TABLE_LINES][TABLE_COLS];
};

struct report {
	bool ok;
	char why[320]; /* the first thing that did not hold */
	uint64_t hash, virtual_ns, events;
	struct report_row rows[REPORT_ROWS];
	unsigned n_rows;
	struct report_table table;
};

/* Which of nodes, threads and ops a scenario asks for. */
enum {
	SCENARIO_NODES = 1,
	SCENARIO_THREADS = 2,
	SCENARIO_OPS = 4,
	SCENARIO_SIZES = 7,
};

struct scenario {
	const char *name;
	const char *what; /* one line */
	bool fuzz;	  /* it takes faults, and is worth many seeds */
	bool own_nics;	  /* takes no other NIC */
	bool costs;	  /* takes other costs of software */
	unsigned sizes;	  /* SCENARIO_NODES and its like */
	const char *nic;  /* NULL: connectx5 */
	/* 0 when the scenario ran, whatever it found; a negative errno when it
	 * could not run. */
	int (*run)(const struct scenario_conf *conf, struct report *rep);
};

/* Called before the first device is opened. Sets conf's NIC, or connectx5 with
 * a control path that is up to 32 times as fast; the seed draws how much.
 * Otherwise a run of some milliseconds would see nothing but devices being
 * opened. */
void scenario_nic(struct sim_world *w, const struct scenario_conf *conf);
/* Makes the control path so many times as fast. */
void scenario_hasten(struct nic_model *m, uint32_t times);
/* The i-th scenario, or NULL; by name, or NULL. */
const struct scenario *scenario_at(unsigned i);
const struct scenario *scenario_find(const char *name);

void report_row(struct report *rep, const char *name, double value);
/* Something does not hold. The first one is kept. */
void report_fail(struct report *rep, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* One line of the table: a value each column; NAN: there is none. */
void report_line(struct report *rep, const char *label, const double *cells);
/* The paper's number, and by how many per cent ours is above it; NAN where the
 * paper has none (0). */
double report_paper(double paper);
double report_error(double ours, double paper);
/* What a node's NIC has counted. */
void report_nic(struct report *rep, struct sim_node *node);
/* Adds a world's figures to those of the worlds before it. */
void report_add(struct report *rep, uint64_t hash, uint64_t virtual_ns,
		uint64_t events);
/* The world's part; before it is freed. */
void report_world(struct report *rep, struct sim_world *w);

extern const struct scenario scenario_kv;
extern const struct scenario scenario_rpc_basic;
extern const struct scenario scenario_verbs_rate;
extern const struct scenario scenario_qp_scaling;
extern const struct scenario scenario_inbound_outbound;
extern const struct scenario scenario_calibrate;
extern const struct scenario scenario_mcast_relay;
extern const struct scenario scenario_mcast_scaling;
extern const struct scenario scenario_mcast_engine;
extern const struct scenario scenario_mcast_first;
extern const struct scenario scenario_mcast_algorithms;
extern const struct scenario scenario_mcast_blocks;
extern const struct scenario scenario_mcast_overlap;
extern const struct scenario scenario_mcast_racks;
extern const struct scenario scenario_mcast_apt;
extern const struct scenario scenario_mcast_slow_link;
extern const struct scenario scenario_flock_sharing;
extern const struct scenario scenario_flock_ud;
extern const struct scenario scenario_flock_combining;
extern const struct scenario scenario_flock_threads;
extern const struct scenario scenario_flock_nodes;
extern const struct scenario scenario_mcast_groups;
extern const struct scenario scenario_rfrpc_kv;
extern const struct scenario scenario_rfrpc_time;
extern const struct scenario scenario_rfrpc_batch;
extern const struct scenario scenario_rfrpc_latency;
extern const struct scenario scenario_rfrpc_bypass;
extern const struct scenario scenario_rfrpc_bound;
extern const struct scenario scenario_rfrpc_skew;
extern const struct scenario scenario_rfrpc_roce;
extern const struct scenario scenario_rfrpc_qps;
extern const struct scenario scenario_rfrpc_posts;
extern const struct scenario scenario_rfrpc_nics;
extern const struct scenario scenario_krcore_connect;
extern const struct scenario scenario_krcore_data;
extern const struct scenario scenario_krcore_pool;
extern const struct scenario scenario_krcore_memory;
extern const struct scenario scenario_krcore_race;
extern const struct scenario scenario_krcore_death;
extern const struct scenario scenario_rpc_handles;
extern const struct scenario scenario_rrc_waiting;
extern const struct scenario scenario_rrc_scale;
extern const struct scenario scenario_rrc_timeout;
extern const struct scenario scenario_rrc_ring;
extern const struct scenario scenario_rrc_util;
extern const struct scenario scenario_rrc_ycsb;
extern const struct scenario scenario_vqp;
extern const struct scenario scenario_mcast_large;
extern const struct scenario scenario_mcast_resume;
extern const struct scenario scenario_streams;

#endif
