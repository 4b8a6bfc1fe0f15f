/* SPDX-License-Identifier: MIT */
/*
 * qp_scaling.c - FLOCK's figure 2.2(a): 22 nodes READ 16 bytes from one server,
 * over a growing number of QPs. From some number on the NIC does not hold all
 * their contexts.
 *
 * FLOCK gives the nodes, the size and the operation. Three READs outstanding a
 * QP are fitted: with them the rate is at its peak from 176 QPs on, as in
 * FLOCK's figure. At most 16 threads a node are assumed. Beside it the same
 * load as calls over UD to a server of 32 threads, figure 2.2(b).
 */
#include "sim/qp_scaling.h"

#include "sim/bed.h"
#include "sim/scenario.h"
#include "sim/flock/ud_rpc.h"

#define NODES 22u
#define THREADS_MAX 16u
#define DEPTH 3u
#define HANDLER_NS 40u /* assumed: a request of 16 bytes is looked at */

const unsigned qp_scaling_steps[] = {22,   44,	 88,   176,  352,  528, 704,
				     1056, 1408, 2112, 2816, 5632, 0};

int qp_scaling_point(const struct nic_model *nic, uint64_t seed, unsigned qps,
		     struct bed_result *res)
{
	struct bed_conf conf = {
		.seed = seed,
		.nic = nic,
		.issuer_nodes = NODES,
		.targets = 1,
		.cores = 32,
		.opcode = IBV_WR_RDMA_READ,
		.len = 16,
		.depth = DEPTH,
		.batch = 1,
		.warm_ns = 200000 + 250ull * qps,
		.run_ns = 200000,
	};
	unsigned each = qps / NODES;

	conf.issuers = each;
	while (conf.issuers > THREADS_MAX || each % conf.issuers)
		conf.issuers--;
	conf.qps = each / conf.issuers;
	return bed_run(&conf, res);
}

int qp_scaling_ud(const struct nic_model *nic, uint64_t seed, unsigned senders,
		  struct ud_rpc_result *res)
{
	struct ud_rpc_conf conf = {
		.seed = seed,
		.nic = nic,
		.nodes = NODES,
		.senders = senders,
		.depth = DEPTH,
		.cores = 32,
		.len = 16,
		.handler_ns = HANDLER_NS,
		.warm_ns = 200000 + 250ull * senders,
		.run_ns = 200000,
	};

	return ud_rpc_run(&conf, res);
}

static int one_step(const struct nic_model *nic, uint64_t seed, unsigned qps,
		    struct report *rep, double *mops)
{
	struct ud_rpc_result ud = {0};
	struct bed_result r = {0};
	double looks;
	int rc = qp_scaling_point(nic, seed, qps, &r);

	if (!rc)
		rc = qp_scaling_ud(nic, seed, qps, &ud);
	if (rc)
		return rc;
	looks = (double)(r.target.ctx_hits + r.target.ctx_misses);
	report_line(rep, "",
		    (double[]){qps, r.mops, r.lat_ns,
			       looks > 0 ? (double)r.target.ctx_misses / looks
					 : 0,
			       (double)r.target.messages_in,
			       (double)r.issuer.doorbells, ud.mops,
			       ud.verbs_share});
	report_add(rep, r.hash, r.virtual_ns, r.events);
	report_add(rep, ud.hash, ud.virtual_ns, ud.events);
	*mops = r.mops;
	return 0;
}

static int qp_scaling(const struct scenario_conf *sc, struct report *rep)
{
	static const char *const cols[] = {"qps",	  "read_mops",
					   "read_lat_ns", "miss_share",
					   "msgs_in",	  "doorbells",
					   "ud_mops",	  "ud_verbs_cpu"};
	struct nic_model model;
	double best = 0, at = 0, mops;
	int rc = nic_model_find("connectx5", &model);

	rep->ok = true;
	rep->table.n_cols = 8;
	for (unsigned c = 0; c < 8; c++)
		rep->table.cols[c] = cols[c];
	for (unsigned i = 0; qp_scaling_steps[i] && !rc; i++) {
		rc = one_step(sc->nic ? sc->nic : &model, sc->seed,
			      qp_scaling_steps[i], rep, &mops);
		if (!rc && mops > best) {
			best = mops;
			at = qp_scaling_steps[i];
		}
	}
	report_row(rep, "read_peak_mops", best);
	report_row(rep, "read_peak_at_qps", at);
	return rc;
}

const struct scenario scenario_qp_scaling = {
	.name = "qp-scaling",
	.what = "READ rate of one server against the number of its QPs",
	.run = qp_scaling,
};
