/* SPDX-License-Identifier: MIT */
/*
 * tune.c - the seed draws the settings of contexts and handles of
 * rpc-handles: rings, windows and limits so small that all of them run out.
 */
#include "conn/state.h"
#include "rpc/state.h"
#include "sim/handles/rpc_handles.h"
#include "sim/scarce.h"

static uint64_t draw(struct handles_peer *p, uint64_t n)
{
	return actor_draw(&p->a, n);
}

void handles_tune(struct handles_peer *p)
{
	struct rpc_ctx *rx = conn_ctx_module(p->a.ctx, CONN_MODULE_RPC);

	scarce_rings(p->a.ctx, &p->a);
	rx->conf.thread_interval_ns = 100000ull << draw(p, 7);
	rx->aqp.max = 1 + (uint32_t)draw(p, 16);
	rx->aqp.interval_ns = 100000ull << draw(p, 7);
}

void handles_gather(struct handles_peer *p, struct skein_conn *conn)
{
	unsigned least = 2 + (unsigned)draw(p, 7);

	for (unsigned i = 0; i < conn_lanes(conn); i++) {
		struct combiner *q = conn_sendq_queue(conn_lane(conn, i));

		q->least = least < q->bound ? least : q->bound;
	}
}
