/* SPDX-License-Identifier: MIT */
/* rrc.c - what RR-Compound's figures have in common: see rrc.h. */
#include "sim/rrc/rrc.h"

void rrc_columns(struct report *rep, const char *unit)
{
	rep->ok = true;
	rep->table.n_cols = 5;
	rep->table.cols[0] = "clients";
	rep->table.cols[1] = unit;
	rep->table.cols[2] = "paper";
	rep->table.cols[3] = "error_%";
	rep->table.cols[4] = "fitted";
}

void rrc_line(struct report *rep, const char *label, double clients,
	      double ours, double paper, bool fitted)
{
	report_line(rep, label,
		    (double[]){clients, ours, report_paper(paper),
			       report_error(ours, paper), fitted});
}

int rrc_point(struct report *rep, const struct rrc_conf *c,
	      struct rrc_result *r)
{
	int rc = rrc_run(c, r);

	if (!rc)
		report_add(rep, r->hash, r->virtual_ns, r->events);
	return rc;
}

/* Section IV-E: threads by the mode and the number of clients. */
static unsigned workers(enum poller_mode mode, unsigned clients)
{
	if (mode == POLLER_BP)
		return clients;
	return clients < 64 ? 40 : 64;
}

void rrc_grpc(struct rrc_conf *c, enum poller_mode mode, unsigned clients)
{
	*c = (struct rrc_conf){
		.seed = c->seed,
		.mode = mode,
		.clients = clients,
		.workers = workers(mode, clients),
		.pollers = mode == POLLER_BPEV ? 2 : 0,
		.window = 1,
		.server_ns = RRC_UNARY_NS,
		.client_ns = RRC_UNARY_NS,
		.lock_ns = RRC_LOCK_NS,
		.wire_ns = RRC_WIRE_4K_NS,
		.bp_timeout_ns = 100000, /* section V-A */
		.warm_ns = 2000000,
		.run_ns = 10000000,
	};
	if (mode == POLLER_BP)
		c->server_ns += RRC_BP_NS;
	if (mode == POLLER_BPEV)
		c->server_ns += RRC_BPEV_NS;
}

void rrc_stream(struct rrc_conf *c, unsigned clients)
{
	rrc_grpc(c, POLLER_BPEV, clients);
	c->workers = 38;
	c->window = 32;
	c->server_ns = c->client_ns = RRC_STREAM_NS;
	c->wire_ns = RRC_WIRE_NS;
}

void rrc_ycsb(struct rrc_conf *c, enum poller_mode mode, unsigned clients,
	      double reads)
{
	rrc_grpc(c, mode, clients);
	c->server_ns += (uint32_t)(reads * RRC_READ_NS);
	c->run_ns = 20000000;
}
