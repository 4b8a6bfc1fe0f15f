/* SPDX-License-Identifier: MIT */
/*
 * waiting.c - RR-Compound's figures 4, 5 and 6: busy polling beside the
 * NIC's events, by ibverbs alone: a thread of the server for each client, no
 * pause between two requests, or 300 us, or 100 us.
 *
 * The paper gives shapes and four numbers in words: events are slower above 8
 * clients and sharply so above 40; polling is level up to 40; at 128 clients
 * the server idles 80 % with events.
 */
#include "sim/rrc/rrc.h"

static const unsigned clients[] = {1, 4, 8, 16, 32, 40, 64, 128};
static const uint64_t intervals_us[] = {0, 300, 100};
static const enum poller_mode modes[] = {POLLER_BP, POLLER_EVENT};

#define N_CLIENTS (sizeof(clients) / sizeof(clients[0]))
#define N_INTERVALS (sizeof(intervals_us) / sizeof(intervals_us[0]))

/* Mean latency, and idle share of the server, by interval, mode, clients. */
struct curves {
	double us[N_INTERVALS][2][N_CLIENTS];
	double idle[N_INTERVALS][2][N_CLIENTS];
};

static int point(struct report *rep, const struct scenario_conf *sc,
		 uint64_t interval_us, enum poller_mode mode, unsigned n,
		 double *us, double *idle)
{
	static const char *const labels[] = {"bp", "event"};
	bool crowded = mode == POLLER_BP && n > RRC_CORES;
	struct rrc_conf c = {
		.seed = sc->seed,
		.mode = mode,
		.clients = n,
		.workers = n,
		.window = 1,
		.interval_ns = interval_us * 1000,
		.server_ns = RRC_VERBS_NS,
		.client_ns = RRC_VERBS_NS,
		.wire_ns = RRC_WIRE_NS,
		.warm_ns = 1000000,
		/* Threads that share cores: so long that each has its slice. */
		.run_ns = crowded	? 60000000
			  : interval_us ? 5000000
					: 1000000,
	};
	struct rrc_result r;
	int rc = rrc_point(rep, &c, &r);

	*us = r.mean_us;
	*idle = 1 - r.user - r.sys - r.softirq;
	if (!rc)
		report_line(rep, labels[mode == POLLER_EVENT],
			    (double[]){(double)interval_us, n, r.mean_us,
				       r.p99_us, r.rate / 1000, r.user,
				       r.sys + r.softirq, *idle});
	return rc;
}

/* What the paper's text says of the curves. */
static void claims(struct report *rep, const struct curves *c)
{
	report_row(rep, "fig4_bp_40_over_1", c->us[0][0][5] / c->us[0][0][0]);
	report_row(rep, "fig4_bp_40_over_1_paper", 1);
	report_row(rep, "fig4_bp_128_over_40", c->us[0][0][7] / c->us[0][0][5]);
	report_row(rep, "fig4_event_8_over_1", c->us[0][1][2] / c->us[0][1][0]);
	report_row(rep, "fig4_event_40_over_8",
		   c->us[0][1][5] / c->us[0][1][2]);
	report_row(rep, "fig4_event_128_over_40",
		   c->us[0][1][7] / c->us[0][1][5]);
	report_row(rep, "fig4_event_idle_128", c->idle[0][1][7]);
	report_row(rep, "fig4_event_idle_128_paper", 0.8);
	report_row(rep, "fig5_bp_128_over_40", c->us[1][0][7] / c->us[1][0][5]);
	report_row(rep, "fig5_event_128_over_1",
		   c->us[1][1][7] / c->us[1][1][0]);
	report_row(rep, "fig5_event_128_over_1_paper", 1);
	report_row(rep, "fig6_bp_128_over_40", c->us[2][0][7] / c->us[2][0][5]);
	report_row(rep, "fig6_event_128_over_40",
		   c->us[2][1][7] / c->us[2][1][5]);
}

static void columns(struct report *rep)
{
	static const char *const cols[] = {"interval_us", "clients", "mean_us",
					   "p99_us",	  "kcalls",  "user",
					   "kernel",	  "idle"};

	rep->ok = true;
	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
}

static int rrc_waiting(const struct scenario_conf *sc, struct report *rep)
{
	struct curves c = {0};
	int rc = 0;

	columns(rep);
	for (unsigned i = 0; i < N_INTERVALS; i++)
		for (unsigned m = 0; m < 2; m++)
			for (unsigned n = 0; n < N_CLIENTS && !rc; n++)
				rc = point(rep, sc, intervals_us[i], modes[m],
					   clients[n], &c.us[i][m][n],
					   &c.idle[i][m][n]);
	if (!rc)
		claims(rep, &c);
	return rc;
}

const struct scenario scenario_rrc_waiting = {
	.name = "rrc-waiting",
	.what = "busy polling and events by clients (RR-Compound fig. 4-6)",
	.own_nics = true,
	.run = rrc_waiting,
};
