/* SPDX-License-Identifier: MIT */
/*
 * mcast_engine.h - the test bed of mcast_bed.h with the library itself: a context
 * and a group of <skein/mcast.h> on each node, the object streamed through the
 * group's ring of blocks.
 */
#ifndef SKEIN_SIM_MCAST_ENGINE_H
#define SKEIN_SIM_MCAST_ENGINE_H

#include "sim/mcast_bed.h"

/*
 * Of conf it does not look at posted, window (the engine has its own) and carry.
 * A message of at most 64 blocks goes ahead in each group, for which members
 * take their memory, unless conf->cold; then all roots send at one time, and res->ns is from there
 * to the last receiver's done(). No more groups than nodes.
 *
 * 0; -EIO when a member failed, -EPROTO when a receiver was not ready, -ETIME when it came to no end; else why it could
 * not be run.
 */
int mcast_engine_run(const struct mcast_bed_conf *conf,
		     struct mcast_bed_result *res);

#endif
