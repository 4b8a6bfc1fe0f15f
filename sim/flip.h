/* SPDX-License-Identifier: MIT */
/*
 * flip.h - the mode of return of a connection, changed from outside: later calls
 * are fetched, or replied. What is under way stays as it is.
 *
 * Thread rule: any fiber of the process; one that yields inside a round finds
 * the change as if it had come before or behind it.
 */
#ifndef SKEIN_SIM_FLIP_H
#define SKEIN_SIM_FLIP_H

#include "rpc/lane_client.h"

/* conn: opened here. Nothing on one that does not fetch, or is down. */
static inline void sim_flip_return(struct skein_conn *conn, bool fetch)
{
	struct rpc_conn *rc = rpc_conn_of(conn);

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
