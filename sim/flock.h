/* SPDX-License-Identifier: MIT */
/*
 * flock.h - what the scenarios of FLOCK's chapter 4 have in common: its setting
 * (section 4.1), the tables, and the paper's figures beside ours.
 *
 * Nothing was calibrated on these figures: ours are predictions.
 */
#ifndef SKEIN_SIM_FLOCK_H
#define SKEIN_SIM_FLOCK_H

#include "sim/rpc_bed.h"
#include "sim/scenario.h"

#define FLOCK_CLIENTS 23u /* nodes */
#define FLOCK_SERVERS 32u /* cores of the server's */

struct flock {
	const struct scenario_conf *sc;
	struct report *rep;
	struct nic_model nic;
	struct rpc_bed_conf conf; /* of the next point */
};

/* Sets conf as in section 4.3.1, with one thread and `nodes` clients, unless
 * --nodes gives another number. The report names this number and that of the
 * paper. */
int flock_begin(struct flock *f, const struct scenario_conf *sc,
		struct report *rep, unsigned nodes);
/* The table: x is what its first column is called. */
void flock_columns(struct flock *f, const char *x);
void flock_line(struct flock *f, const char *label, double x,
		const struct rpc_bed_result *r);
/* One point, and its line if it has a label. */
int flock_point(struct flock *f, const char *label, double x,
		struct rpc_bed_result *r);
/* Without lanes: each thread has a connection and an engine, or threads share a
 * connection by a lock (conf.share). */
int flock_baseline(struct flock *f, enum rpc_bed_system system,
		   const char *label, double x, struct rpc_bed_result *r);
/* Each process has one handle. It has as many lanes as the server's scheduler
 * would leave to each client if there were as many clients as in the paper, and
 * at most one lane for each thread. */
int flock_lanes(struct flock *f, const char *label, double x,
		struct rpc_bed_result *r);
/* Adds a row with a / b, and a row with the paper's figure. Adds nothing if a
 * point was left out. */
void flock_claim(struct flock *f, const char *name, double a, double b,
		 const char *paper_name, double paper);
#define FLOCK_CLAIM(f, name, a, b, paper) \
	flock_claim(f, name, a, b, name "_paper", paper)

#endif
