/* SPDX-License-Identifier: MIT */
/*
 * mcast_engine.h - the test bed of mcast_bed.h with the library itself: a context
 * and a group of <skein/mcast.h> on each node, the object streamed through the
 * group's ring of blocks.
 */
#ifndef SKEIN_SIM_MCAST_MCAST_ENGINE_H
#define SKEIN_SIM_MCAST_MCAST_ENGINE_H

#include "sim/mcast/mcast_bed.h"

/*
 * It ignores conf->posted, conf->window (the engine has its own) and
 * conf->carry. Unless conf->cold, each group first sends a message of at most
 * 64 blocks, for which members allocate their memory. Then all roots send at
 * the same time, and res->ns is the time from there to the last done() of a
 * receiver. There are at most as many groups as nodes.
 *
 * 0 or a negative errno. -EIO: a member failed; -EPROTO: a receiver was not
 * ready; -ETIME: the run did not end.
 */
int mcast_engine_run(const struct mcast_bed_conf *conf,
		     struct mcast_bed_result *res);

#endif
