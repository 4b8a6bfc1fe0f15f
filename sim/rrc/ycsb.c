/* SPDX-License-Identifier: MIT */
/*
 * ycsb.c - RR-Compound's figures 17 and 18, and its tables IV and V: YCSB's six
 * core workloads over gRPC, by TCP and by RDMA.
 */
#include "sim/rrc/rrc.h"

#include <stdio.h>

static const unsigned clients[] = {4, 32, 64, 128};

#define N_CLIENTS (sizeof(clients) / sizeof(clients[0]))

/* Table IV. Shares in percent of the second kind of call, and what the two cost
 * the store, in reads. F reads, or reads and then updates. */
struct workload {
	char name;
	unsigned other_pct;
	double first, other;
	double speedup; /* table V */
};

static const struct workload workloads[] = {
	{'A', 50, 1, RRC_UPDATE_READS, 1.63},
	{'B', 5, 1, RRC_UPDATE_READS, 2.24},
	{'C', 0, 1, 1, 2.04},
	{'D', 5, 1, RRC_UPDATE_READS, 2.33},
	{'E', 5, RRC_SCAN_READS, RRC_UPDATE_READS, 1.97},
	{'F', 50, 1, 1 + RRC_UPDATE_READS, 2.35},
};

#define N_WORKLOADS (sizeof(workloads) / sizeof(workloads[0]))

static int measure(struct report *rep, const struct scenario_conf *sc,
		   const struct workload *wl, enum poller_mode mode, unsigned n,
		   struct rrc_result *r)
{
	struct rrc_conf c = {.seed = sc->seed};

	rrc_ycsb(&c, mode, n, wl->first);
	c.other_pct = wl->other_pct;
	c.other_ns =
		c.server_ns + (uint32_t)((wl->other - wl->first) * RRC_READ_NS);
	c.run_ns = 20000000;
	return rrc_point(rep, &c, r);
}

/* Figure 17, workload C: thousands of operations a second in the text. */
static double paper_c(enum poller_mode mode, unsigned n)
{
	if (mode == POLLER_TCP)
		return n == 4 ? 28 : n >= 64 ? 303 : 0;
	return n == 4 ? 49 : n == 128 ? 535 : 0;
}

static int workload(struct report *rep, const struct scenario_conf *sc,
		    const struct workload *wl)
{
	struct rrc_result tcp, rdma;
	double best = 0, latency = 0;
	char label[64];
	int rc = 0;

	for (unsigned i = 0; i < N_CLIENTS && !rc; i++) {
		unsigned n = clients[i];

		rc = measure(rep, sc, wl, POLLER_TCP, n, &tcp);
		if (!rc)
			rc = measure(rep, sc, wl, POLLER_BPEV, n, &rdma);
		if (rc)
			break;
		snprintf(label, sizeof(label), "17%c tcp, K/s", wl->name);
		rrc_line(rep, label, n, tcp.rate / 1000,
			 wl->name == 'C' ? paper_c(POLLER_TCP, n) : 0,
			 wl->name == 'C' && n == 4);
		snprintf(label, sizeof(label), "17%c rdma, K/s", wl->name);
		rrc_line(rep, label, n, rdma.rate / 1000,
			 wl->name == 'C' ? paper_c(POLLER_BPEV, n) : 0,
			 wl->name == 'C' && n == 4);
		if (rdma.rate / tcp.rate > best)
			best = rdma.rate / tcp.rate;
		latency = 100 * (1 - rdma.mean_us / tcp.mean_us);
	}
	snprintf(label, sizeof(label), "V %c, speedup", wl->name);
	rrc_line(rep, label, 0, best, wl->speedup, false);
	snprintf(label, sizeof(label), "18%c, latency less by %%", wl->name);
	rrc_line(rep, label, 128, latency, 0, false);
	return rc;
}

static int rrc_ycsb_all(const struct scenario_conf *sc, struct report *rep)
{
	int rc = 0;

	rrc_columns(rep, "ours");
	for (unsigned i = 0; i < N_WORKLOADS && !rc; i++)
		rc = workload(rep, sc, &workloads[i]);
	return rc;
}

const struct scenario scenario_rrc_ycsb = {
	.name = "rrc-ycsb",
	.what = "YCSB over gRPC, TCP and RDMA (RR-Compound fig. 17, 18)",
	.own_nics = true,
	.run = rrc_ycsb_all,
};
