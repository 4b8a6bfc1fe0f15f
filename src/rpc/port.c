/* SPDX-License-Identifier: MIT */
/* port.c - what messages cost, in models that charge for them. */
#include "rpc/port.h"

void rpc_port_charge(struct rpc_port *port, enum env_cost pair, unsigned count)
{
	env_charge(port->model, ENV_COST_MESSAGE, 1);
	env_charge(port->model, pair, count);
}
