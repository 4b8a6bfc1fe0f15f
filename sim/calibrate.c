/* SPDX-License-Identifier: MIT */
/*
 * calibrate.c - the papers' figures beside those of the models: the points to
 * which the parameters in sim/models/ were fitted, and points that were fitted
 * to nothing.
 *
 * Fails when a fitted point is off by more than 15 %, or when the curves have
 * lost their shape. docs/measurements/simulation.md has the table.
 */
#include "sim/bed.h"
#include "sim/control_path.h"
#include "sim/inbound_outbound.h"
#include "sim/qp_scaling.h"
#include "sim/scenario.h"
#include "sim/flock/ud_rpc.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define TOLERANCE 0.15

struct judge {
	struct report *rep;
	uint64_t seed;
	struct nic_model cx3, cx4, cx5;
};

enum kind {
	FITTED,
	PREDICTED,
};

static void point(struct judge *j, enum kind kind, const char *name,
		  double paper, double model)
{
	double error = model / paper - 1;

	report_line(j->rep, name,
		    (double[]){paper, model, error * 100, kind == FITTED});
	if (kind == FITTED && !(fabs(error) <= TOLERANCE))
		report_fail(j->rep, "%s: %.4g, the paper has %.4g", name, model,
			    paper);
}

static void add(struct judge *j, const struct bed_result *r)
{
	report_add(j->rep, r->hash, r->virtual_ns, r->events);
}

static int measure(struct judge *j, const struct bed_conf *conf,
		   struct bed_result *r)
{
	int rc;

	*r = (struct bed_result){0};
	rc = bed_run(conf, r);
	if (!rc)
		add(j, r);
	return rc;
}

/* One issuer with one QP, one request at a time. */
static struct bed_conf lone(const struct judge *j, const struct nic_model *nic,
			    unsigned cores, enum ibv_wr_opcode opcode,
			    uint32_t len)
{
	return (struct bed_conf){
		.seed = j->seed,
		.nic = nic,
		.issuer_nodes = 1,
		.issuers = 1,
		.targets = 1,
		.qps = 1,
		.cores = cores,
		.opcode = opcode,
		.len = len,
		.depth = 1,
		.batch = 1,
		.warm_ns = 100000,
		.run_ns = 200000,
	};
}

/* --- ConnectX-3 -------------------------------------------------------- */

/* One WRITE at a time between two machines. */
static int write_latency(struct judge *j, uint32_t len, bool inlined,
			 double paper, const char *name)
{
	struct bed_conf conf = lone(j, &j->cx3, 16, IBV_WR_RDMA_WRITE, len);
	struct bed_result r;
	int rc;

	conf.inlined = inlined;
	rc = measure(j, &conf, &r);
	if (rc)
		return rc;
	point(j, FITTED, name, paper, r.lat_ns / 1e3);
	return 0;
}

static int in_out(struct judge *j, uint32_t len, double *in, double *out)
{
	struct bed_result r = {0};
	int rc = inbound_point(&j->cx3, j->seed, len, &r);

	if (rc)
		return rc;
	add(j, &r);
	*in = r.mops;
	rc = outbound_point(&j->cx3, j->seed, len, &r);
	if (rc)
		return rc;
	add(j, &r);
	*out = r.mops;
	return 0;
}

static int connectx3(struct judge *j)
{
	double in, out;
	int rc = write_latency(j, 8, true, 1.12, "cx3: WRITE of 8 B, us");

	if (!rc)
		rc = write_latency(j, 256, false, 2.04,
				   "cx3: WRITE of 256 B, us");
	if (!rc)
		rc = in_out(j, 32, &in, &out);
	if (rc)
		return rc;
	point(j, FITTED, "cx3: in-bound READs, Mops", 11.26, in);
	point(j, FITTED, "cx3: out-bound WRITEs, Mops", 2.11, out);
	rc = in_out(j, 4096, &in, &out);
	if (!rc)
		point(j, FITTED, "cx3: in-bound / out-bound, 4 KB", 1,
		      in / out);
	if (!rc)
		rc = in_out(j, 8192, &in, &out);
	if (!rc)
		point(j, FITTED, "cx3: in-bound / out-bound, 8 KB", 1,
		      in / out);
	return rc;
}

/* --- ConnectX-4 -------------------------------------------------------- */

static int read_latency(struct judge *j)
{
	struct bed_conf conf = lone(j, &j->cx4, 24, IBV_WR_RDMA_READ, 8);
	struct bed_result r;
	int rc = measure(j, &conf, &r);

	if (rc)
		return rc;
	point(j, FITTED, "cx4: READ of 8 B, us", 2.15, r.lat_ns / 1e3);
	return 0;
}

/* 240 clients on nine nodes, posting in batches. */
static int async_rate(struct judge *j, enum ibv_wr_opcode opcode, bool dc,
		      enum kind kind, double paper, const char *name)
{
	struct bed_conf conf = {
		.seed = j->seed,
		.nic = &j->cx4,
		.issuer_nodes = 9,
		.issuers = 27,
		.targets = 1,
		.qps = 1,
		.cores = 27,
		.opcode = opcode,
		.dc = dc,
		.len = 8,
		.depth = 16,
		.batch = 8,
		.warm_ns = 100000,
		.run_ns = 100000,
	};
	struct bed_result r;
	int rc = measure(j, &conf, &r);

	if (rc)
		return rc;
	point(j, kind, name, paper, r.mops);
	return 0;
}

/* One DCI: READs one after another, to one target or to two in a drawn order;
 * and 64 READs at once to ten targets. */
static int dci_reads(struct judge *j, unsigned targets, unsigned window,
		     struct bed_result *r)
{
	struct bed_conf conf = lone(j, &j->cx4, 24, IBV_WR_RDMA_READ, 8);

	conf.targets = conf.qps = targets;
	conf.dc = true;
	conf.depth = conf.window = window;
	conf.run_ns = 4000000;
	return measure(j, &conf, r);
}

static int reconnects(struct judge *j)
{
	struct bed_result one, two, many;
	int rc = dci_reads(j, 1, 1, &one);
	double us;

	if (!rc)
		rc = dci_reads(j, 2, 1, &two);
	if (!rc)
		rc = dci_reads(j, 10, 64, &many);
	if (rc)
		return rc;
	us = (two.lat_ns - one.lat_ns) * (double)two.ops /
	     (double)two.issuer.dc_connects / 1e3;
	report_row(j->rep, "cx4_dc_reconnect_us", us);
	if (!(us > 0 && us < 1))
		report_fail(j->rep, "cx4: a DC reconnect takes %.3g us", us);
	point(j, FITTED, "cx4: 64 READs to 10 nodes, one DCI, us", 99,
	      many.burst_ns / 1e3);
	return 0;
}

static int control(struct judge *j)
{
	struct control_times t = {0};
	int rc = control_path(&j->cx4, j->seed, &t);

	if (rc)
		return rc;
	report_add(j->rep, t.hash, t.virtual_ns, t.events);
	point(j, FITTED, "cx4: create_qp, us", 413, t.create_qp_us);
	point(j, FITTED, "cx4: of which in the NIC, us", 361,
	      t.create_qp_nic_us);
	point(j, FITTED, "cx4: QPs made and connected, a second", 712,
	      t.qps_per_s);
	point(j, FITTED, "cx4: first connection, ms", 15.7, t.first_us / 1e3);
	point(j, PREDICTED, "cx4: connection, device open, ms (LITE)", 2,
	      t.connect_us / 1e3);
	return 0;
}

static int connectx4(struct judge *j)
{
	int rc = read_latency(j);

	if (!rc)
		rc = async_rate(j, IBV_WR_RDMA_READ, false, FITTED, 138,
				"cx4: READs of 240 clients, RC, Mops");
	if (!rc)
		rc = async_rate(j, IBV_WR_RDMA_READ, true, FITTED, 118,
				"cx4: READs of 240 clients, DC, Mops");
	if (!rc)
		rc = async_rate(j, IBV_WR_RDMA_WRITE, false, PREDICTED, 145,
				"cx4: WRITEs of 240 clients, RC, Mops");
	if (!rc)
		rc = async_rate(j, IBV_WR_RDMA_WRITE, true, PREDICTED, 132,
				"cx4: WRITEs of 240 clients, DC, Mops");
	if (!rc)
		rc = reconnects(j);
	return rc ? rc : control(j);
}

/* --- ConnectX-5 -------------------------------------------------------- */

static int shape(struct judge *j)
{
	static const unsigned steps[] = {22, 88, 176, 704, 1408, 2816};
	double mops[6], peak = 0;
	int rc = 0;

	for (unsigned i = 0; i < 6 && !rc; i++) {
		struct bed_result r = {0};

		rc = qp_scaling_point(&j->cx5, j->seed, steps[i], &r);
		add(j, &r);
		mops[i] = r.mops;
		peak = fmax(peak, r.mops);
	}
	if (rc)
		return rc;
	point(j, FITTED, "cx5: 176 QPs / peak", 1, mops[2] / peak);
	point(j, FITTED, "cx5: 704 QPs / peak", 1, mops[3] / peak);
	report_row(j->rep, "cx5_88_qps_of_peak", mops[1] / peak);
	report_row(j->rep, "cx5_1408_qps_of_peak", mops[4] / peak);
	report_row(j->rep, "cx5_2816_qps_of_peak", mops[5] / peak);
	if (mops[1] > 0.7 * peak || mops[4] > 0.6 * peak ||
	    mops[5] > 0.6 * peak)
		report_fail(j->rep,
			    "cx5: no peak between 176 and 704 QPs and fall "
			    "behind: %.3g at 88, %.3g at 1408, %.3g at most",
			    mops[1], mops[4], peak);
	return 0;
}

static int ud_cost(struct judge *j)
{
	struct ud_rpc_result ud = {0};
	struct bed_result r = {0};
	int rc = qp_scaling_point(&j->cx5, j->seed, 352, &r);

	if (!rc)
		rc = qp_scaling_ud(&j->cx5, j->seed, 352, &ud);
	if (rc)
		return rc;
	add(j, &r);
	report_add(j->rep, ud.hash, ud.virtual_ns, ud.events);
	point(j, FITTED, "cx5: UD RPC, 352 senders: verbs' share of cores", 0.9,
	      ud.verbs_share);
	point(j, PREDICTED, "cx5: READs / UD RPCs, 352 of each", 2,
	      r.mops / ud.mops);
	report_row(j->rep, "cx5_ud_verbs_share_busy", ud.verbs_busy_share);
	return 0;
}

/* --- */

static int calibrate(const struct scenario_conf *sc, struct report *rep)
{
	struct judge j = {.rep = rep, .seed = sc->seed};
	int rc;

	if (nic_model_find("connectx3", &j.cx3) ||
	    nic_model_find("connectx4", &j.cx4) ||
	    nic_model_find("connectx5", &j.cx5))
		return -ENOENT;
	rep->ok = true;
	rep->table.n_cols = 4;
	rep->table.cols[0] = "paper";
	rep->table.cols[1] = "model";
	rep->table.cols[2] = "error_%";
	rep->table.cols[3] = "fitted";
	rc = connectx3(&j);
	if (!rc)
		rc = connectx4(&j);
	if (!rc)
		rc = shape(&j);
	return rc ? rc : ud_cost(&j);
}

const struct scenario scenario_calibrate = {
	.name = "calibrate",
	.what = "the papers' figures beside the NIC models'",
	.own_nics = true,
	.run = calibrate,
};
