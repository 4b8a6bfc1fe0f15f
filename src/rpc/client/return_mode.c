/* SPDX-License-Identifier: MIT */
/*
 * return_mode.c - fetched or replied; see return_mode.h.
 */
#include "rpc/client/return_mode.h"

#include "rpc/client/calib.h"

static void begin(struct return_mode *m, uint64_t now_ns)
{
	m->since_ns = now_ns;
	m->calls = 0;
	m->slow = false;
}

void return_mode_init(struct return_mode *m, const struct rpc_calib *calib,
		      uint64_t now_ns)
{
	*m = (struct return_mode){.next_pause = 1, .calib = calib};
	begin(m, now_ns);
}

/* Are fewer calls answered a second than before the switch? */
static bool lost(const struct return_mode *m, uint64_t span_ns)
{
	return (double)m->calls * (double)m->span_ns <
	       (double)m->calls_before * (double)span_ns;
}

static bool pays_not(const struct return_mode *m, uint64_t span_ns)
{
	return (m->judged && lost(m, span_ns)) || (m->fetch && m->slow);
}

static void take_back(struct return_mode *m)
{
	m->fetch = !m->fetch;
	m->judged = false;
	m->pause = m->next_pause;
	if (m->next_pause < RETURN_MODE_PAUSE_MAX)
		m->next_pause *= 2;
}

static bool wants_fetch(const struct return_mode *m)
{
	return m->starved ||
	       (m->calib && m->time && rpc_calib_fetch(m->calib, m->time));
}

/* The interval has ended. The last switch paid off, or is long ago. */
static void go_on(struct return_mode *m)
{
	bool want = wants_fetch(m);

	if (m->judged)
		m->next_pause = 1;
	m->judged = false;
	if (m->pause) {
		m->pause--;
		return;
	}
	m->judged = m->fetch != want;
	m->fetch = want;
}

bool return_mode_decide(struct return_mode *m, uint64_t now_ns)
{
	uint64_t span = now_ns - m->since_ns;
	bool was = m->fetch;

	if (span < RETURN_MODE_INTERVAL_NS)
		return false;
	if (span > RETURN_MODE_STILL * RETURN_MODE_INTERVAL_NS) {
		m->judged = false;
		begin(m, now_ns);
		return false;
	}
	if (pays_not(m, span))
		take_back(m);
	else
		go_on(m);
	m->calls_before = m->calls;
	m->span_ns = span;
	m->switches += m->fetch != was;
	begin(m, now_ns);
	return m->fetch != was;
}
