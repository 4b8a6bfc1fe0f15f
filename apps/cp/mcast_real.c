/* SPDX-License-Identifier: MIT */
/*
 * mcast_real.c - the library's multicast; see mcast_ops.h.
 */
#include "cp/mcast_ops.h"

const struct cp_mcast_ops cp_mcast_real = {
	.open = skein_mcast_open,
	.send_stream = skein_mcast_send_stream,
	.block_done = skein_mcast_block_done,
	.finish = skein_mcast_finish,
	.stats = skein_mcast_get_stats,
	.close = skein_mcast_close,
	.abort = skein_mcast_abort,
};
