/* SPDX-License-Identifier: MIT */
/*
 * carrier.h - vqps for pooled connections: conn/pool.h.
 */
#ifndef SKEIN_VQP_CARRIER_H
#define SKEIN_VQP_CARRIER_H

#include "conn/pool.h"

/* The port that a node's pooled listener has bound. */
#define CARRIER_PORT 1u

extern const struct conn_pool_ops vqp_carrier;

#endif
