/* SPDX-License-Identifier: MIT */
/*
 * inbound_outbound.c - RF-RPC's figure 1: the rate at which a server's NIC
 * answers the READs of seven clients, and the rate of the server's own WRITEs.
 * Each thread has one operation outstanding.
 *
 * RF-RPC gives the machines, and four threads on each client. We assume that
 * the server has four threads too, and does not inline.
 */
#include "sim/inbound_outbound.h"

#include "sim/bed.h"
#include "sim/scenario.h"

#define CLIENTS 7u
#define THREADS 4u

static const uint32_t sizes[] = {8,   16,   32,	  64,	128,  256,
				 512, 1024, 2048, 4096, 8192, 0};

/* Each thread of the issuing nodes has one operation outstanding. */
static int run_point(const struct nic_model *nic, uint64_t seed, uint32_t len,
		     unsigned issuer_nodes, unsigned targets,
		     enum ibv_wr_opcode opcode, struct bed_result *res)
{
	struct bed_conf conf = {
		.seed = seed,
		.nic = nic,
		.issuer_nodes = issuer_nodes,
		.issuers = THREADS,
		.targets = targets,
		.qps = targets,
		.cores = 16,
		.opcode = opcode,
		.len = len,
		.depth = 1,
		.batch = 1,
		.window = 1,
		.warm_ns = 200000,
		.run_ns = 1000000,
	};

	return bed_run(&conf, res);
}

int inbound_point(const struct nic_model *nic, uint64_t seed, uint32_t len,
		  struct bed_result *res)
{
	return run_point(nic, seed, len, CLIENTS, 1, IBV_WR_RDMA_READ, res);
}

int outbound_point(const struct nic_model *nic, uint64_t seed, uint32_t len,
		   struct bed_result *res)
{
	return run_point(nic, seed, len, 1, CLIENTS, IBV_WR_RDMA_WRITE, res);
}

static int one_size(const struct nic_model *nic, uint64_t seed, uint32_t len,
		    struct report *rep)
{
	struct bed_result in = {0}, out = {0};
	int rc = inbound_point(nic, seed, len, &in);

	if (!rc)
		rc = outbound_point(nic, seed, len, &out);
	if (rc)
		return rc;
	report_line(rep, "",
		    (double[]){len, in.mops, out.mops, in.lat_ns, out.lat_ns,
			       (double)in.target.messages_in,
			       (double)out.issuer.messages_out,
			       (double)out.issuer.doorbells});
	report_add(rep, in.hash, in.virtual_ns, in.events);
	report_add(rep, out.hash, out.virtual_ns, out.events);
	return 0;
}

static int inbound_outbound(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"bytes",	 "in_mops",
					   "out_mops",	 "in_lat_ns",
					   "out_lat_ns", "msgs_in",
					   "msgs_out",	 "doorbells"};
	struct nic_model model;
	int rc = nic_model_find("connectx3", &model);

	rep->ok = true;
	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
	for (unsigned i = 0; sizes[i] && !rc; i++)
		rc = one_size(sc->nic ? sc->nic : &model, sc->seed, sizes[i],
			      rep);
	return rc;
}

const struct scenario scenario_inbound_outbound = {
	.name = "inbound-outbound",
	.what = "what a NIC serves and what it issues, by size",
	.nic = "connectx3",
	.run = inbound_outbound,
};
