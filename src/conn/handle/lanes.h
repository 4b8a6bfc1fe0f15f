/* SPDX-License-Identifier: MIT */
/*
 * lanes.h - the QPs of a handle that many threads share.
 *
 * A handle opened with attr.qps has that many lanes. Lane 0, the head, is the
 * connection that the application holds; src/conn opens, closes and hides the
 * others. The application hears READY when all lanes are up, and BROKEN when
 * all are down. docs/handles.md.
 *
 * A module's hooks are called for each lane as for any connection: ready() of
 * lane 0 is the first, its broken() and closed() are the last. The head exists
 * as long as any other lane.
 *
 * Thread rule: any thread, as long as the handle exists.
 */
#ifndef SKEIN_CONN_HANDLE_LANES_H
#define SKEIN_CONN_HANDLE_LANES_H

#include "conn/conn.h"

#define CONN_LANES_MAX 1024u /* the protocol's */

/* How many lanes its handle has. */
unsigned conn_lanes(const struct skein_conn *conn);
/* conn's number among them; 0 for the head. */
unsigned conn_lane_index(const struct skein_conn *conn);
/* Lane 0 of conn's handle: what the application knows. */
struct skein_conn *conn_lane_head(struct skein_conn *conn);
/* Lane i of conn's handle, only at the end that opened it (at the other end
 * another engine may own the lane and end it at any time). All lanes exist from
 * open to close, up or not. */
struct skein_conn *conn_lane(struct skein_conn *conn, unsigned i);
/* attr.combine, or SKEIN_COMBINE: requests a message. */
unsigned conn_combine(const struct skein_conn *conn);
/* SKEIN_COMBINE_LEAST: how many a leader waits for, for a while; 1. */
unsigned conn_combine_least(const struct skein_conn *conn);
/* attr.latency_bound_ns and latency_tolerance, or SKEIN_RPC_LATENCY_BOUND and
 * SKEIN_RPC_LATENCY_TOLERANCE; in percent. 0: none, the default. */
void conn_latency_bound(const struct skein_conn *conn, uint64_t *bound_ns,
			unsigned *tolerance);
/* attr.return_mode, or SKEIN_RPC_RETURN: may results be fetched by READs? */
bool conn_fetch(const struct skein_conn *conn);
/* Is it auto: fetched, or not, by what gives more calls? */
bool conn_return_auto(const struct skein_conn *conn);

#endif
