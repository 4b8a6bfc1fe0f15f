/* SPDX-License-Identifier: MIT */
/*
 * flock_ud.h - calls over UD in eRPC's manner, as a point of FLOCK's figures. The
 * processor pays for messages by the same table as for Skein's own calls.
 */
#ifndef SKEIN_SIM_FLOCK_FLOCK_UD_H
#define SKEIN_SIM_FLOCK_FLOCK_UD_H

#include "sim/flock/flock.h"

/* `senders` is the number on all nodes together; the window is that of
 * f->conf. */
int flock_ud_point(struct figure *f, unsigned senders, double x,
		   struct rpc_bed_result *r);

#endif
