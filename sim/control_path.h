/* SPDX-License-Identifier: MIT */
/*
 * control_path.h - how long it takes to make and connect QPs, measured through
 * the device seam: by one caller, and by as many callers as keep a NIC busy.
 */
#ifndef SKEIN_SIM_CONTROL_PATH_H
#define SKEIN_SIM_CONTROL_PATH_H

#include "dev/sim/model.h"

struct control_times {
	double create_qp_us;	 /* one call, alone */
	double create_qp_nic_us; /* the NIC's part: each of many at once */
	double qps_per_s;	 /* CQ, QP and its three transitions, many */
	double connect_us;	 /* two ends at once, devices open */
	double first_us;	 /* the same, the client's device not open */
	uint64_t hash, virtual_ns, events;
};

int control_path(const struct nic_model *nic, uint64_t seed,
		 struct control_times *t);

#endif
