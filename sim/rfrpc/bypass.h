/* SPDX-License-Identifier: MIT */
/*
 * bypass.h - points of RF-RPC's baseline that bypasses the server: GETs by READs
 * of a Pilaf table, PUTs by calls; and requests of a fixed number of READs.
 */
#ifndef SKEIN_SIM_RFRPC_BYPASS_H
#define SKEIN_SIM_RFRPC_BYPASS_H

#include "sim/rfrpc/rfrpc.h"

struct bypass_result {
	double mops, mean_us, p50_us, p99_us;
	double reads; /* a GET */
	double torn;  /* READs that failed their checksum, a GET */
};

/* READs a request, or 0: Pilaf's. Uses f->conf, put_pct of it too. -EIO: a GET
 * found nothing, or bytes of two values. */
int bypass_point(struct figure *f, unsigned reads, struct bypass_result *r);

#endif
