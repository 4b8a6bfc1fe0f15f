/* SPDX-License-Identifier: MIT */
/*
 * reply_wait.h - a device on which a thread waits, busy, for the completion of
 * each post before it goes on: RF-RPC's ServerReply, as a baseline. All else of
 * the library is as ever.
 */
#ifndef SKEIN_SIM_RFRPC_REPLY_WAIT_H
#define SKEIN_SIM_RFRPC_REPLY_WAIT_H

struct dev;

/* From now on, for all that is posted through this simulated device. */
void reply_wait_on(struct dev *dev);

#endif
