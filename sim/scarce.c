/* SPDX-License-Identifier: MIT */
/* scarce.c - rings, windows and send queues that run out; see scarce.h. */
#include "sim/scarce.h"

#include "conn/ctx.h"
#include "dev/sim/link.h"
#include "rpc/state.h"

void scarce_send_queues(struct sim_world *w)
{
	static const uint32_t wr_max[] = {20, 32, 64, 127};
	struct prng r;

	sim_prng(w, 0x736361726365, &r);
	sim_net_set_send_wr_max(w, wr_max[prng_below(&r, 4)]);
}

void scarce_rings(struct skein_ctx *ctx, struct actor *a)
{
	struct rpc_ctx *rx = conn_ctx_module(ctx, CONN_MODULE_RPC);
	struct rpc_conf *c = &rx->conf;

	c->ring = (size_t)4096 << actor_draw(a, 7);
	c->resp_ring = (size_t)4096 << actor_draw(a, 7);
	c->msg_max = (size_t)1024 << actor_draw(a, 5);
	if (c->msg_max > c->ring)
		c->msg_max = c->ring;
	if (c->msg_max > c->resp_ring)
		c->msg_max = c->resp_ring;
	c->resp_inline = (c->msg_max - RPC_RESP_ROOM) & ~(size_t)7;
	c->window = 4u << actor_draw(a, 9);
	c->later = 4u << actor_draw(a, 9);
}
