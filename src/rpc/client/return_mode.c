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
	*m = (struct return_mode){
		.hinted = {.next = 1},
		.blind = {.left = 1, .next = RETURN_MODE_BLIND_MIN},
		.calib = calib,
	};
	begin(m, now_ns);
}

static void pause_begin(struct return_pause *p)
{
	p->left = p->next;
	if (p->next < RETURN_MODE_PAUSE_MAX)
		p->next *= 2;
}

/* Counts an interval; was the pause over before it? */
static bool pause_over(struct return_pause *p)
{
	if (!p->left)
		return true;
	p->left--;
	return false;
}

static bool hint(const struct return_mode *m)
{
	return m->starved ||
	       (m->calib && m->time && rpc_calib_fetch(m->calib, m->time));
}

/* Did the mode that was tried answer enough calls a second, compared with the
 * interval before? */
static bool paid(const struct return_mode *m, uint64_t span_ns)
{
	double gain = m->is_blind ? RETURN_MODE_BLIND_GAIN : 1;

	return (double)m->calls * (double)m->span_ns >=
	       gain * (double)m->calls_before * (double)span_ns;
}

static void judge(struct return_mode *m, bool keep)
{
	m->is_trial = false;
	if (!keep) {
		m->fetch = !m->fetch;
		pause_begin(m->is_blind ? &m->blind : &m->hinted);
		return;
	}
	m->hinted.next = 1;
	m->blind.next = RETURN_MODE_BLIND_MIN;
	/* Of the other trial, which would undo this one. */
	pause_begin(m->fetch == hint(m) ? &m->blind : &m->hinted);
}

/* Tries the other mode, if the trial's pause is over. */
static void go_on(struct return_mode *m)
{
	bool hinted = pause_over(&m->hinted), blind = pause_over(&m->blind);

	m->is_trial = m->fetch == hint(m) ? blind : hinted;
	m->fetch ^= m->is_trial;
}

bool return_mode_decide(struct return_mode *m, uint64_t now_ns)
{
	uint64_t span = now_ns - m->since_ns;
	bool was = m->fetch, slow = m->fetch && m->slow;

	if (span < RETURN_MODE_INTERVAL_NS)
		return false;
	if (span > RETURN_MODE_STILL * RETURN_MODE_INTERVAL_NS) {
		m->is_trial = false;
		begin(m, now_ns);
		return false;
	}
	if (m->is_trial || slow)
		judge(m, !slow && paid(m, span));
	else
		go_on(m);
	m->is_blind = m->fetch != hint(m);
	m->calls_before = m->calls;
	m->span_ns = span;
	m->switches += m->fetch != was;
	begin(m, now_ns);
	return m->fetch != was;
}
