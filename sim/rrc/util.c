/* SPDX-License-Identifier: MIT */
/*
 * util.c - RR-Compound's figures 11, 15 and 16: how many polling threads, and
 * what processor time and memory the rings cost beside gRPC over TCP.
 */
#include "sim/rrc/rrc.h"

#include <stdio.h>

static const unsigned heavy_clients[] = {4, 32, 64, 128};
static const unsigned memory_clients[] = {1, 4, 16};

/* 11(a): 320 clients, 32 working threads, a call a millisecond each (the paper
 * says lambda = 1 and no unit), median and p99. 11(b): 64 clients without a
 * pause. */
static int pollers(struct report *rep, const struct scenario_conf *sc,
		   unsigned n)
{
	static const double rate[] = {0, 2.8, 3.8, 4.0};
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result r;
	char label[64];
	int rc;

	rrc_stream(&c, 320);
	c.window = 1;
	c.workers = 32;
	c.pollers = n;
	c.server_ns = c.client_ns = RRC_CALL_NS;
	c.interval_ns = 1000000;
	c.exponential = true;
	rc = rrc_point(rep, &c, &r);
	if (rc)
		return rc;
	snprintf(label, sizeof(label), "11a, %u polling: median, us", n);
	rrc_line(rep, label, 320, r.p50_us, n == 1 ? 24.03 : 0, false);
	snprintf(label, sizeof(label), "11a, %u polling: p99, us", n);
	rrc_line(rep, label, 320, r.p99_us, n == 1 ? 29.82 : 0, false);
	rrc_stream(&c, 64);
	c.pollers = n;
	rc = rrc_point(rep, &c, &r);
	if (rc)
		return rc;
	snprintf(label, sizeof(label), "11b, %u polling: M/s", n);
	rrc_line(rep, label, 64, r.rate / 1e6, n < 4 ? rate[n] : 0, false);
	return 0;
}

static double used(const struct rrc_result *r)
{
	return r->user + r->sys + r->softirq;
}

/* 15(a): the load of figure 17. The paper has 1.12 to 5.80. */
static int heavy(struct report *rep, const struct scenario_conf *sc, unsigned n)
{
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result tcp, rdma;
	int rc;

	rrc_ycsb(&c, POLLER_TCP, n, 1);
	rc = rrc_point(rep, &c, &tcp);
	rrc_ycsb(&c, POLLER_BPEV, n, 1);
	if (!rc)
		rc = rrc_point(rep, &c, &rdma);
	if (rc)
		return rc;
	rrc_line(rep, "15a, processor time over TCP's", n,
		 used(&rdma) / used(&tcp), 0, false);
	return 0;
}

/* 16(a): "an RPC rate limiter": 400 us, section IV-E. One core is 100 %. */
static int low(struct report *rep, const struct scenario_conf *sc,
	       enum poller_mode mode, const char *label, double paper)
{
	struct rrc_conf c = {.seed = sc->seed};
	struct rrc_result r;
	int rc;

	rrc_grpc(&c, mode, 1);
	c.interval_ns = 400000;
	/* So that only the two polling threads look. */
	c.bp_timeout_ns = 0;
	c.run_ns = 50000000;
	rc = rrc_point(rep, &c, &r);
	if (!rc)
		rrc_line(rep, label, 1, 100 * RRC_CORES * used(&r), paper,
			 false);
	return rc;
}

/* 16(b), as section V-D has it: a ring of 4 MiB, and half of one. */
static void memory(struct report *rep, unsigned n)
{
	static const double paper[] = {14.3, 0, 6.7};

	rrc_line(rep, "16b, MB a client", memory_clients[n],
		 (RRC_BASE_BYTES / memory_clients[n] + 1.5 * RRC_RING_BYTES) /
			 1e6,
		 paper[n], n == 0);
	rrc_line(rep, "16b, MB a client, TCP", memory_clients[n],
		 RRC_GRPC_BYTES / memory_clients[n] / 1e6, n ? 0 : 5.6, n == 0);
}

static int rrc_util(const struct scenario_conf *sc, struct report *rep)
{
	int rc = 0;

	rrc_columns(rep, "ours");
	for (unsigned n = 1; n <= 8 && !rc; n = n < 4 ? n + 1 : 2 * n)
		rc = pollers(rep, sc, n);
	for (unsigned i = 0; i < 4 && !rc; i++)
		rc = heavy(rep, sc, heavy_clients[i]);
	if (!rc)
		rc = low(rep, sc, POLLER_BPEV, "16a, % of a core", 200);
	if (!rc)
		rc = low(rep, sc, POLLER_TCP, "16a, % of a core, TCP", 4);
	for (unsigned i = 0; i < 3 && !rc; i++)
		memory(rep, i);
	return rc;
}

const struct scenario scenario_rrc_util = {
	.name = "rrc-util",
	.what = "polling threads, processor, memory (RR-Compound fig. 11, 15, 16)",
	.own_nics = true,
	.run = rrc_util,
};
