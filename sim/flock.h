/* SPDX-License-Identifier: MIT */
/*
 * flock.h - what the scenarios of FLOCK's chapter 4 have in common: its setting
 * (section 4.1), their tables, and what the paper says beside what came out.
 *
 * Nothing was calibrated on these figures: what comes out is a prediction.
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

/* conf is as in section 4.3.1, of one thread; `nodes` clients unless --nodes
 * says otherwise: the report tells how many, and how many the paper has. */
int flock_begin(struct flock *f, const struct scenario_conf *sc,
		struct report *rep, unsigned nodes);
/* The table: x is what its first column is called. */
void flock_columns(struct flock *f, const char *x);
void flock_line(struct flock *f, const char *label, double x,
		const struct rpc_bed_result *r);
/* One point, and its line if it has a label. */
int flock_point(struct flock *f, const char *label, double x,
		struct rpc_bed_result *r);
/* A connection and an engine for each thread, or a lock: conf.share. */
int flock_baseline(struct flock *f, enum rpc_bed_system system,
		   const char *label, double x, struct rpc_bed_result *r);
/* A handle each process, with as many lanes as the server's scheduler would
 * leave to each of all of the paper's clients, at most one a thread. */
int flock_lanes(struct flock *f, const char *label, double x,
		struct rpc_bed_result *r);
/* A row: a / b, and one of what the paper has. Not when a point was left out. */
void flock_claim(struct flock *f, const char *name, double a, double b,
		 const char *paper_name, double paper);
#define FLOCK_CLAIM(f, name, a, b, paper) \
	flock_claim(f, name, a, b, name "_paper", paper)

#endif
