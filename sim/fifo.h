/* SPDX-License-Identifier: MIT */
/*
 * fifo.h - checks that calls of one session keep the order in which they were
 * made: their numbers rise. It ignores calls of an older session. Pure.
 */
#ifndef SKEIN_SIM_FIFO_H
#define SKEIN_SIM_FIFO_H

#include "sim/scenario.h"

struct fifo {
	uint32_t session; /* 0: none, or one without an order */
	uint32_t last;	  /* plus one */
};

static inline void fifo_begin(struct fifo *f, uint32_t session)
{
	*f = (struct fifo){.session = session};
}

/* Call n of this session has reached the place that must keep the order. */
static inline void fifo_take(struct fifo *f, uint32_t session, uint32_t n,
			     const char *what, struct report *rep)
{
	if (!session || session != f->session)
		return;
	if (n + 1 <= f->last)
		report_fail(rep, "call %u %s after call %u, made later", n,
			    what, f->last - 1);
	f->last = n + 1;
}

#endif
