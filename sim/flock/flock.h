/* SPDX-License-Identifier: MIT */
/*
 * flock.h - what the scenarios of FLOCK's chapter 4 have in common: its setting
 * (section 4.1), the tables, and the paper's figures beside ours.
 *
 * Nothing was calibrated on these figures: ours are predictions.
 */
#ifndef SKEIN_SIM_FLOCK_FLOCK_H
#define SKEIN_SIM_FLOCK_FLOCK_H

#include "sim/figure.h"

#define FLOCK_CLIENTS 23u /* nodes */
#define FLOCK_SERVERS 32u /* cores of the server's */

/* Sets conf as in section 4.3.1, with one thread and `nodes` clients, unless
 * --nodes gives another number. The report names this number and that of the
 * paper. */
int flock_begin(struct figure *f, const struct scenario_conf *sc,
		struct report *rep, unsigned nodes);
/* The table: x is what its first column is called. */
void flock_columns(struct figure *f, const char *x);
void flock_line(struct figure *f, const char *label, double x,
		const struct rpc_bed_result *r);
/* One point, and its line if it has a label. */
int flock_point(struct figure *f, const char *label, double x,
		struct rpc_bed_result *r);
/* Without lanes: each thread has a connection and an engine, or threads share a
 * connection by a lock (conf.share). */
int flock_baseline(struct figure *f, enum rpc_bed_system system,
		   const char *label, double x, struct rpc_bed_result *r);
/* Each process has one handle. It has as many lanes as the server's scheduler
 * would leave to each client if there were as many clients as in the paper, and
 * at most one lane for each thread. */
int flock_lanes(struct figure *f, const char *label, double x,
		struct rpc_bed_result *r);

#endif
