/* SPDX-License-Identifier: MIT */
/*
 * qp_scaling.c - FLOCK's figure 2.2(a): 22 nodes READ 16 bytes from one server,
 * over more and more QPs; at some number its NIC no longer holds their contexts.
 *
 * FLOCK gives the nodes, the size and the operation. Three READs outstanding a
 * QP are fitted: with them the rate is at its peak from 176 QPs on, as there. At
 * most 16 threads a node are assumed.
 */
#include "sim/qp_scaling.h"

#include "sim/bed.h"
#include "sim/scenario.h"

#include <errno.h>

#define NODES 22u
#define THREADS_MAX 16u

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
		.depth = 3,
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

static int qp_scaling(const struct scenario_conf *sc, struct report *rep)
{
	struct nic_model model;
	double best = 0, at = 0;

	if (nic_model_find("connectx5", &model))
		return -ENOENT;
	rep->ok = true;
	rep->table.n_cols = 7;
	rep->table.cols[0] = "qps";
	rep->table.cols[1] = "mops";
	rep->table.cols[2] = "lat_ns";
	rep->table.cols[3] = "miss_share";
	rep->table.cols[4] = "msgs_in";
	rep->table.cols[5] = "msgs_out";
	rep->table.cols[6] = "doorbells";
	for (unsigned i = 0; qp_scaling_steps[i]; i++) {
		struct bed_result r = {0};
		uint64_t looks;
		int rc = qp_scaling_point(sc->nic ? sc->nic : &model, sc->seed,
					  qp_scaling_steps[i], &r);

		if (rc)
			return rc;
		looks = r.target.ctx_hits + r.target.ctx_misses;
		report_line(rep, "",
			    (double[]){qp_scaling_steps[i], r.mops, r.lat_ns,
				       looks ? (double)r.target.ctx_misses /
						       (double)looks
					     : 0,
				       (double)r.target.messages_in,
				       (double)r.target.messages_out,
				       (double)r.issuer.doorbells});
		report_add(rep, r.hash, r.virtual_ns, r.events);
		if (r.mops > best) {
			best = r.mops;
			at = qp_scaling_steps[i];
		}
	}
	report_row(rep, "peak_mops", best);
	report_row(rep, "peak_at_qps", at);
	return 0;
}

const struct scenario scenario_qp_scaling = {
	.name = "qp-scaling",
	.what = "READ rate of one server against the number of its QPs",
	.run = qp_scaling,
};
