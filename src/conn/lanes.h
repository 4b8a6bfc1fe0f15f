/* SPDX-License-Identifier: MIT */
/*
 * lanes.h - the QPs of a handle that many threads share.
 *
 * A handle opened with attr.qps has that many lanes: lane 0 is the connection
 * that the application holds, the others are connections like it that conn
 * opens, closes and hides. All of a handle's lanes are up before the first is
 * READY for the application, and down before it hears that it is not.
 * docs/handles.md.
 *
 * Modules have each lane's offer(), accept(), confirm(), ready(), poll(),
 * broken() and closed() as any connection's; lane 0 has its ready() first and its
 * broken() and closed() last. A lane's head exists for as long as it.
 *
 * Thread rule: any thread, for as long as the handle exists.
 */
#ifndef SKEIN_CONN_LANES_H
#define SKEIN_CONN_LANES_H

#include "conn/conn.h"

#define CONN_LANES_MAX 1024u /* the protocol's */

/* How many lanes its handle has. */
unsigned conn_lanes(const struct skein_conn *conn);
/* Which one conn is; 0 for the head. */
unsigned conn_lane_index(const struct skein_conn *conn);
/* Lane 0 of conn's handle: what the application knows. */
struct skein_conn *conn_lane_head(struct skein_conn *conn);
/* Lane i of conn's handle, at the end that opened it only (at the other one a
 * lane may be another engine's, and end at any time). All of them exist from open
 * to close, those that are not up too. */
struct skein_conn *conn_lane(struct skein_conn *conn, unsigned i);
/* attr.combine, or SKEIN_COMBINE: requests a message. */
unsigned conn_combine(const struct skein_conn *conn);
/* SKEIN_COMBINE_LEAST: how many a leader waits for, for a while; 1. */
unsigned conn_combine_least(const struct skein_conn *conn);
/* attr.return_mode, or SKEIN_RPC_RETURN: shall results be fetched? */
bool conn_fetch(const struct skein_conn *conn);
/* ... or whichever is better? */
bool conn_return_auto(const struct skein_conn *conn);

#endif
