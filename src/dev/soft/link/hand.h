/* SPDX-License-Identifier: MIT */
/*
 * hand.h - from the process that has accepted a connection to the one that it
 * is for: its descriptor and the hello that was read from it, over a local
 * socket named after the block of QPNs. Processes of one uid.
 */
#ifndef SKEIN_DEV_SOFT_LINK_HAND_H
#define SKEIN_DEV_SOFT_LINK_HAND_H

#include "dev/soft/link/frame.h"

/* Where what is for this block comes: a socket to accept from. -errno. */
int hand_listen(uint32_t block, int backlog);
/* Is the other end of a local socket of our uid? */
bool hand_is_ours(int fd);
/* To the block's owner. The caller closes its own descriptor, too. False:
 * nobody owns it, or it takes no more. */
bool hand_over(int conn, uint8_t hello[FRAME_HELLO], uint32_t block);
/* The descriptor that came by an accepted socket; -EAGAIN: not yet. */
int hand_receive(int from, uint8_t hello[FRAME_HELLO]);

#endif
