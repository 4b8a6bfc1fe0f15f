/* SPDX-License-Identifier: MIT */
/*
 * scale.c - RR-Compound's figures 8 and 10 and its table III: gRPC's rate by
 * clients, for the five ways to wait; with and without 400 us between two calls
 * of a client; and with 32 short calls outstanding each, beside mRPC.
 */
#include "sim/rrc/rrc.h"

#include <math.h>

#include <stdio.h>

static const unsigned clients[] = {4, 32, 64, 128};
static const unsigned stream_clients[] = {1, 8, 16, 32, 64, 128};

#define N_CLIENTS (sizeof(clients) / sizeof(clients[0]))
#define N_STREAM (sizeof(stream_clients) / sizeof(stream_clients[0]))

/* Figure 8(a) and (c), thousands of calls a second; 0: the text has none. Below
 * 50 K/s is all it says of TCP and events at four clients, above 790 K/s of
 * BPTS and BPEV at 64. 1417 is "49 % higher than" BPTS. */
struct row {
	enum poller_mode mode;
	double busy[N_CLIENTS];
	double slow_128; /* (c) */
	bool fitted_4;
};

static const struct row rows[] = {
	{POLLER_TCP, {50, 367, 0, 0}, 228, false},
	{POLLER_EVENT, {50, 413, 0, 0}, 0, false},
	{POLLER_BP, {132, 812, 598, 0}, 94, true},
	{POLLER_BPTS, {135, 785, 790, 951}, 0, true},
	{POLLER_BPEV, {120, 620, 790, 1417}, 0, true},
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

/* Figure 10 (a), millions a second: RR-Compound's own curve, and what the paper
 * measured of mRPC, quoted. */
static const double rr_mops[N_STREAM] = {.242, 1.55, 0, 2.86, 5.65, 5.25};
static const double mrpc_mops[N_STREAM] = {.82, 4.66, 8.67, 7.76, 4.92, 0};

static int busy(struct report *rep, const struct scenario_conf *sc,
		const struct row *row, unsigned n, double *user)
{
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result r;
	char label[64];
	int rc;

	rrc_grpc(&c, row->mode, clients[n]);
	if (row->mode == POLLER_BP && clients[n] > RRC_CORES)
		c.run_ns = 60000000;
	rc = rrc_point(rep, &c, &r);
	if (rc)
		return rc;
	*user = r.user / r.rate;
	snprintf(label, sizeof(label), "8a %s, K/s",
		 poller_mode_name(row->mode));
	rrc_line(rep, label, clients[n], r.rate / 1000, row->busy[n],
		 row->fitted_4 && n == 0);
	/* 8(b): "71 % and 73 %" of the time the cores are idle. */
	if (clients[n] == 32 && row->mode == POLLER_TCP)
		rrc_line(rep, "8b tcp, idle", 32,
			 1 - r.user - r.sys - r.softirq, .71, false);
	if (clients[n] == 32 && row->mode == POLLER_EVENT)
		rrc_line(rep, "8b event, idle", 32,
			 1 - r.user - r.sys - r.softirq, .73, false);
	return 0;
}

static int slow(struct report *rep, const struct scenario_conf *sc,
		const struct row *row, double *used)
{
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result r;
	char label[64];
	int rc;

	rrc_grpc(&c, row->mode, 128);
	c.interval_ns = 400000;
	c.run_ns = row->mode == POLLER_BP ? 60000000 : 20000000;
	rc = rrc_point(rep, &c, &r);
	if (rc)
		return rc;
	*used = (r.user + r.sys + r.softirq) / r.rate;
	snprintf(label, sizeof(label), "8c %s, K/s",
		 poller_mode_name(row->mode));
	rrc_line(rep, label, 128, r.rate / 1000, row->slow_128, false);
	return 0;
}

static int streaming(struct report *rep, const struct scenario_conf *sc,
		     unsigned n)
{
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result r;
	int rc;

	rrc_stream(&c, stream_clients[n]);
	rc = rrc_point(rep, &c, &r);
	if (rc)
		return rc;
	rrc_line(rep, "10a, M/s", stream_clients[n], r.rate / 1e6, rr_mops[n],
		 stream_clients[n] == 64);
	if (mrpc_mops[n] > 0)
		rrc_line(rep, "10a mRPC's, quoted", stream_clients[n], NAN,
			 mrpc_mops[n], false);
	return 0;
}

static int table3(struct report *rep, const struct scenario_conf *sc)
{
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result r;
	int rc;

	rrc_stream(&c, 1);
	c.window = 1;
	c.server_ns = c.client_ns = RRC_CALL_NS;
	rc = rrc_point(rep, &c, &r);
	if (rc)
		return rc;
	rrc_line(rep, "III median, us", 1, r.p50_us, 7.22, false);
	rrc_line(rep, "III p99, us", 1, r.p99_us, 7.33, false);
	return 0;
}

static int rrc_scale(const struct scenario_conf *sc, struct report *rep)
{
	double user[N_ROWS][N_CLIENTS] = {{0}}, used[N_ROWS] = {0};
	int rc = 0;

	rrc_columns(rep, "ours");
	for (unsigned i = 0; i < N_ROWS; i++)
		for (unsigned n = 0; n < N_CLIENTS && !rc; n++)
			rc = busy(rep, sc, &rows[i], n, &user[i][n]);
	for (unsigned i = 0; i < N_ROWS && !rc; i++)
		rc = slow(rep, sc, &rows[i], &used[i]);
	for (unsigned n = 0; n < N_STREAM && !rc; n++)
		rc = streaming(rep, sc, n);
	if (!rc)
		rc = table3(rep, sc);
	if (rc)
		return rc;
	/* Processor time is a call's: the paper counts seconds of one number
	 * of calls. */
	rrc_line(rep, "8b bp over bpts, user", 128, user[2][3] / user[3][3],
		 1.8, false);
	rrc_line(rep, "8b bp over bpev, user", 128, user[2][3] / user[4][3],
		 2.3, false);
	rrc_line(rep, "8d bp over bpts, busy", 128, used[2] / used[3], 2.8,
		 false);
	rrc_line(rep, "8d bp over bpev, busy", 128, used[2] / used[4], 15.2,
		 false);
	return 0;
}

const struct scenario scenario_rrc_scale = {
	.name = "rrc-scale",
	.what = "gRPC by clients and ways to wait (RR-Compound fig. 8, 10)",
	.own_nics = true,
	.run = rrc_scale,
};
