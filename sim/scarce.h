/* SPDX-License-Identifier: MIT */
/*
 * scarce.h - a seed draws the sizes of a scenario of calls: so small that all
 * of them run out, at clients and at servers.
 */
#ifndef SKEIN_SIM_SCARCE_H
#define SKEIN_SIM_SCARCE_H

#include "sim/party.h"

/* Send queues of 20 to 127 entries, the same on all devices of the world. Before
 * the first process starts. */
void scarce_send_queues(struct sim_world *w);
/* The context's rings, message sizes and windows; before it has connections. */
void scarce_rings(struct skein_ctx *ctx, struct actor *a);

#endif
