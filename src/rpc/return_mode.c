/* SPDX-License-Identifier: MIT */
/*
 * return_mode.c - fetched or replied; see return_mode.h.
 */
#include "rpc/return_mode.h"

static void begin(struct return_mode *m, uint64_t now_ns)
{
	m->since_ns = now_ns;
	m->calls = 0;
	m->slow = false;
}

void return_mode_init(struct return_mode *m, uint64_t now_ns)
{
	*m = (struct return_mode){.interval_ns = RETURN_MODE_INTERVAL_NS};
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

bool return_mode_decide(struct return_mode *m, uint64_t now_ns)
{
	uint64_t span = now_ns - m->since_ns;
	bool was = m->fetch;

	if (span < m->interval_ns)
		return false;
	if (span > RETURN_MODE_PAUSE * m->interval_ns) { /* a pause */
		m->judged = false;
		begin(m, now_ns);
		return false;
	}
	if (pays_not(m, span)) {
		m->fetch = !m->fetch;
		m->judged = false;
		if (m->interval_ns < RETURN_MODE_INTERVAL_MAX_NS)
			m->interval_ns *= 2;
	} else {
		if (m->judged)
			m->interval_ns = RETURN_MODE_INTERVAL_NS;
		m->fetch = m->starved;
		m->judged = m->fetch != was;
		m->calls_before = m->calls;
		m->span_ns = span;
	}
	m->switches += m->fetch != was;
	begin(m, now_ns);
	return m->fetch != was;
}
