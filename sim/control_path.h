/* SPDX-License-Identifier: MIT */
/*
 * control_path.h - how long it takes to make and connect QPs, measured through
 * the device seam: by one caller, and by as many callers as keep a NIC busy.
 */
#ifndef SKEIN_SIM_CONTROL_PATH_H
#define SKEIN_SIM_CONTROL_PATH_H

#include "dev/sim/model.h"

#include <stdbool.h>

struct control_times {
	double create_qp_us;	 /* one call, alone */
	double create_qp_nic_us; /* the NIC's part: each of many at once */
	double qps_per_s;	 /* CQ, QP and its three transitions, many */
	double connect_us;	 /* two ends at once, devices open */
	double first_us;	 /* the same, the client's device not open */
	double start_ms;	 /* control_start(): until the last is up */
	uint64_t hash, virtual_ns, events;
};

int control_path(const struct nic_model *nic, uint64_t seed,
		 struct control_times *t);

/* Processes start, one after another, on some nodes in turn; each connects QPs
 * to each server, one after another. */
struct control_start {
	unsigned procs, nodes, servers;
	unsigned qps; /* of a process, to each server; 0: it is up at once */
	bool open;    /* with a device of its node's that is open */
	uint64_t spawn_ns;
};

/* Sets start_ms, hash, virtual_ns and events. */
int control_start(const struct nic_model *nic, uint64_t seed,
		  const struct control_start *conf, struct control_times *t);

#endif
