/* SPDX-License-Identifier: MIT */
/*
 * ends.h - what the two ends of ud_rpc share.
 */
#ifndef SKEIN_BENCH_UD_ENDS_H
#define SKEIN_BENCH_UD_ENDS_H

#include "opts.h"
#include "port.h"

#include "base/fence.h"
#include "base/prng.h"

#include <sched.h>

/* The device of this process, opened once for its threads. */
struct ud_end {
	const struct ud_opts *o;
	struct skein_env *env;
	struct dev *dev;
	struct ibv_pd *pd;
};

/* 0, or -1 after a line that says why. */
int ud_end_open(struct ud_end *e, const struct ud_opts *o);
void ud_end_close(struct ud_end *e);

/* Which datagrams a thread loses: one in so many, the same in each run. */
struct ud_loss {
	struct prng rnd;
	uint64_t one_in;
};

/* Into conf, when options ask for it. */
void ud_loss_init(struct ud_loss *l, const struct ud_opts *o, unsigned thread,
		  struct ud_port_conf *conf);

/* A fruitless round. A thread with a core to itself looks on; where there are
 * more it gives way as those do that wait for a combining queue. */
static inline void ud_rest(unsigned *round, uint64_t threads)
{
	unsigned limit = threads > 1 ? 64 : 4096;

	if (++*round % limit == 0)
		sched_yield();
	else if (threads > 1)
		cpu_pause();
}

/* The exit statuses of the two ends. */
int ud_serve(const struct ud_opts *o);
int ud_call(const struct ud_opts *o);

#endif
