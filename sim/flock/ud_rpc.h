/* SPDX-License-Identifier: MIT */
/*
 * ud_rpc.h - requests and responses as datagrams: the server's rate, and which
 * part of its cores verbs calls take (FLOCK fig. 2.2(b)).
 */
#ifndef SKEIN_SIM_FLOCK_UD_RPC_H
#define SKEIN_SIM_FLOCK_UD_RPC_H

#include "dev/sim/model.h"
#include "env/sim/sim.h"

#include <stdbool.h>

struct ud_rpc_conf {
	uint64_t seed;
	const struct nic_model *nic;
	unsigned nodes, senders; /* clients'; senders: of all nodes */
	unsigned depth;		 /* requests outstanding, of a sender */
	unsigned cores;		 /* of the server, a thread and a QP each */
	uint32_t len;
	uint32_t handler_ns;
	uint64_t warm_ns, run_ns;
	/* The processor is also charged for finding, decoding and encoding
	 * messages, as for Skein's calls. */
	bool charged;
	struct sim_costs costs;
};

struct ud_rpc_result {
	double mops;
	/* Parts of the server's cores: in verbs calls with polls of an empty
	 * CQ, and without them. */
	double verbs_share, verbs_busy_share;
	double p50_ns, p99_ns; /* of a call, from its post */
	uint64_t hash, virtual_ns, events;
};

int ud_rpc_run(const struct ud_rpc_conf *conf, struct ud_rpc_result *res);

#endif
