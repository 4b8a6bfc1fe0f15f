/* SPDX-License-Identifier: MIT */
/*
 * rrc.h - RR-Compound's machine: one server of 40 cores, clients on eight other
 * nodes, and one of the ways to wait (stream/poller.h) at both ends.
 *
 * The server's threads are the simulator's, so they share cores and slices; how
 * they wait is poller.c's. The kernel is modelled here: system calls, eventfds,
 * epoll's wake-ups, TCP's work, and the one core that serves the NIC's
 * completion interrupts. A client is not a thread: its node has cores for all,
 * and it follows the same rules by arithmetic.
 */
#ifndef SKEIN_SIM_RRC_H
#define SKEIN_SIM_RRC_H

#include "sim/rrc/fit.h"
#include "sim/scenario.h"
#include "stream/poller.h"

#define RRC_CLIENTS_MAX 320u
#define RRC_WINDOW_MAX 64u

struct rrc_conf {
	uint64_t seed;
	enum poller_mode mode;
	unsigned clients, workers, pollers;
	unsigned window;      /* calls outstanding, of a client */
	uint64_t interval_ns; /* a client waits so long between two calls */
	bool exponential;     /* on average */
	uint32_t server_ns, client_ns; /* an end's own work, a call */
	uint32_t lock_ns;	       /* of which all threads one by one */
	uint32_t wire_ns;
	uint64_t bp_timeout_ns; /* 0 and !measured: none */
	bool measured;		/* bp_timeout is measured */
	/* As the paper's algorithm 2 has it: after bp_timeout a thread sleeps
	 * without another look. */
	bool blind;
	/* A second kind of call, drawn: its work at the server. */
	unsigned other_pct;
	uint32_t other_ns;
	uint64_t warm_ns, run_ns;
};

struct rrc_result {
	double rate; /* calls a second */
	double mean_us, p50_us, p99_us;
	double other_us; /* mean, of the second kind */
	/* Of the server's core time: the rest is idle. */
	double user, sys, softirq;
	double sleeps;	   /* a call */
	double writes;	   /* to eventfds, a call */
	double timeout_us; /* bp_timeout at the end */
	uint64_t hash, virtual_ns, events;
};

int rrc_run(const struct rrc_conf *conf, struct rrc_result *res);

/* A measurement of section IV-E on: gRPC's work, by the mode. */
void rrc_grpc(struct rrc_conf *c, enum poller_mode mode, unsigned clients);

/* Section V-A: short calls by streaming, 32 outstanding a client, 38 working
 * threads. */
void rrc_stream(struct rrc_conf *c, unsigned clients);
/* Section V-E: a store at the server; a call takes `reads` of its reads. */
void rrc_ycsb(struct rrc_conf *c, enum poller_mode mode, unsigned clients,
	      double reads);

/* --- reports ----------------------------------------------------------- */

/* One line: ours beside the paper's, the error in percent, and whether the
 * point was fitted. paper 0: it gives no number. */
void rrc_line(struct report *rep, const char *label, double clients,
	      double ours, double paper, bool fitted);
/* The columns of rrc_line(); ours is in `unit`. */
void rrc_columns(struct report *rep, const char *unit);
/* The same, and the run in the report's hash. */
int rrc_point(struct report *rep, const struct rrc_conf *c,
	      struct rrc_result *r);

#endif
