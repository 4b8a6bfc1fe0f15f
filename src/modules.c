/* SPDX-License-Identifier: MIT */
/*
 * modules.c - the modules that are linked into the library, in the order in
 * which a connection polls them. A module adds itself here and nowhere else.
 */
#include "conn/conn.h"
#include "conn/pool.h"
#include "mcast/state.h"
#include "rpc/state.h"
#include "stream/state.h"
#include "vqp/carrier.h"

const struct conn_module *const conn_modules[] = {
	&rpc_module,
	&mcast_module,
	&stream_module,
	NULL,
};

const struct conn_pool_ops *const conn_pool_ops = &vqp_carrier;
