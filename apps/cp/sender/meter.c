/* SPDX-License-Identifier: MIT */
/*
 * meter.c - the progress of a copy as one line; see meter.h.
 */
#include "cp/sender/meter.h"

#include "base/fmt.h"

#include <stdio.h>

#define DRAW_NS 100000000u
/* A rate is measured over that long, and half of the one before stays in it. */
#define RATE_NS 500000000u

static void measure(struct cp_meter *m, uint64_t now, uint64_t done)
{
	double rate;

	if (!m->mark_ns || done < m->mark_done) {
		m->mark_ns = now;
		m->mark_done = done;
		return;
	}
	if (now - m->mark_ns < RATE_NS)
		return;
	rate = (double)(done - m->mark_done) * 1e9 / (double)(now - m->mark_ns);
	m->rate = m->rate > 0 ? (m->rate + rate) / 2 : rate;
	m->mark_ns = now;
	m->mark_done = done;
}

static void time_left(char *buf, size_t len, double seconds)
{
	if (seconds >= 3600)
		snprintf(buf, len, "%lu h %02lu min left",
			 (unsigned long)seconds / 3600,
			 (unsigned long)seconds / 60 % 60);
	else if (seconds >= 60)
		snprintf(buf, len, "%lu:%02lu left",
			 (unsigned long)seconds / 60,
			 (unsigned long)seconds % 60);
	else
		snprintf(buf, len, "%.0f s left", seconds);
}

bool cp_meter_line(struct cp_meter *m, uint64_t now_ns,
		   const struct cp_progress *p, char line[CP_METER_LINE])
{
	char done[FMT_LEN], total[FMT_LEN], rate[FMT_LEN], left[40] = "";
	int n;

	if (p->total)
		measure(m, now_ns, p->done);
	if (m->drawn_ns && now_ns - m->drawn_ns < DRAW_NS)
		return false;
	m->drawn_ns = now_ns;
	if (!p->total) {
		snprintf(line, CP_METER_LINE, "%s, %u target%s", p->what,
			 p->receivers, p->receivers == 1 ? "" : "s");
		return true;
	}
	n = snprintf(line, CP_METER_LINE, "%3.0f %%  %s of %s",
		     100.0 * (double)p->done / (double)p->total,
		     fmt_bytes(done, sizeof(done), p->done),
		     fmt_bytes(total, sizeof(total), p->total));
	if (m->rate > 0) {
		time_left(left, sizeof(left),
			  (double)(p->total - p->done) / m->rate);
		n += snprintf(line + n, CP_METER_LINE - (size_t)n, "  %s/s  %s",
			      fmt_bytes(rate, sizeof(rate), (uint64_t)m->rate),
			      left);
	}
	if (p->slowest && p->receivers > 1)
		snprintf(line + n, CP_METER_LINE - (size_t)n, "  slowest %.48s",
			 p->slowest);
	return true;
}
