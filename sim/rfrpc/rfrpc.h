/* SPDX-License-Identifier: MIT */
/*
 * rfrpc.h - what the scenarios of RF-RPC's section 5 have in common: its setting
 * (section 5.1), the ways in which results come, and what the paper says beside
 * what came out.
 *
 * The NIC is fitted to RF-RPC's figure 1 and section 2.4. No cost of software,
 * and nothing else, was fitted on these figures: what comes out is a prediction.
 */
#ifndef SKEIN_SIM_RFRPC_RFRPC_H
#define SKEIN_SIM_RFRPC_RFRPC_H

#include "sim/figure.h"

#define RFRPC_CLIENTS 7u /* nodes */
#define RFRPC_CALLERS 5u /* threads of each */

enum rfrpc_way {
	RFRPC_REPLY,
	RFRPC_FETCH,
	RFRPC_AUTO,
	/* reply_wait.h. The server's WRITEs are not inline, as those of
	 * figure 1 are not in our model. */
	RFRPC_REPLY_WAIT,
	RFRPC_REPLY_WAIT_INLINE, /* ... inline, as in the other ways */
	RFRPC_WAYS,
};

extern const char *const rfrpc_names[RFRPC_WAYS];

/* conf is as in section 5.1; conf.servers is set by the caller. nodes: of
 * clients, unless sc says it; threads: callers of each. */
int rfrpc_begin(struct figure *f, const struct scenario_conf *sc,
		struct report *rep, unsigned nodes, unsigned threads);
/* Each caller has a connection to each thread (rpc_bed.h). Connecting, which no
 * figure counts, is then made 100 times as fast. */
void rfrpc_keys(struct figure *f, enum rpc_bed_keys keys);
int rfrpc_point(struct figure *f, enum rfrpc_way way, struct rpc_bed_result *r);

#endif
