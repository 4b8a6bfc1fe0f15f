/* SPDX-License-Identifier: MIT */
/*
 * return_mode.h - whether results are better fetched or replied, decided from
 * what a caller sees (RF-RPC, sections 3.2 and 3.3; docs/design/rf-rpc.md).
 *
 * The hint is to fetch when the server says that its engine lacks processor
 * time, and when the device's calibration says that fetching pays at the
 * response times that the server told. A hint can be wrong either way, so both
 * modes are measured. A trial is a switch to the other mode, and the interval
 * after it decides:
 *
 *	hinted trial	towards the hint, at once; kept unless fewer calls are
 *			answered a second than in the interval before
 *	blind trial	away from the hint; kept if RETURN_MODE_BLIND_GAIN 1.05
 *			as many are
 *
 * Each kind has a pause, which doubles when a trial is not kept. Answers that
 * take more than R READs end fetching as a lost trial does.
 *
 * Pure: counts and the time come in, the mode goes out.
 */
#ifndef SKEIN_RPC_CLIENT_RETURN_MODE_H
#define SKEIN_RPC_CLIENT_RETURN_MODE_H

#include <stdbool.h>
#include <stdint.h>

struct rpc_calib;

#define RETURN_MODE_INTERVAL_NS UINT64_C(10000000)
/* A blind trial costs what the better mode gains: of 65 intervals one at most,
 * of 1,025 one while nothing changes. */
#define RETURN_MODE_BLIND_MIN 64u
#define RETURN_MODE_BLIND_GAIN 1.05
#define RETURN_MODE_PAUSE_MAX 1024u /* intervals */
/* So many intervals without an answer: the program stood still. */
#define RETURN_MODE_STILL 8u

struct return_pause {
	unsigned left; /* intervals without such a trial */
	unsigned next; /* left, behind the next trial */
};

struct return_mode {
	bool fetch;    /* what is wanted */
	bool starved;  /* the server's word, in the last answer */
	bool slow;     /* in this interval answers took more than R */
	bool is_trial; /* this interval decides on its mode */
	bool is_blind; /* as it began its mode was not the hint's */
	uint16_t time; /* the server's last response time; 0: never told */
	struct return_pause hinted, blind;
	uint64_t calls, calls_before; /* answered, in this and the one before */
	uint64_t span_ns;	      /* how long that was */
	uint64_t since_ns;
	uint64_t switches;
	const struct rpc_calib *calib; /* NULL: unknown */
};

static inline void return_mode_answered(struct return_mode *m, unsigned calls,
					bool starved)
{
	m->calls += calls;
	m->starved = starved;
}

static inline void return_mode_slow(struct return_mode *m)
{
	m->slow = true;
}

/* time: as in rpc_resp_meta; not 0. */
static inline void return_mode_time(struct return_mode *m, uint16_t time)
{
	m->time = time;
}

void return_mode_init(struct return_mode *m, const struct rpc_calib *calib,
		      uint64_t now_ns);
/* The interval may have ended: true when the mode is another one now. */
bool return_mode_decide(struct return_mode *m, uint64_t now_ns);

#endif
