/* SPDX-License-Identifier: MIT */
/*
 * meter.h - the progress of a copy as one line: what has arrived everywhere,
 * rate, time left, and the slowest receiver.
 *
 * Pure: it is told the time.
 */
#ifndef CP_SENDER_METER_H
#define CP_SENDER_METER_H

#include <stdbool.h>

#include "cp/sender/job.h"

enum {
	CP_METER_LINE = 160,
};

struct cp_meter {
	uint64_t drawn_ns; /* when a line was made last; 0: never */
	uint64_t mark_ns;  /* the rate counts from here */
	uint64_t mark_done;
	double rate; /* bytes a second; 0: not known yet */
};

/* Makes the line, at most ten times a second, else returns false. */
bool cp_meter_line(struct cp_meter *m, uint64_t now_ns,
		   const struct cp_progress *p, char line[CP_METER_LINE]);

#endif
