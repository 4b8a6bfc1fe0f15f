/* SPDX-License-Identifier: MIT */
/*
 * flip.h - changes a connection's modes of return from outside: of each rpc id,
 * results of later calls are fetched, or sent as replies. Calls under way keep their mode.
 *
 * Thread rule: any fiber of the process. A round during which a fiber yields
 * sees the change as if it had come before the round or after it.
 */
#ifndef SKEIN_SIM_FLIP_H
#define SKEIN_SIM_FLIP_H

#include "rpc/client/lane_client.h"

/* conn: this process opened it. Does nothing if the connection does not fetch,
 * or is down. */
#define SIM_FLIPS (4 * (RPC_MODE_ALL + 1)) /* `drawn` is below this */

static inline void sim_flip_return(struct skein_conn *conn, unsigned drawn)
{
	struct rpc_conn *rc = rpc_conn_of(conn);
	uint32_t fetch = drawn % 4 == 0	  ? 0
			 : drawn % 4 == 1 ? RPC_MODE_ALL
					  : drawn / 4 & RPC_MODE_ALL;

	if (!rc || !rc->up || !rc->lane_client)
		return;
	for (unsigned i = 0; i < conn_lanes(conn); i++) {
		struct rpc_conn *lane = rc->lane_client->handle->lanes[i];

		if (!lane || !lane->up || !lane->client.rx.rf.able)
			continue;
		lane->client.rx.rf.wanted = fetch;
		lane->client.rx.look = true;
	}
}

#endif
