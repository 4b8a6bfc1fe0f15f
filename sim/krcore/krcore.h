/* SPDX-License-Identifier: MIT */
/*
 * krcore.h - what the scenarios of KRCore's section 5 have in common: the costs of
 * software beside the NIC's, and points that stand beside the paper's.
 *
 * Fitted, all else is predicted: what connectx4.conf is fitted to (2.15 us; 138
 * and 118 M READs a second; 99 us of figure 14a; 413 and 361 us; 712 QPs a
 * second; 15.7 ms), and the three costs below that say so.
 *
 * Two designs are measured. The paper's: a call is a system call, and a look-up
 * of the meta server two READs, one after the other. Ours: a call goes to a node
 * service through a ring in shared memory, or straight into the pool of its own
 * process; a look-up is two READs in one post.
 */
#ifndef SKEIN_SIM_KRCORE_KRCORE_H
#define SKEIN_SIM_KRCORE_KRCORE_H

#include "sim/figure.h"

/* Into the kernel and back. Fitted: fig. 10a, 3.15 - 2.15 us. */
#define KRCORE_ENTRY_NS 1000u
/* A query that a kernel thread answers by an RPC over UD, of the thread. Fitted:
 * fig. 9a, 22 M connections a second / 11.8. */
#define KRCORE_QUERY_NS 536u
/* The start of a process, one at a time. Fitted: fig. 16, 244 ms / 180. */
#define KRCORE_SPAWN_NS 1355556u

/* One line of shared memory from a core to another of the same socket. Assumed:
 * the testbed's processors are not here. */
#define KRCORE_LINE_NS 100u
/* The service's work for a request: 350 instructions at most (bar 3 of the
 * service), 5.9 a nanosecond as all costs of software here. */
#define KRCORE_SERVE_NS 60u

/* DrTM-KV: a bucket of eight slots of 16 bytes, then the entry. Assumed: KRCore
 * does not say how long its two READs are. */
#define KRCORE_BUCKET_LEN 128u

#define KRCORE_NODES 10u
#define KRCORE_CORES 24u
#define KRCORE_CLIENTS 240u

enum krcore_kind {
	KRCORE_FITTED,
	KRCORE_PREDICTED,
	KRCORE_OURS, /* the paper has no such figure: it is 0 */
};

struct krcore_bed_conf;
/* Clients that connect. pollers 0: entry by a system call, and each client has a
 * pool of its own, as a core has. Else by ring: the clients of a node share
 * `pollers` threads of a service. */
struct krcore_bed_conf krcore_clients(const struct figure *f, unsigned nodes,
				      unsigned clients, unsigned pollers);

struct krcore_bed_result;
/* One run of the bed, which counts in the report. 0 or a negative errno. */
int krcore_run(struct figure *f, const struct krcore_bed_conf *conf,
	       struct krcore_bed_result *r);

/* Begins a report of points. */
int krcore_begin(struct figure *f, const struct scenario_conf *sc,
		 struct report *rep);
/* One line: the paper's figure, ours, the error in percent. A predicted point
 * further off than 25 % counts in the row "beyond_25"; a fitted one further off
 * than 15 % fails the run. */
void krcore_point(struct figure *f, enum krcore_kind kind, const char *name,
		  double paper, double ours);
/* Adds the rows that count points. */
void krcore_end(struct figure *f);

#endif
